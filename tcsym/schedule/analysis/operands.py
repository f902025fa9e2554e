# SPDX-License-Identifier: Apache-2.0
"""The factors of a contraction's terms that panels can hold: what is worth copying, and how.

A panel holds values, not just elements: a conversion, a guard, or other arithmetic that moves with
one side of the register tile only is done once, when the panel is filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Read,
    Select,
    Unary,
    dtype_of,
    rewritten,
)
from tcsym.index.expr import ONE, ZERO, Index, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node, Update, Value
from tcsym.ir.packed import elements_of, packed_run
from tcsym.ir.traverse import (
    loads,
    map_node,
    subvalues,
    value_children,
)
from tcsym.schedule.analysis.access import accesses, stride, value_variables
from tcsym.schedule.analysis.band import Band, Roles, reductions
from tcsym.schedule.analysis.loops import replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.order.fuse_parallel import fused_position
from tcsym.trees import leaves
from tcsym.types import DType

HALVES = (DType.FLOAT16, DType.BFLOAT16)


Fits = Callable[[Value], bool]


class Operand(Struct, frozen=True):
    """`value` as in the naive kernel; it moves with `columns` and `inner` (outermost first).

    A panel has the dimensions of `inner` in the order in which the register tile runs over them.
    `across`: the loop around `columns` that is fused with it (`contraction.fuse_parallel`), if any.
    """

    value: Expr
    columns: Loop
    inner: tuple[Loop, ...]
    panel: str
    across: Loop | None = None

    @property
    def sides(self) -> tuple[Loop, ...]:
        """The loops whose points are the panel's columns, outermost first."""
        return (self.columns,) if self.across is None else (self.across, self.columns)

    @property
    def n_columns(self) -> Index:
        total = ONE
        for x in self.sides:
            total = total * extent(x)
        return total

    def column(self) -> Index:
        """The column as the loops count it."""
        total = ZERO
        for x in self.sides:
            total = total * extent(x) + var(x.variable) - x.lower
        return total

    def at_column(self, column: Index) -> dict[str, Index]:
        """The loops' variables at a column."""
        if self.across is None:
            return {self.columns.variable: self.columns.lower + column}
        return fused_position(self.across, self.columns, column)

    @property
    def tensors(self) -> frozenset[str]:
        return frozenset(r.tensor for r in loads(self.value))

    @property
    def inner_by_memory(self) -> tuple[Loop, ...]:
        """`inner` with the loop that runs along memory last, the order of copies."""
        subscripts = loads(self.value)[0].subscripts
        last = subscripts[-1] if subscripts else None
        along = last.variables() if isinstance(last, Index) else frozenset()
        fast = [x for x in self.inner if x.variable in along]
        return (*(x for x in self.inner if x not in fast), *fast)


def is_constant(kernel: Kernel, reads: Iterable[Read]) -> bool:
    """The same for many calls: copies of it are made once, and cost none of them anything."""
    return all(r.tensor in kernel.constants for r in reads)


def is_held(kernel: Kernel, x: Operand) -> bool:
    """A constant over ranges that sizes tell: a panel of all of it can be made before all loops."""
    loops, sizes = (*x.inner, *x.sides), frozenset(kernel.sizes)
    ends = frozenset[str]().union(*(y.lower.variables() | y.upper.variables() for y in loops))
    moving = value_variables(x.value) - {y.variable for y in loops}
    return is_constant(kernel, loads(x.value)) and ends | moving <= sizes


def over_outer(kernel: Kernel, band: Band, x: Operand, outer: Sequence[str]) -> Operand:
    """A constant with the loops around its panel that it moves with as dimensions of the panel."""
    moving = [band.loop(v) for v in outer if v in value_variables(x.value)]
    whole = replace(x, inner=(*moving, *x.inner))
    return whole if is_held(kernel, whole) else x


def outer_loops(band: Band, roles: Roles) -> tuple[str, ...]:
    """Loops of the band that a streamed operand moves with: they stay around its panel."""
    used = frozenset[str]().union(*(value_variables(r) for r in roles.streamed))
    return tuple(v for v in band.variables if v in used and v not in (roles.columns, roles.rows))


def streamed_operands(kernel: Kernel, band: Band, roles: Roles, names: Names) -> list[Operand]:
    """What every row uses again: moves with the columns and a reduction, not with the rows."""
    outer = outer_loops(band, roles)
    others = frozenset(band.variables) - {roles.columns, *outer}
    return _operands(kernel, band, band.loop(roles.columns), others, names)


