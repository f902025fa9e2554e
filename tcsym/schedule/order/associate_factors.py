# SPDX-License-Identifier: Apache-2.0
"""The factors of a contraction's terms, put together by the loops they move with.

`A(i,k) * B(k,j) / s(i)` -> `(A(i,k) / s(i)) * B(k,j)`: a product of two operands, each of which a
panel can hold as computed. As written, rows and columns meet before the last factor, and each
point divides. docs/decisions/0017 says why this may be done.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, BinaryOp, Cast, Const, Expr, Select, dtype_of, rewritten
from tcsym.ir.loops import Kernel, Loop, Node, Update
from tcsym.ir.traverse import loads, map_node, walk
from tcsym.rewrite.factors import flattened, product
from tcsym.schedule.analysis.access import value_variables
from tcsym.types import DType

HALVES = (DType.FLOAT16, DType.BFLOAT16)


class _Factor(Struct, frozen=True):
    """`op`: `mul` above the line, `div` below it. `loops`: the loops that it moves with.

    place: among the factors of its term, of which some may be equal.
    """

    place: int
    op: BinaryOp
    value: Expr
    loops: frozenset[str]


def associate_factors(kernel: Kernel) -> Kernel:
    """Sums of floating products with factors beside two operands -> sums of products of two."""
    changed: dict[Update, Update] = {}
    for x, around in walk(kernel.body):
        if isinstance(x, Update) and x.op == "add":
            term = widened_term(x)
            value = _associated(term.value, around)  # type: ignore[arg-type]
            if value is not None:
                changed[x] = replace(term, value=value)

    def change(x: Node) -> Node:
        return changed.get(x, x) if isinstance(x, Update) else x

    return replace(kernel, body=map_node(kernel.body, change)) if changed else kernel


def _associated(term: Expr, around: tuple[Loop, ...]) -> Expr | None:
    """The term as a product of two operands; None if it is one, or can be none.

    Under a guard, `c ? a*b : 0`, what it guards.
    """
    if isinstance(term, Select):
        product = _associated(term.then, around)
        return None if product is None else replace(term, then=product)
    variables = frozenset(x.variable for x in around)
    found = [
        _Factor(place, op, value, value_variables(value) & variables)
        for place, (op, value) in enumerate(flattened(term))
    ]
    if len(found) < 3 or not all(dtype_of(f.value).is_float for f in found):
        return None
    operands = _operands(found, around)
    if operands is None:
        return None
    sides = tuple([x] for x in operands)
    for f in found:
        if f not in operands:
            side = next((s for s in sides if f.loops <= s[0].loops), None)
            if side is None:
                return None
            side.append(f)
    first, second = sorted((sorted(s, key=_place) for s in sides), key=lambda s: s[0].place)
    value = Binary("mul", _product(first), _product(second), dtype_of(term))
    return None if value == term else value


def _operands(found: list[_Factor], around: tuple[Loop, ...]) -> tuple[_Factor, _Factor] | None:
    """What rows and columns load step by step, each without the other's loop.

    First the one that the innermost parallel loop does not move, most likely the rows': it takes
    what fits both, as elements of rows are used one at a time, and those of columns in vectors.
    """
    sums = {x.variable for x in around if x.order == "reduction"}
    parallel = [x.variable for x in around if x.variable not in sums]
    moving = [f for f in found if f.op == "mul" and f.loops & sums and f.loops - sums]
    moving = [f for f in moving if loads(f.value)]
    for a in moving:
        for b in moving:
            if a.loops - sums - b.loops and b.loops - sums - a.loops:
                return (b, a) if parallel[-1] in a.loops else (a, b)
    return None


def _place(f: _Factor) -> int:
    return f.place


def _product(side: list[_Factor]) -> Expr:
    return product([(f.op, f.value) for f in side])


def widened_term(x: Update) -> Update:
    """A term of half type that is accumulated in float32 is computed in it (LANGUAGE B8)."""
    term = x.value
    if not (isinstance(term, Cast) and term.dtype is DType.FLOAT32):
        return x
    inner = term.operand
    return replace(x, value=_widened(inner)) if dtype_of(inner) in HALVES else x


def _widened(v: Expr) -> Expr:
    return rewritten(v, _widened_node, below=_half_sides)


def _half_sides(v: Expr) -> tuple[Expr, ...]:
    match v:
        case Binary(op, a, b, t) if t in HALVES and op not in ("and", "or"):
            return a, b
    return ()


def _widened_node(v: Expr, before: Expr) -> Expr:
    match v:
        case Binary(op, left, right) if _half_sides(before):
            return Binary(op, left, right, DType.FLOAT32)
        case Const(x, t) if t in HALVES:
            return Const(x, DType.FLOAT32)
        case _:
            return Cast(v, DType.FLOAT32) if dtype_of(v) in HALVES else v
