# SPDX-License-Identifier: Apache-2.0
"""Accesses of a placed statement -> proofs, checks on sizes, or checks in the kernel (B3, E6).

Per subscript, cheapest first: the worst case over the ranges or a guard proves it; over a box the
worst case also gives the exact condition on sizes; with guards, conditions or nested loop bounds
isl projects the points outside onto the sizes. Subscripts or guards that depend on data, and
products that isl does not know, are left to the running kernel. Nothing is ever assumed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tcsym.frontend.affine import Meanings, as_index
from tcsym.frontend.infer_facts import Facts
from tcsym.frontend.infer_forms import (
    Interval,
    Scope,
    bound,
    extreme,
    is_nonnegative,
    positive_in,
)
from tcsym.frontend.infer_messages import NARROW, out_of_range
from tcsym.frontend.infer_paths import Path, nonempty
from tcsym.frontend.infer_walk import Placed
from tcsym.frontend.program import Binary, Check, Expr, Given, IndexValue
from tcsym.index.expr import (
    FALSE,
    TRUE,
    ZERO,
    Condition,
    Index,
    Product,
    all_of,
    any_of,
    condition_variables,
    eq,
    ge,
    lt,
    negate,
    var,
)
from tcsym.index.quasi_affine import is_quasi_affine, odd_atoms
from tcsym.index.values import conjuncts
from tcsym.types import DType


class Points(Struct, frozen=True):
    """Executed points of an access: `scope` in order of elimination, and what holds there."""

    scope: tuple[Interval, ...]
    condition: Condition = TRUE
    by_data: bool = False

    @property
    def is_box(self) -> bool:
        """True if the points are a product of intervals that depend on sizes only."""
        names = {i.variable for i in self.scope}
        return self.condition == TRUE and all(
            names.isdisjoint(i.lower.variables() | i.upper.variables()) for i in self.scope
        )

    def constraints(self, kept: frozenset[str]) -> tuple[tuple[str, ...], Condition]:
        """Variables and condition of the points.

        A variable outside `kept` that nothing else mentions is projected out: it matters only by
        its interval being non-empty.
        """
        needed = kept | condition_variables(self.condition)
        names: list[str] = []
        parts = [self.condition]
        for i in reversed(self.scope):
            inner = (
                j for j in self.scope if i.variable in j.lower.variables() | j.upper.variables()
            )
            if i.variable in needed or any(inner):
                names.append(i.variable)
                parts += [ge(var(i.variable), i.lower), lt(var(i.variable), i.upper)]
            else:
                parts.append(nonempty(i.lower, i.upper))
        return tuple(names), all_of(parts)


def points_of(placed: Placed, path: Path, left_only: bool = False) -> Points:
    """Where an access of `placed` happens under the guards of `path`."""
    condition = all_of((*placed.conditions, path.condition))
    lost = placed.ragged
    if lost & condition_variables(condition):
        condition = all_of(c for c in conjuncts(condition) if not lost & condition_variables(c))
    return Points(placed.intervals(left_only), condition, path.by_data or bool(lost))


def points_of_given(placed: Placed, given: Given) -> Points:
    """Where a scalar is read: at every point of what it varies with."""
    own = frozenset(r.variable for r in placed.domain)
    used = given.variables() & own
    grown = frozenset[str]()
    while grown != used:
        grown = used
        ends = (
            r.lower.variables() | r.upper.variables() for r in placed.domain if r.variable in used
        )
        used = used.union(*(x & own for x in ends))
    scope = (i for i in placed.intervals() if i.variable in used or i.variable not in own)
    return Points(tuple(scope), all_of(placed.conditions), bool(used & placed.ragged))


def within(e: Index, extent: Index, points: Points, path: Path, facts: Facts) -> Condition | None:
    """The condition on sizes under which 0 <= e < extent at all `points`, None if not decidable."""
    if _is_plain_index(e, extent, points.scope):
        return TRUE
    positive = facts.positive | positive_in(points.scope)
    sides = [
        side
        for side in (e, extent - 1 - e)
        if not (path.implies(side) or _is_nonnegative(side, points.scope, positive))
    ]
    if not sides:
        return TRUE
    worst = [extreme(side, points.scope, greatest=False, positive=positive) for side in sides]
    corners = [w for w in worst if w is not None]
    condition: Condition | None
    if points.is_box and len(corners) == len(sides):
        condition = _box_condition(points, corners, facts)
    else:
        condition = _projected(points, sides, facts)
    return None if points.by_data and condition != TRUE else condition


def _is_plain_index(e: Index, extent: Index, scope: Scope) -> bool:
    """True for the commonest subscript: a variable that runs over the whole dimension."""
    if len(e.terms) != 1 or e.constant or e.terms[0][1] != 1:
        return False
    name = e.terms[0][0]
    return any(i.variable == name and i.upper == extent and i.lower == ZERO for i in scope)


def _is_nonnegative(e: Index, scope: Scope, positive: frozenset[str]) -> bool:
    """A quick proof of e >= 0 at the points of `scope`, where every size of `positive` is >= 1."""
    least = bound(e, scope, greatest=False, positive=positive)
    return least is not None and is_nonnegative(least, positive)


def _box_condition(points: Points, worst: list[Index], facts: Facts) -> Condition:
    """Exact for a box: it is empty, or its worst corner is inside."""
    empty = [negate(nonempty(i.lower, i.upper)) for i in points.scope]
    return facts.decide(any_of([*empty, all_of(ge(w, 0) for w in worst)]))


def _projected(points: Points, sides: list[Index], facts: Facts) -> Condition | None:
    enough, is_exact = _enough(points, sides, facts)
    return enough if is_exact else None


def _enough(points: Points, sides: list[Index], facts: Facts) -> tuple[Condition, bool]:
    """A condition on sizes under which all sides are >= 0 at all points; whether it is the least:
    points outside may be fewer than isl thinks."""
    used = frozenset[str]().union(*(s.variables() for s in sides))
    names, where = points.constraints(used)
    outside = all_of((where, any_of(negate(ge(s, 0)) for s in sides)))
    bad = facts.presburger.set("", names, outside).params()
    if bad.is_empty():
        return TRUE, True
    is_exact = not points.by_data and is_quasi_affine(outside, facts.sizes)
    return facts.simplify(facts.size_set().subtract(bad)), is_exact


def _surely(side: Index, points: Points, facts: Facts) -> Condition:
    """A condition on sizes under which `side` is >= 0: where its worst case over the ranges is, or
    where isl sees no point that it is not. What is at least -1 and not -1 is >= 0."""
    if negate(eq(side, -1)) in conjuncts(points.condition):
        side = side + 1
    least = extreme(side, points.scope, False, facts.positive)
    worst = FALSE if least is None else ge(least, 0)
    return any_of((worst, _enough(points, [side], facts)[0]))


# ---- checks


def read_bounds(
    tensor: str,
    subscripts: Sequence[Index | None],
    shape: Sequence[Index],
    points: Points,
    path: Path,
    facts: Facts,
) -> tuple[list[tuple[int, Condition]], tuple[bool, ...]]:
    """Conditions on sizes by dimension where not proved; which dimensions the kernel checks."""
    conditions: list[tuple[int, Condition]] = []
    checked = []
    for d, (e, extent) in enumerate(zip(subscripts, shape, strict=True)):
        condition = None if e is None else within(e, extent, points, path, facts)
        checked.append(condition is None)
        if condition is not None and condition != TRUE:
            conditions.append((d, condition))
    return conditions, tuple(checked)


def write_checks(
    placed: Placed, shape: Sequence[Index], adds: Expr | None, facts: Facts
) -> list[Check]:
    """All elements written must exist; scattered ones where `adds` holds, as far as it is affine.

    A fixed position that isl cannot follow is held to what surely is enough: its worst case over
    the loops, or what isl knows of it.
    """
    s = placed.statement
    left = points_of(placed, Path(), left_only=placed.defines)
    positions = {var(v.name): v.at for v in s.positions}
    guarded = Path() if adds is None else Path(Path().where(Meanings().of(adds), True).condition)
    all_points = points_of(placed, guarded)
    found = []
    for d, (e, extent) in enumerate(zip(s.subscripts, shape, strict=True)):
        at = positions.get(e, e)
        if not isinstance(at, Index):
            continue  # the kernel checks it
        points, path = (left, Path()) if at is e else (all_points, guarded)
        e = at
        condition = within(e, extent, points, path, facts)
        if condition is None:
            inside = all_of(_surely(side, points, facts) for side in (e, extent - 1 - e))
            condition = facts.decide(inside)
        if condition != TRUE:
            message = out_of_range(s.target, d, e, extent, condition)
            found.append(Check("bounds", condition, message, NARROW, s.span))
    return found


# ---- values


def product_of_sizes(e: Binary | IndexValue, facts: Facts) -> Index | None:
    """The exact value of `e`, if it is an int32 computed of sizes alone, with products of them.

    Sums alone reach 2**31 only where a size nearly does.
    """
    if e.dtype is not DType.INT32:
        return None
    if isinstance(e, Binary) and (e.op not in ("add", "sub", "mul") or as_index(e.right) is None):
        return None  # a long sum is looked through only where it ends in a size
    value = as_index(e)
    if value is None or not value.variables() <= frozenset(facts.sizes):
        return None
    return value if any(isinstance(x, Product) for x in odd_atoms(value)) else None


def in_int32(value: Index, placed: Placed, path: Path) -> Condition:
    """That `value` fits, where guards do not say so."""
    known = Path(all_of((*placed.conditions, path.condition)))
    sides = (DType.INT32.highest - value, value - DType.INT32.lowest)
    return all_of(ge(s, 0) for s in sides if not (known.implies(s) or is_nonnegative(s)))
