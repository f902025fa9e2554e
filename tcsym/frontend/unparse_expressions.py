# SPDX-License-Identifier: Apache-2.0
"""Typed expression -> text that the front end reads back as this expression.

The inverse of `check_expressions`, with its rules: a conversion, or the type of a literal, is left
out where `promotion` would find the same without it, and written where it would not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from tcsym.errors import NOWHERE, TCError
from tcsym.frontend.bit_operations import BIT_OPERATORS, bit_operation
from tcsym.frontend.literals import Literal, default_type, literal_to_const
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
    Unary,
    children,
    dtype_of,
    subexpressions,
)
from tcsym.frontend.program_text import (
    ATOM,
    CHOICE,
    COMPARISON,
    INFIX,
    OR,
    PREFIX,
    PRODUCT,
    SUM,
    Text,
    inside,
)
from tcsym.frontend.promotion import Typed, arithmetic, built_in, infix, select, settle
from tcsym.index.expr import FloorDiv, Index, Mod, atom_parts, index, of_atom
from tcsym.trees import Steps, walked
from tcsym.types import DType, is_narrower

_SHORT = {DType.FLOAT32: "float", DType.FLOAT64: "double", DType.FLOAT16: "half"}
_WORD = re.compile(r"[A-Za-z_]\w*")
_EXTREMUM = re.compile(r"(?<!\w)(min|max)\(")
_ADAPTING = ("add", "sub", "mul", "min", "max")  # in declared types and subscripts operands adapt


class Place(Struct, frozen=True):
    """Where an expression stands: `exact` and `wide` as in `scope.Context`.

    meant: in a cast to this type, so that what wraps in it is no news. half: what is computed in
    float32 here is of a half type in the text.
    """

    exact: bool = False
    wide: DType | None = None
    meant: DType | None = None
    half: bool = False


PLAIN, EXACT = Place(), Place(exact=True)
# What is read back, before the operator converts it; its text, and what of that could be spared.
_Candidate = tuple[Typed, Steps[Text], int]


def type_name(dtype: DType) -> str:
    return _SHORT.get(dtype, str(dtype))


def index_text(e: Index) -> str:
    return in_pairs(str(e))


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


def subscript_text(e: Index | Expr) -> str:
    return index_text(e) if isinstance(e, Index) else expression_text(e, EXACT)[0]


def expression_text(e: Expr, at: Place) -> Text:
    return walked(_text(e, at))


def _text(e: Expr, at: Place) -> Steps[Text]:
    dtype = dtype_of(e)
    match e:
        case Const():
            return _constant(e, at)
        case IndexValue(i, DType.INT64) if not at.exact:
            long = {v: f"int64({v})" for v in i.variables()}
            text, level = _index(i)
            return _WORD.sub(lambda x: long.get(x[0], x[0]), text), level
        case IndexValue(i, _):
            return _cast(_index(i), dtype) if _is_meant(e, at) else _index(i)
        case Read(name, subscripts):
            text = f"{name}({', '.join(map(subscript_text, subscripts))})" if subscripts else name
            is_wide = at.wide is not None and is_narrower(dtype, at.wide)
            return _cast((text, ATOM), dtype) if is_wide else (text, ATOM)
        case Cast():
            return (yield from _cast_text(e, at))
        case _ if _is_meant(e, at):
            return _cast((yield from _operation(e, Place(meant=dtype))), dtype)
    return (yield from _operation(e, at))


def _is_meant(e: Expr, at: Place) -> bool:
    """Its type has to be said: a declared type or a sum of short integers would be another one, or
    the news that quotients round down."""
    dtype = dtype_of(e)
    if at.exact:
        return False
    match e:
        case IndexValue(i, _):
            return at.wide is not None and is_narrower(dtype, at.wide) and not _is_plain(i)
        case Binary("div"):
            return dtype.is_integer and at.meant is not dtype
        case Binary(op) if op not in _ADAPTING:
            return False
        case Binary() | Unary("neg"):
            if dtype.is_short_integer and at.meant is not dtype:
                return True
        case Select() | Call():
            pass
        case _:
            return False
    return at.wide is not None and is_narrower(dtype, at.wide)


def _operation(e: Expr, at: Place) -> Steps[Text]:
    kept = Place(exact=at.exact)
    match e:
        case Unary("neg", x, _):
            inner = _forced(x, at) if isinstance(x, Const) else (yield _text(x, at))
            return f"-{inside(inner, PREFIX)}", PREFIX
        case Unary(_, x, _):
            return f"!{inside((yield _text(x, kept)), PREFIX)}", PREFIX
        case Binary("min" | "max" as op, a, b, _):
            left, right = yield from _operands(e, (a, b), _arithmetic(op, at), at)
            return f"{op}({left[0]}, {right[0]})", ATOM
        case Compare() if _is_exact(e):
            return _exact_comparison(e)
        case Binary(op, a, b) | Compare(op, a, b):
            symbol, level = INFIX[op]
            if op in ("div", "mod"):
                at = replace(kept, half=at.half)
            elif op not in _ADAPTING:
                at = PLAIN if symbol in BIT_OPERATORS else kept
            left, right = yield from _operands(e, (a, b), _infix(symbol, at), at)
            first = level + 1 if level == COMPARISON else level
            return f"{inside(left, first)} {symbol} {inside(right, level + 1)}", level
        case Select(c, a, b, _):
            test = inside((yield _text(c, kept)), OR)
            left, right = yield from _operands(e, (a, b), _select(c, at), at)
            return f"{test} ? {inside(left, OR)} : {inside(right, CHOICE)}", CHOICE
        case Call(function, args, _):
            inner_at = Place(wide=at.wide, half=at.half)
            texts = yield from _operands(e, args, lambda *xs: built_in(function, xs), inner_at)
            return f"{function}({', '.join(text for text, _ in texts)})", ATOM
    raise AssertionError(e)


def _is_exact(e: Compare) -> bool:
    """Of integers of mathematics, as the front end makes all comparisons of affine sides."""
    sides = (e.left, e.right)
    return all(isinstance(x, IndexValue | Const) for x in sides) and any(
        isinstance(x, IndexValue) and x.dtype is DType.INT64 for x in sides
    )


def _exact_comparison(e: Compare) -> Text:
    symbol, level = INFIX[e.op]
    left, right = (
        _side(x.index if isinstance(x, IndexValue) else index(int(x.value)))
        for x in (e.left, e.right)
        if isinstance(x, IndexValue | Const)
    )
    return f"{inside(left, level + 1)} {symbol} {inside(right, level + 1)}", level


def _side(e: Index) -> Text:
    """An index expression; a remainder as such, which in it is what a quotient leaves."""
    for atom, c in e.terms:
        n = atom.divisor.as_int() if isinstance(atom, FloorDiv) else None
        if isinstance(atom, FloorDiv) and n == -c and e == atom.dividend + of_atom(atom) * c:
            return f"{inside(_index(atom.dividend), PRODUCT)} % {n}", PRODUCT
    return _index(e)


# ---- what the front end makes of operands


def _arithmetic(op: str, at: Place) -> Callable[..., Expr]:
    return lambda a, b: arithmetic(op, a, b, NOWHERE, at.exact)


def _infix(symbol: str, at: Place) -> Callable[..., Expr]:
    if symbol in BIT_OPERATORS:
        return lambda a, b: bit_operation(symbol, a, b, NOWHERE)
    return lambda a, b: infix(symbol, a, b, (NOWHERE, NOWHERE), at.exact)  # type: ignore[arg-type]


def _select(condition: Expr, at: Place) -> Callable[..., Expr]:
    return lambda a, b: select(condition, a, b, NOWHERE, at.exact)


def _operands(
    wanted: Expr, parts: Sequence[Expr], made_of: Callable[..., Expr], at: Place
) -> Generator[Steps[Text], Text, list[Text]]:
    """The shortest texts of which the front end makes `wanted`."""
    choices = product(*(list(_candidates(p, at)) for p in parts))
    for chosen in sorted(choices, key=lambda xs: sum(spared for _, _, spared in xs)):
        try:
            made = made_of(*(typed for typed, _, _ in chosen))
        except TCError:
            continue
        found = children(made)[-len(parts) :]
        if dtype_of(made) is dtype_of(wanted) and all(map(_same, found, parts)):
            texts: list[Text] = []
            for _, text, _ in chosen:
                texts.append((yield text))
            return texts
    raise AssertionError(f"no text means {wanted!r:.200}")


def _candidates(part: Expr, at: Place) -> Iterator[_Candidate]:
    match part:
        case Const(dtype=dtype) if dtype is not DType.BOOL:
            literal = literal_of(part)
            read = _widened(literal, at)
            yield read, _known((literal.text, _level(literal))), 0
            yield part, _known(_forced(part, at)), 2
            return
        case Cast(x) if _may_be_left_out(part, at):
            yield x, _text(x, at), 0
    yield part, _text(part, at), int(isinstance(part, Cast))


def _known(text: Text) -> Steps[Text]:
    yield from ()
    return text


def _may_be_left_out(e: Cast, at: Place) -> bool:
    """Whether an operator can be given the operand of a conversion, which it makes then itself."""
    x = e.operand
    if at.exact or (at.half and is_half_value(e)) or _is_news(x, e.dtype):
        return False
    match x:
        case Const(_, dtype):
            return dtype is DType.BOOL
        case IndexValue():
            return not _is_meant(x, at)
        case Read():
            return not _adapts(x, at)
    return True


def _same(a: Expr, b: Expr) -> bool:
    match a, b:
        case Cast(x, to, False), Cast(y, other, False):
            return to is other and x is y
        case Const(x, dtype), Const(y, other):
            return dtype is other and (x == y or (x != x and y != y)) and f"{x}" == f"{y}"
    return a is b


def is_half_value(e: Expr) -> bool:
    """A value of a half type, as it is computed with."""
    match e:
        case Cast(Read(dtype=dtype) | Cast(_, dtype), DType.FLOAT32):
            return dtype.accumulator is not dtype
    return False


def _adapts(x: Read, at: Place) -> bool:
    return at.wide is not None and is_narrower(x.dtype, at.wide)


# ---- literals


def literal_of(e: Const) -> Literal:
    value = e.value
    if not e.dtype.is_float:
        return Literal(str(int(value)), int(value))
    if value != value:
        return Literal("NAN", float(value))
    if value in (float("inf"), float("-inf")):
        return Literal("INFINITY" if value > 0 else "-INFINITY", float(value))
    return Literal(_float_text(float(value), e.dtype), float(value))


def _float_text(value: float, dtype: DType) -> str:
    """The shortest decimal that is this value in its type."""
    import numpy as np

    if dtype is DType.FLOAT64:
        return repr(value)
    text = str(np.float32(value))
    return text if "." in text or "e" in text else text + ".0"


def _level(literal: Literal) -> int:
    return PREFIX if literal.text.startswith("-") else ATOM


def _widened(literal: Literal, at: Place) -> Typed:
    if at.wide is None or not is_narrower(default_type(literal), at.wide):
        return literal
    return literal_to_const(literal, at.wide)


def _constant(e: Const, at: Place) -> Text:
    """Where it meets nothing."""
    if e.dtype is DType.BOOL:
        return ("true" if e.value else "false"), ATOM
    literal = literal_of(e)
    if _same(settle(_widened(literal, at), at.exact), e):
        return literal.text, _level(literal)
    return _forced(e, at)


def _forced(e: Const, at: Place) -> Text:
    text = literal_of(e).text
    return (text, _level(literal_of(e))) if at.exact else _cast((text, ATOM), e.dtype)


# ---- conversions


def _cast(text: Text, dtype: DType) -> Text:
    return f"{type_name(dtype)}({text[0]})", ATOM


def _cast_text(e: Cast, at: Place) -> Steps[Text]:
    x, dtype = e.operand, e.dtype
    if at.exact and dtype is DType.INT64 and not dtype_of(x).is_float:  # as all that it reads is
        if isinstance(x, Read | Cast) or (
            isinstance(x, Binary) and INFIX[x.op][0] in BIT_OPERATORS
        ):
            return (yield _text(x, EXACT if isinstance(x, Read) else PLAIN))
        return _cast((yield _text(x, Place(meant=dtype_of(x)))), dtype_of(x))
    if (isinstance(x, Read) and at.wide is dtype and _adapts(x, at)) or (
        at.half and is_half_value(e)
    ):
        return (yield _text(x, replace(at, wide=None)))
    if isinstance(x, Const) and x.dtype is not DType.BOOL:
        return _cast(_forced(x, PLAIN), dtype)
    if _is_news(x, dtype):
        return _cast(_cast((yield _text(x, Place(meant=dtype_of(x)))), dtype_of(x)), dtype)
    inner = yield _text(x, Place(meant=dtype if dtype is dtype_of(x) else None))
    return _cast(inner, dtype)


def _is_news(x: Expr, dtype: DType) -> bool:
    """Whether a number that is made of indices of which a quotient is part becomes a float."""
    if not dtype.is_float or isinstance(x, Cast) or dtype_of(x).is_float:
        return False
    return any(isinstance(p, IndexValue) and _is_quotient(p.index) for p in subexpressions(x))


def _is_quotient(i: Index) -> bool:
    return any(isinstance(a, FloorDiv) or any(map(_is_quotient, atom_parts(a))) for a, _ in i.terms)


# ---- index expressions


def _is_plain(i: Index) -> bool:
    return (
        len(i.terms) == 1
        and not i.constant
        and isinstance(i.terms[0][0], str | Mod)
        and (i.terms[0][1] == 1)
    )


def _index(i: Index) -> Text:
    text = index_text(i)
    if len(i.terms) + (i.constant != 0) > 1:
        return text, SUM
    if i.terms and i.terms[0][1] == 1 and isinstance(i.terms[0][0], str):
        return text, ATOM
    return text, PREFIX if text.startswith("-") and "*" not in text else PRODUCT
