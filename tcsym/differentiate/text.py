"""Typed expressions and statements -> text that the front end reads back with the same types."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import assert_never

from msgspec.structs import replace

from tcsym.differentiate.algebra import positions, rebuilt
from tcsym.frontend.program import (
    Binary,
    Cast,
    Const,
    Expr,
    For,
    Given,
    If,
    IndexValue,
    Item,
    Range,
    Read,
    Select,
    Statement,
    Unary,
    dtype_of,
    subexpressions,
)
from tcsym.frontend.program_text import ATOM, INFIX, PREFIX, PRODUCT, SUM, Text, Writer
from tcsym.index.expr import ZERO, FloorDiv, Index, atom_parts, var
from tcsym.index.text import condition_text
from tcsym.types import DType

_WIDTH = 100
_EXTREMUM = re.compile(r"(?<!\w)(min|max)\(")
_SHORT = {DType.FLOAT32: "float", DType.FLOAT64: "double", DType.FLOAT16: "half"}


def type_name(dtype: DType) -> str:
    return _SHORT.get(dtype, str(dtype))


def item_lines(
    items: Collection[Item], ranges: Mapping[int, Collection[str]], indent: str
) -> list[str]:
    """ranges: of a statement (by id), the variables whose ranges must be written."""
    lines: list[str] = []
    for item in items:
        match item:
            case Statement():
                lines += _statement_lines(item, ranges.get(id(item), ()), indent)
            case For(variable, lower, upper, body):
                start = "" if lower == ZERO else f"{lower}:"
                lines.append(f"{indent}for {variable} in {start}{upper} {{")
                lines += [*item_lines(body, ranges, indent + "  "), indent + "}"]
            case If(condition, then, orelse):
                lines.append(f"{indent}if {condition_text(condition)} {{")
                lines += item_lines(then, ranges, indent + "  ")
                if orelse:
                    lines.append(indent + "} else {")
                    lines += item_lines(orelse, ranges, indent + "  ")
                lines.append(indent + "}")
            case _:
                assert_never(item)
    return lines


def _statement_lines(s: Statement, written: Collection[str], indent: str) -> list[str]:
    parts = [str(e) if isinstance(e, Index) else _WRITER.subscript(e) for e in positions(s)]
    left = f"{s.target}({', '.join(parts)})" if parts else s.target
    value = _stored(_meant(s))
    left, value = in_pairs(left), in_pairs(value)
    head = f"{indent}{left} {s.op}{'!' if s.initialise else ''} "
    where = ", ".join(_range(r, s.given) for r in s.walked if r.variable in written)
    line = head + value + (f" where {where}" if where else "")
    if len(line) <= _WIDTH:
        return [line]
    lines = _broken(head, value, indent + "    ")
    if where and len(lines[-1]) + len(where) + 7 <= _WIDTH:
        lines[-1] += f" where {where}"
    elif where:
        lines.append(f"{indent}    where {where}")
    return lines


def _meant(s: Statement) -> Expr:
    """The value, with casts that say that quotients round down, and that narrow sums wrap: what
    the program says so is no news."""
    value, dtype = _with_casts(s.value), dtype_of(s.value)
    accumulates = s.op in ("+=", "*=") and dtype.is_short_integer
    return Cast(value, dtype) if accumulates and not isinstance(value, Cast) else value


def _with_casts(e: Expr) -> Expr:
    """A quotient and the whole of other integer arithmetic in a cast: operands of a declared result
    are converted to its type first, except inside of casts."""
    if isinstance(e, Read):
        return e
    made = rebuilt(e, _with_casts)
    match made:
        case Binary("div", _, _, dtype) if dtype.is_integer:
            return Cast(made, dtype)
        case Cast(x, to) if to.is_float and not isinstance(x, Cast) and _rounds_down(x):
            return Cast(Cast(x, dtype_of(x)), to)
        case Binary("add" | "sub" | "mul", a, b, _) if _is_converted(made):
            return Cast(replace(made, left=_bare(a), right=_bare(b)), made.dtype)
        case Unary("neg", x, _) if _is_converted(made):
            return Cast(replace(made, operand=_bare(x)), made.dtype)
    return made


def _is_converted(e: Binary | Unary) -> bool:
    """Elements are; indices are not."""
    is_narrow = not e.dtype.is_float and e.dtype.bits <= 32
    return is_narrow and any(isinstance(x, Read) for x in subexpressions(e))


def _rounds_down(e: Expr) -> bool:
    """A number is made of indices of which a quotient is part."""
    return any(isinstance(x, IndexValue) and _is_quotient(x.index) for x in subexpressions(e))


def _is_quotient(i: Index) -> bool:
    return any(isinstance(a, FloorDiv) or any(map(_is_quotient, atom_parts(a))) for a, _ in i.terms)


def _bare(e: Expr) -> Expr:
    match e:
        case Cast(Binary("add" | "sub" | "mul", _, _, dtype) | Unary("neg", _, dtype) as x, to):
            return x if dtype is to else e
    return e


def _stored(e: Expr) -> str:
    """A literal alone would make a `float`."""
    plain = (DType.FLOAT32, DType.INT32, DType.BOOL)
    text = expression_text(e)
    is_literal = isinstance(e, Const) and e.dtype not in plain
    return f"{type_name(dtype_of(e))}({text})" if is_literal else text


def _broken(head: str, value: str, indent: str) -> list[str]:
    """`head value` over several lines, cut in front of operators outside of subscripts."""
    lines, line = [], head
    for part in _parts(value):
        if len(line) + len(part.rstrip()) > _WIDTH and line != head:
            lines.append(line.rstrip())
            line = indent
        line += part
    return [*lines, line]


def _parts(value: str) -> list[str]:
    """Pieces that begin with an operator and are not cut inside of subscripts and arguments."""
    operators = {symbol for symbol, _ in INFIX.values()} | {"?", ":"}
    pieces = [""]
    within: list[bool] = []  # of each open parenthesis: whether a name stands in front of it
    words = value.split(" ")
    for k, word in enumerate(words):
        if word in operators and not any(within):
            pieces.append("")
        pieces[-1] += word + (" " if k + 1 < len(words) else "")
        for n, c in enumerate(word):
            if c == "(":
                within.append(n > 0 and (word[n - 1].isalnum() or word[n - 1] == "_"))
            elif c == ")":
                within.pop()
    return pieces


def _range(r: Range, given: Collection[Given]) -> str:
    ends = {var(g.name): _WRITER.subscript(g.value) for g in given}
    lower, upper = (ends.get(e, str(e)) for e in (r.lower, r.upper))
    return in_pairs(f"{r.variable} in {lower}:{upper}")


def in_pairs(text: str) -> str:
    """`min(a, b, c)` of index expressions as `min(a, min(b, c))`."""
    found = _EXTREMUM.search(text)
    if found is None:
        return text
    depth, start, args, at = 0, found.end(), [], found.end()
    while depth >= 0:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth < 0 or (depth == 0 and text[at] == ","):
            args.append(in_pairs(text[start:at].strip()))
            start = at + 1
        at += 1
    name, inner = found[1], args[-1]
    for a in reversed(args[:-1]):
        inner = f"{name}({a}, {inner})"
    return text[: found.start()] + inner + in_pairs(text[at:])


def expression_text(e: Expr) -> str:
    return _WRITER.text(e)[0]


class _SourceWriter(Writer):
    """As the front end reads it back, with no more parentheses and conversions than that needs."""

    def constant(self, e: Const) -> Text:
        value, dtype = e.value, e.dtype
        if dtype is DType.BOOL:
            return ("true" if value else "false"), ATOM
        if not dtype.is_float:
            text = str(int(value))
            if dtype not in (DType.INT32, DType.INT64):
                return self.cast(text, dtype)
        elif value != value:
            text = "NAN"
        elif value in (float("inf"), float("-inf")):
            text = "INFINITY" if value > 0 else "-INFINITY"
        else:
            text = _float_text(float(value), dtype)
        return text, PREFIX if text.startswith("-") else ATOM

    def index(self, i: Index) -> Text:
        text = str(i)
        if len(i.terms) + (i.constant != 0) > 1:
            return text, SUM
        if i.terms and i.terms[0][1] == 1 and isinstance(i.terms[0][0], str):
            return text, ATOM
        return text, PREFIX if text.startswith("-") and "*" not in text else PRODUCT

    def subscript(self, e: Expr) -> str:
        """Everything in a subscript is exact: conversions to int64 are not written."""
        return self.text(_exact(e))[0]

    def read(self, e: Read) -> str:
        return super().read(replace(e, checked=())) if e.subscripts else e.tensor

    def cast(self, text: str, dtype: DType) -> Text:
        return f"{type_name(dtype)}({text})", ATOM

    def operands(self, a: Expr, b: Expr, dtype: DType) -> tuple[Text, Text]:
        """Literals take the other side's type; conversions that the language makes are left out."""
        plain = (DType.FLOAT32, DType.INT32, DType.BOOL)
        if isinstance(a, Const) and isinstance(b, Const) and dtype_of(a) not in plain:
            return self.cast(self.text(a)[0], dtype_of(a)), self.text(b)
        return self.text(_implicit(a, b, dtype)), self.text(_implicit(b, a, dtype))

    def arguments(self, args: tuple[Expr, ...], dtype: DType) -> list[str]:
        """A literal takes the type of its neighbours; alone it needs its own."""
        texts = super().arguments(args, dtype)
        alone = dtype is not DType.FLOAT32 and all(isinstance(x, Const) for x in args)
        return [self.cast(text, dtype)[0] for text in texts] if alone else texts

    def grouped(self, text: str, level: int) -> Text:
        return text, level