def stationary_operands(kernel: Kernel, band: Band, roles: Roles, names: Names) -> list[Operand]:
    """What moves with the rows, and is not an element at hand step by step."""
    return [x for x in row_operands(kernel, band, roles, names) if not _is_at_hand(kernel, x)]


def row_operands(
    kernel: Kernel, band: Band, roles: Roles, names: Names, fits: Fits | None = None
) -> list[Operand]:
    """What moves with the rows and a reduction, not with the columns.

    fits: which values may be operands; None: those that ask nothing at run time.
    """
    assert roles.rows is not None
    others = frozenset(band.variables) - {roles.rows, *outer_loops(band, roles)}
    return _operands(kernel, band, band.loop(roles.rows), others, names, fits)


def own_operands(kernel: Kernel, band: Band, roles: Roles, names: Names) -> list[Operand]:
    """What moves with the rows and a reduction, maybe with other loops, not with the columns."""
    assert roles.rows is not None
    return _operands(kernel, band, band.loop(roles.rows), frozenset((roles.columns,)), names)


def _is_at_hand(kernel: Kernel, x: Operand) -> bool:
    """An element whose neighbour is the next step's, or several that lie side by side."""
    value, last = packed_run(x.value) or x.value, x.inner_by_memory[-1].variable
    if not isinstance(value, Read):
        return False
    step = stride(kernel.buffer(value.tensor), value.subscripts, last)
    return step == ONE * elements_of(x.value)


def _operands(
    kernel: Kernel,
    band: Band,
    side: Loop,
    others: frozenset[str],
    names: Names,
    fits: Fits | None = None,
) -> list[Operand]:
    written = {a.buffer for a in accesses(band.body) if a.written}
    places: dict[Expr, tuple[Loop, ...]] = {}
    unequal: set[Expr] = set()
    for x, around in reductions(band.body):
        inner = frozenset(y.variable for y in around)
        for part in _parts(x.value, side.variable, inner, others, fits or _is_plain):
            if places.setdefault(part, around) != around:
                unequal.add(part)
    found: list[Operand] = []
    for part, around in places.items():
        tensors = {r.tensor for r in loads(part)}
        loops = _inner_loops(part, side, around)
        if part not in unequal and not tensors & written and loops:
            stem = loads(part)[0].tensor
            found.append(Operand(part, side, loops, names.fresh(f"{stem}_panel")))
    return found


def _parts(
    v: Value, side: str, inner: frozenset[str], others: frozenset[str], fits: Fits
) -> tuple[Expr, ...]:
    """Largest always-evaluated values that move with `side` and `inner`, and not with `others`."""

    def below(x: Value) -> tuple[Value, ...]:
        used = value_variables(x)
        return _evaluated(x) if side in used and used & others else ()

    def is_part(x: Value) -> bool:
        used = value_variables(x)
        return side in used and not used & others and bool(used & inner) and fits(x)

    return tuple(filter(is_part, leaves(v, below)))  # type: ignore[arg-type]


def _evaluated(v: Value) -> tuple[Value, ...]:
    match v:
        case Binary(op, a, b) if op not in ("and", "or"):
            return a, b
        case Select(c):
            return (c,)
        case Cast() | Unary() | Call():
            return value_children(v)
    return ()


def _is_plain(v: Value) -> bool:
    """Has a load, and neither run-time checks nor gathers."""
    reads = loads(v)
    checked = any(
        any(r.checked) or r.unwritten or not all(isinstance(s, Index) for s in r.subscripts)
        for r in reads
    )
    exact = any(isinstance(x, Binary | Cast) and x.exact for x in subvalues(v))
    return bool(reads) and not checked and not exact


def _inner_loops(part: Expr, side: Loop, around: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Reduction loops of the panel; () if bounds move."""
    used = value_variables(part)
    inner = tuple(x for x in around if x.variable in used)
    moving = {x.variable for x in around} | {side.variable}
    if any((x.lower.variables() | x.upper.variables()) & moving for x in inner):
        return ()
    return inner


# ---- half precision


def widened_terms(kernel: Kernel, nest: str) -> Kernel:
    """Terms of half type in float32, where they are accumulated so."""

    def widen(x: Node) -> Node:
        return widened_term(x) if isinstance(x, Update) else x

    body = replace_loop(kernel.body, nest, lambda loop: map_node(loop, widen))
    return replace(kernel, body=body)


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
