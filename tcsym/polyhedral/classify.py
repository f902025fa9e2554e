# SPDX-License-Identifier: Apache-2.0
"""Statement -> its role in a nest: contraction, lane reduction, or plain.

Fusion and order of loops depend on it (DESIGN 8.2): a legal fusion over a contraction's reduction
loop destroys the contraction.
"""

from __future__ import annotations

from itertools import combinations

from tcsym.frontend.program import variables_of
from tcsym.index.expr import Index
from tcsym.polyhedral.scop import ScopStatement


def contracted(s: ScopStatement) -> frozenset[str]:
    """Reduction iterators of a contraction: two reads share one, each has an own parallel one.

    Empty for everything else (a matrix-vector product is a row reduction).
    """
    if s.role != "update" or not s.reduced:
        return frozenset()
    parallel = frozenset(r.variable for r in s.ranges if not r.reduced)
    used = [
        frozenset[str]().union(*(i.variables() for i in a.subscripts if i is not None))
        for a in s.reads
        if a.tensor != s.target
    ]
    for a, b in combinations(used, 2):
        if a & b & s.reduced and (a - b) & parallel and (b - a) & parallel:
            return s.reduced
    return frozenset()


def loop_order(s: ScopStatement) -> tuple[str, ...]:
    """Iterators of `s` below its `for` loops, outermost first.

    Parallel ones as on the left-hand side, then reduction ones, those that run along the last
    dimension of a read innermost, if it moves with as many of them as any. Of a scattered statement
    those that move its positions come first, in that order, then the positions.
    """
    moved = moving(s)
    left = [v for x in s.subscripts for v in x.variables()]
    parallel = [r.variable for r in s.ranges if r.variable not in s.reduced]
    parallel.sort(key=lambda v: left.index(v) if v in left else len(left))
    reduced = [r.variable for r in s.ranges if r.variable in s.reduced]
    reads = _read_most(s)
    reduced.sort(key=lambda v: _runs_along_last_dimension(reads, v))
    if not s.positions:
        return (*parallel, *reduced)
    first = [v for v in (*parallel, *reduced) if v in moved]
    rest = [v for v in (*parallel, *reduced) if v not in s.positions and v not in moved]
    positions = [v for v in parallel if v in s.positions]
    return (*_behind_their_ranges(s, first), *positions, *_behind_their_ranges(s, rest))


def _behind_their_ranges(s: ScopStatement, order: list[str]) -> list[str]:
    """The order, but for iterators before others that their ranges use."""
    found: list[str] = []
    while len(found) < len(order):
        left = [v for v in order if v not in found]
        found.append(next(v for v in left if s.follows(v).isdisjoint(left)))
    return found


def moving(s: ScopStatement) -> frozenset[str]:
    """Iterators that the positions of a scattered statement depend on, by their ranges too, and
    those that other ranges use: in front of a position is said whether it has points. What is read
    for ranges is not known there. None of any other statement."""
    if all(r.at is None for r in s.ranges):
        return frozenset()
    given = {g.name for g in s.given}
    places = (variables_of(r.at) for r in s.ranges if r.at is not None)
    ragged = {r.variable for r in s.ranges if (r.lower.variables() | r.upper.variables()) & given}
    used = frozenset(ragged).union(*places, *map(s.follows, s.iterators))
    found = used & frozenset(s.iterators)
    while more := frozenset[str]().union(*map(s.follows, found)) - found:
        found |= more
    return found


def _read_most(s: ScopStatement) -> list[tuple[Index | None, ...]]:
    """Subscripts of the reads that most reduction iterators move: of a row's elements, not of what
    scales parts of it."""
    found = [a.subscripts for a in s.reads if a.tensor != s.target]
    moved = [
        len(s.reduced & frozenset[str]().union(*(i.variables() for i in x if i is not None)))
        for x in found
    ]
    return [x for x, n in zip(found, moved) if n == max(moved)]


def _runs_along_last_dimension(reads: list[tuple[Index | None, ...]], v: str) -> int:
    """How many reads have `v` with stride 1 in their last subscript and nowhere else."""
    count = 0
    for subscripts in reads:
        if not subscripts or (last := subscripts[-1]) is None:
            continue
        elsewhere = any(i is not None and v in i.variables() for i in subscripts[:-1])
        count += not elsewhere and last.coefficient(v) == 1
    return count


def innermost(s: ScopStatement) -> str:
    """The parallel iterator with stride 1 on the left, if there is one."""
    found = s.iterator(s.subscripts[-1]) if s.subscripts else None
    return "" if found is None or any(found == r.variable for r in s.outer) else found