_WRITER = _SourceWriter()


def _implicit(e: Expr, other: Expr, dtype: DType) -> Expr:
    """The operand of a conversion to the float type that the other side has anyway; comparisons
    are numbers only where they are converted."""
    match e:
        case Cast(x, to) if to is dtype and dtype.is_float and dtype_of(x).is_integer:
            is_literal = isinstance(other, Const | Cast)
            if not is_literal and dtype_of(other) is dtype and not isinstance(x, Const):
                return x
    return e


def _float_text(value: float, dtype: DType) -> str:
    """The shortest decimal that is this value in its type."""
    import numpy as np

    if dtype is DType.FLOAT64:
        return repr(value)
    text = str(np.float32(value))
    return text if "." in text or "e" in text else text + ".0"


def _exact(e: Expr) -> Expr:
    match e:
        case Cast(x, DType.INT64) if not dtype_of(x).is_float:
            return _exact(x)
        case IndexValue(i, _):
            return IndexValue(i, DType.INT32)
        case Binary(op, a, b, _):
            return Binary(op, _exact(a), _exact(b), DType.INT32)
        case Unary(op, x, _):
            return Unary(op, _exact(x), DType.INT32)
        case Select(c, a, b, _):
            return Select(c, _exact(a), _exact(b), DType.INT32)
    return e
