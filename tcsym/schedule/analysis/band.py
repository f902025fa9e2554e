# SPDX-License-Identifier: Apache-2.0
"""Bands of parallel loops around reductions, and the roles their loops play in contractions."""

from __future__ import annotations

from msgspec import Struct

from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    IndexValue,
    Read,
    Select,
    Unary,
)
from tcsym.index.expr import ONE
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Shuffle,
    Store,
    Update,
    Value,
)
from tcsym.ir.packed import is_dot
from tcsym.ir.traverse import loads, value_children
from tcsym.schedule.analysis.access import Subscripts, stride, subscript_variables
from tcsym.schedule.analysis.cost import PLAIN, function_cost
from tcsym.schedule.analysis.loops import chain_of, statements_in
from tcsym.trees import preorder

MOST_OPERATIONS = 6  # of a light term


class Band(Struct, frozen=True):
    """A perfect chain of parallel loops and what is inside."""

    loops: tuple[Loop, ...]
    body: Node

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(x.variable for x in self.loops)

    def loop(self, variable: str) -> Loop:
        return next(x for x in self.loops if x.variable == variable)


class Roles(Struct, frozen=True):
    """columns: the loop that runs in vectors. rows: the loop unrolled over, if any.

    `streamed`: reads that move with the columns and the reduction but not with the rows, so that
    every row uses them again: worth packing.
    """

    columns: str
    rows: str | None
    streamed: tuple[Read, ...]


def band_of(top: Loop) -> Band:
    """The parallel loops from `top` down, as far as they nest perfectly."""
    loops: list[Loop] = []
    for loop in chain_of(top):
        if loop.order != "parallel" or loop.kind != "serial":
            break
        loops.append(loop)
    return Band(tuple(loops), loops[-1].body if loops else top)


def reductions(body: Node) -> tuple[tuple[Update, tuple[Loop, ...]], ...]:
    """Updates inside loops of `body`, with those loops."""
    return tuple((x, a) for x, a in statements_in(body) if isinstance(x, Update) and a)


def factors(x: Update) -> tuple[Read, ...]:
    """The loads that a contraction's term combines; empty if the term is none of a contraction.

    That is a product which is summed, or a few light operations on what any operator reduces:
    a distance, a sum under a maximum, a comparison that is counted. Sums of sums are none, as
    their parts are summed apart.
    """
    value = _uncast(x.value)
    if not (is_product(x) or _is_light_term(x.op, value)):
        return ()
    return tuple(dict.fromkeys(loads(value)))


def is_product(x: Update) -> bool:
    """A sum's term that is a product, or a dot product."""
    value = _uncast(x.value)
    return x.op == "add" and (is_dot(value) or (isinstance(value, Binary) and value.op == "mul"))


def is_fused(x: Update, columns: str, rows: str) -> bool:
    """A product that is added by the instruction that makes it: what moves with rows, and what
    moves with columns, meet there first."""
    if not is_product(x):
        return False
    sides = (_variables_of(f) for f in value_children(_uncast(x.value)))
    return not any(columns in used and rows in used for used in sides)


def _variables_of(v: Value) -> frozenset[str]:
    return frozenset[str]().union(*(subscript_variables(r.subscripts) for r in loads(v)))


def _uncast(v: Value) -> Value:
    while isinstance(v, Cast):
        v = v.operand
    return v


def _is_light_term(op: str, value: Value) -> bool:
    if op == "add" and isinstance(value, Binary) and value.op in ("add", "sub"):
        return False
    several = isinstance(value, Binary | Compare | Call)
    return several and _operations(value) <= MOST_OPERATIONS


def _operations(v: Value) -> int:
    """How many; too many if one is not light, loads under a condition, or may fault."""
    return sum(map(_own_operations, preorder(v, _operands)))


def _operands(v: Value) -> tuple[Value, ...]:
    return () if isinstance(v, Read | Select | HorizontalReduce | Shuffle) else value_children(v)


def _own_operations(v: Value) -> int:
    match v:
        case Read() | Const() | IndexValue():
            return 0
        case Cast() | Unary() | Compare():
            return 1
        case Binary(op):
            return 1 if op not in ("div", "mod") else MOST_OPERATIONS + 1
        case Call(function):
            return 1 if function_cost(function) <= PLAIN else MOST_OPERATIONS + 1
        case _:
            return MOST_OPERATIONS + 1


def contraction_roles(kernel: Kernel, band: Band) -> Roles | None:
    """Roles in which rows reuse what the columns stream, or None: no contraction."""
    if not any(factors(x) for x, _ in reductions(band.body)):
        return None
    found = (roles_along(kernel, band, v) for v in _column_candidates(kernel, band))
    return next((r for r in found if r is not None), None)


def roles_along(kernel: Kernel, band: Band, columns: str) -> Roles | None:
    """Those with the best rows for these columns."""
    found = (roles_of(band, columns, rows) for rows in _row_candidates(kernel, band, columns))
    return next((r for r in found if r is not None), None)


def roles_of(band: Band, columns: str, rows: str) -> Roles | None:
    """Those with these columns and rows, if such rows use again what the columns stream."""
    updates = reductions(band.body)
    terms = [(x, around) for x, around in updates if factors(x)]
    streamed = _streamed(terms, columns, rows) if terms and rows != columns else ()
    return Roles(columns, rows, streamed) if streamed else None


def _streamed(
    terms: list[tuple[Update, tuple[Loop, ...]]], columns: str, rows: str
) -> tuple[Read, ...]:
    """Reads with columns and without rows, if every term has one, and one the other way round."""
    found: dict[Read, None] = {}
    for x, around in terms:
        inner = {y.variable for y in around}
        used = {r: subscript_variables(r.subscripts) for r in factors(x)}
        mine = [r for r, v in used.items() if columns in v and rows not in v and v & inner]
        other = [r for r, v in used.items() if rows in v and columns not in v]
        if not mine or not other:
            return ()
        found.update(dict.fromkeys(mine))
    return tuple(found)


def _column_candidates(kernel: Kernel, band: Band) -> list[str]:
    """Loops of the band, best first: unit stride of stores, then of loads, then innermost."""

    def score(v: str) -> tuple[int, int, int]:
        stores = loads_ = 0
        for x, _ in statements_in(band.body):
            if isinstance(x, Store):
                stores += _is_unit(kernel, x.buffer, x.subscripts, v)
            loads_ += sum(_is_unit(kernel, r.tensor, r.subscripts, v) for r in loads(x.value))
        return stores, loads_, band.variables.index(v)

    return sorted(band.variables, key=score, reverse=True)


def _row_candidates(kernel: Kernel, band: Band, columns: str) -> list[str]:
    """Loops of the band, best first: points of several sizes, then rows that lie side by side in
    what they load, then innermost.

    A loop of several sizes rarely is short. The elements of a register tile's rows are then
    neighbours, however far its steps are apart.
    """

    def score(v: str) -> tuple[int, int, int]:
        read = [r for x, _ in reductions(band.body) for r in factors(x)]
        moving = [r for r in read if columns not in subscript_variables(r.subscripts)]
        return (
            len(extent(band.loop(v)).variables()),
            sum(_is_unit(kernel, r.tensor, r.subscripts, v) for r in moving),
            band.variables.index(v),
        )

    return sorted(band.variables, key=score, reverse=True)


def _is_unit(kernel: Kernel, buffer: str, subscripts: Subscripts, v: str) -> int:
    b = kernel.buffer(buffer)
    if b.space != "argument" and v in b.private:
        return 0
    return int(stride(b, subscripts, v) == ONE)
