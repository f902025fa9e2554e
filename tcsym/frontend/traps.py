# SPDX-License-Identifier: Apache-2.0
"""Resolved statement -> its traps (LANGUAGE F9): quotients that meet floats, sums that wrap.

A value is followed to where it is kept. A cast that the text asks for has a place in it, those that
the rules of types ask for have none, so `int32(i/N)` says that the quotient is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.errors import NOWHERE, Span
from tcsym.frontend import ast
from tcsym.frontend.literals import Literal, is_lost
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    Select,
    Trap,
    Unary,
)
from tcsym.frontend.resolved import ResolvedStatement
from tcsym.types import DType


class _Use(Struct, frozen=True):
    """What becomes of a value: it meets floats; it is kept, or meets wider integers; its quotients
    count."""

    floating: bool = False
    kept: bool = False
    divides: bool = True


_UNUSED = _Use()


def traps_of(s: ResolvedStatement, text: ast.Expr, dtype: DType, declared: bool) -> list[Trap]:
    """Those of a statement whose target has type `dtype`; `text` is its right-hand side."""
    found = list(_value(s.value, _Use(dtype.is_float, True)))
    accumulates = s.op in ("+=", "*=") and not declared and dtype.is_short_integer
    if accumulates and not isinstance(ast.unparenthesised(text), ast.CastTo):
        found = [t for t in found if t.kind != "narrow"] + [_narrow(s.op, dtype, text.span)]
    return found


def literal_trap(literal: Literal, dtype: DType) -> list[Trap]:
    """Of a literal that is stored or cast."""
    if not is_lost(literal, dtype):
        return []
    message = f"`{literal.text}` is 0 or nearly so in {dtype}, which has no such small numbers"
    return [Trap("literal", message, "compute in a wider type", literal.span)]


def _narrow(op: str, dtype: DType, span: Span) -> Trap:
    message = f"`{op}` of {dtype} wraps at {dtype.highest + 1}"
    hint = f"convert an operand, as `int32(…)`, or say that it is meant: `{dtype}(…)`"
    return Trap("narrow", message, hint, span)


def _value(e: Expr, use: _Use) -> Iterator[Trap]:
    match e:
        case Const() | IndexValue() | Read():
            return
        case Cast():
            yield from _cast(e, use)
        case Unary(op, x, _):
            yield from _value(x, use if op == "neg" else replace(use, floating=False, kept=False))
        case Binary():
            yield from _binary(e, use)
        case Compare(_, a, b):
            for x in (a, b):
                yield from _value(x, replace(use, floating=False, kept=False))
        case Select(c, a, b):
            yield from _value(c, _Use(divides=False))
            yield from _value(a, use)
            yield from _value(b, use)
        case Call(_, args):
            for x in args:
                yield from _value(x, replace(use, floating=True, kept=True))
        case _:
            assert_never(e)


def _cast(e: Cast, use: _Use) -> Iterator[Trap]:
    if e.span == NOWHERE:
        floating = use.floating or e.dtype.is_float
        yield from _value(e.operand, replace(use, floating=floating, kept=True))
    elif e.dtype.is_float:
        yield from _value(e.operand, replace(use, floating=True, kept=False))


_SYMBOLS = {"add": "+", "sub": "-", "mul": "*"}


def _binary(e: Binary, use: _Use) -> Iterator[Trap]:
    """Left-nested operators in a loop: a sum may have more terms than Python has stack frames."""
    todo: list[tuple[Expr, _Use]] = [(e, use)]
    while todo:
        x, to = todo.pop()
        if not isinstance(x, Binary):
            yield from _value(x, to)
            continue
        unused = replace(to, floating=False, kept=False)
        match x.op:
            case "add" | "sub" | "mul":
                if to.kept and x.dtype.is_short_integer:
                    yield _narrow(_SYMBOLS[x.op], x.dtype, x.span)
                    to = replace(to, kept=False)
                inner = to
            case "div":
                yield from _quotient(x, to)
                inner = replace(to, kept=False) if x.dtype.is_integer else unused
            case "min" | "max":
                inner = to
            case _:
                inner = unused
        todo += [(x.right, inner), (x.left, inner)]


def _quotient(e: Binary, use: _Use) -> Iterator[Trap]:
    if not (e.dtype.is_integer and use.divides):
        return
    match e.left, e.right:
        case Const(int(a), _), Const(int(b), _):
            loses = b != 0 and a % b != 0
        case _:
            loses = False
    if use.floating or loses:
        message = "`/` of two integers rounds down, and its value becomes a float"
        if loses and not use.floating:
            message = "`/` of two integers rounds down"
        hint = "divide floats, as `float(a)/b` or `1.0/b`, or say that it is meant: `int32(a/b)`"
        yield Trap("division", message, hint, e.span)
