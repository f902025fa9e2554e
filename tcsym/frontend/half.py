# SPDX-License-Identifier: Apache-2.0
"""Resolved program with half types -> the same, computed in float32 (LANGUAGE F7).

Until here expressions have the types of the language. From here on values of half and bfloat16 are
float32, temporaries of these types, too; only elements of other tensors, and what casts and stores
round, are short. A cast of such a value to its own type is one that the text asks for: it rounds.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.literals import round_to
from tcsym.frontend.program import (
    Cast,
    Compare,
    Const,
    Expr,
    Read,
    children,
    dtype_of,
)
from tcsym.frontend.rename import Rewriting, S
from tcsym.frontend.resolved import ResolvedProgram, ResolvedStatement, statements_of
from tcsym.index.expr import Index
from tcsym.types import DType

F32 = DType.FLOAT32


def in_float32(program: ResolvedProgram) -> ResolvedProgram:
    """`program` itself if it has no values of half types."""
    if not any(map(_has_halves, statements_of(program.body))):
        return program
    rewriting = _Rewriting(program)
    tensors = tuple([replace(t, dtype=rewriting.types[t.name]) for t in program.tensors])
    return replace(program, tensors=tensors, body=rewriting.items(program.body))


def _has_halves(s: ResolvedStatement) -> bool:
    positions = [v.at for v in s.variables if v.at is not None and not isinstance(v.at, Index)]
    todo = [s.value, *s.exists, *positions]
    while todo:
        e = todo.pop()
        if is_half(dtype_of(e)):
            return True
        todo += children(e)
    return False


def is_half(dtype: DType) -> bool:
    return dtype.accumulator is not dtype


class _Rewriting(Rewriting):
    """`types`: of the tensors in memory."""

    def __init__(self, program: ResolvedProgram) -> None:
        self.types = {
            t.name: t.dtype.accumulator if t.role == "temporary" else t.dtype
            for t in program.tensors
        }

    def statement(self, s: S) -> S:
        value, dtype = self.expression(s.value), self.types[s.target]
        if s.op == "=" and dtype is not dtype_of(value):
            value = stored(value, dtype)
        return replace(s, value=value, exists=tuple(map(self.expression, s.exists)))

    def changed(self, e: Expr, before: Expr) -> Expr:
        """Its value; float32 where `before` has a half type."""
        match e:
            case Const(value, dtype):
                return Const(value, dtype.accumulator)
            case Read():
                read = replace(e, dtype=self.types[e.tensor])
                return Cast(read, F32) if is_half(read.dtype) else read
            case Cast(value):
                assert isinstance(before, Cast)
                return _cast(e, value, dtype_of(before.operand))
        is_short = not isinstance(e, Compare) and is_half(e.dtype)
        return replace(e, dtype=F32) if is_short else e


def _cast(e: Cast, value: Expr, given: DType) -> Expr:
    """given: the type that `value` had."""
    if not is_half(e.dtype):
        return value if is_half(given) and e.dtype is F32 else e
    if given is not e.dtype:
        return value if dtype_of(value) is F32 else Cast(value, F32)
    return Cast(stored(value, e.dtype), F32)


def stored(value: Expr, dtype: DType) -> Expr:
    """`value` as an element of `dtype`, rounded once."""
    match value:
        case Const(x, DType.FLOAT32) if is_half(dtype):
            return Const(round_to(x, dtype), dtype)
        case Cast(x, DType.FLOAT32) if dtype_of(x) is dtype:
            return x
        case Cast(x, DType.FLOAT32) if not dtype_of(x).is_float:
            return Cast(x, dtype)
        case _:
            return Cast(value, dtype)
