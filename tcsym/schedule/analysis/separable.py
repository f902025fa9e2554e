# SPDX-License-Identifier: Apache-2.0
"""Reductions over windows of one operand: which have two parts, and what these are.

The term must use the row in subscripts of its own. One side of the window, `first`, moves in no
subscript that the row moves in; so what is reduced over it serves all windows of the row.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from tcsym.frontend.program import Binary, IndexValue, Read
from tcsym.index.expr import Index, condition_variables
from tcsym.ir.bounds import eliminate, extent
from tcsym.ir.loops import Holds, Kernel, Loop, Update
from tcsym.ir.traverse import loads, subvalues
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.band import Band
from tcsym.schedule.analysis.loops import chain_of, children

FEW_TERMS = 4  # of a window that is one expression
MOST_STEP = 4  # between windows of unknown length, of which few columns are used


class Side(Struct, frozen=True):
    """A subscript of the operand that moves along the row: its least value and its extent."""

    subscript: Index
    low: Index
    n: Index


class Separable(Struct, frozen=True):
    """`update`, in the loops `around`, of which `first` can be done once for all of `inner`."""

    update: Update
    around: tuple[Loop, ...]
    first: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    sides: tuple[Side, ...]

    @property
    def second(self) -> tuple[Loop, ...]:
        return tuple(x for x in self.around if x not in self.first)


def is_small(one: Separable) -> bool:
    """So few terms, side by side or nearly so, that rows for one side would cost more."""
    trips = [extent(x).as_int() for x in one.around]
    near = all(abs(s.subscript.coefficient(x.variable)) <= 2 for s in one.sides for x in one.inner)
    return near and all(trips) and prod(n or 0 for n in trips) <= FEW_TERMS


def separable(kernel: Kernel, band: Band) -> tuple[Separable, ...]:
    """Every reduction of the band's body in two parts, for the fewest inner loops; else none."""
    tops = [x for x in children(band.body) if isinstance(x, Loop)]
    chains = [chain_of(x) for x in tops]
    written = {a.buffer for a in accesses(band.body) if a.written}
    for p in range(len(band.loops) - 1, 0, -1):
        found = [_parts(x, band.loops[p:], band.loops[:p], written, kernel) for x in chains]
        known = tuple(x for x in found if x is not None)
        if known and len(known) == len(found):
            return known
    return ()


def _parts(
    chain: tuple[Loop, ...],
    inner: tuple[Loop, ...],
    outer: tuple[Loop, ...],
    written: set[str],
    kernel: Kernel,
) -> Separable | None:
    update = chain[-1].body
    if not isinstance(update, Update) or any(x.order != "reduction" for x in chain):
        return None
    row = {x.variable for x in inner}
    sliding = [s for s in _subscripts(update) if s.variables() & row]
    second = tuple(x for x in chain if any(x.variable in s.variables() for s in sliding))
    first = tuple(x for x in chain if x not in second)
    moving = row | {x.variable for x in second}
    others = {x.variable for x in (*first, *outer)}
    alone = any(s.variables() & moving and s not in sliding for s in _subscripts(update))
    if alone or not _is_free(update, moving, others, written) or not first or not second:
        return None
    sides = _sides(sliding, inner, second, frozenset(kernel.sizes))
    one = sides and Separable(update, chain, first, inner, sides)
    return one if one and _pays(one) else None


def _subscripts(update: Update) -> tuple[Index, ...]:
    found = (s for r in loads(update.value) for s in r.subscripts)
    return tuple(dict.fromkeys(s for s in found if isinstance(s, Index)))


def _is_free(update: Update, moving: set[str], others: set[str], written: set[str]) -> bool:
    """The term uses the row only in subscripts of its own, and nothing that the nest makes."""
    for x in subvalues(update.value):
        if isinstance(x, IndexValue) and x.index.variables() & moving:
            return False
        if isinstance(x, Holds) and condition_variables(x.condition) & moving:
            return False
        if isinstance(x, Read) and not _is_plain(x, written):
            return False
        if isinstance(x, Binary) and x.op == "mul" and len(set(loads(x))) > 1:
            return False  # weights: a contraction, or a window that is not of one operand
    return all(not s.variables() & others for s in _subscripts(update) if s.variables() & moving)


def _is_plain(r: Read, written: set[str]) -> bool:
    unchecked = r.unwritten is None and not any(r.checked)
    indices = all(isinstance(s, Index) for s in r.subscripts)
    return unchecked and indices and r.tensor not in written


def _sides(
    sliding: list[Index], inner: tuple[Loop, ...], second: tuple[Loop, ...], sizes: frozenset[str]
) -> tuple[Side, ...] | None:
    """One for each subscript, in the order of the inner loops; None if they share a loop."""
    loops = (*inner, *second)
    bounds = (e for x in loops for e in (x.lower, x.upper))
    if any(not e.variables() <= sizes for e in bounds):
        return None
    sides: list[Side] = []
    for x in inner:
        own = [s for s in sliding if x.variable in s.variables()]
        if len(own) > 1 or any(own[0] == y.subscript for y in sides if own):
            return None
        if not own:
            continue
        low, high = eliminate(own[0], loops, False), eliminate(own[0], loops, True)
        if low is None or high is None or not (low.variables() | high.variables()) <= sizes:
            return None
        sides.append(Side(own[0], low, high - low + 1))
    alone = all(sum(x.variable in s.subscript.variables() for s in sides) == 1 for x in second)
    return tuple(sides) if sides and alone else None


def _pays(one: Separable) -> bool:
    """Few columns are made that no window uses, and both sides have some length."""
    for x in one.inner:
        for s in (y.subscript for y in one.sides):
            step = s.coefficient(x.variable)
            used = prod(extent(y).as_int() or MOST_STEP for y in one.second)
            if x.variable in s.variables() and not 0 < step <= max(2 * used, MOST_STEP):
                return False
    sizes = [prod(extent(y).as_int() or 2 for y in part) for part in (one.first, one.second)]
    return min(sizes) > 1
