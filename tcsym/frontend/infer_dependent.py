# SPDX-License-Identifier: Apache-2.0
"""Ranges whose ends use other index variables -> what they mean for the rest (LANGUAGE F2, F3).

For inference an index with such a range is replaced by its worst end, where that is affine; then
the demand bounds the variables of that end. Else it counts with the hull of its range, once that is
known. What a range that reads tensors moves is `ragged`: nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from tcsym.frontend.infer_forms import Interval, bound, sign, split
from tcsym.frontend.program import Given
from tcsym.frontend.resolved import Variable
from tcsym.index.expr import Index, Max, Min, of_atom
from tcsym.index.values import substitute


class _HasVariable(Protocol):
    @property
    def variable(self) -> str: ...

    @property
    def lower(self) -> Index: ...

    @property
    def upper(self) -> Index: ...


R = TypeVar("R", bound=_HasVariable)


def inside_out(ranges: Sequence[R]) -> tuple[R, ...]:
    """Each range before those of the variables that its ends use: an order of elimination."""
    depth: dict[str, int] = {}
    for r in ranges:  # a range stands behind what its ends use
        used = (r.lower.variables() | r.upper.variables()) & depth.keys()
        depth[r.variable] = 1 + max((depth[v] for v in used), default=-1)
    return tuple(sorted(ranges, key=lambda r: -depth[r.variable]))


def ragged(ranges: Sequence[_HasVariable], given: Sequence[Given]) -> frozenset[str]:
    """What is given, and the index variables whose ranges depend on it."""
    names = {g.name for g in given}
    for r in ranges if names else ():
        if names & (r.lower.variables() | r.upper.variables()):
            names.add(r.variable)
    return frozenset(names)


def hull(i: Interval, scope: Sequence[Interval], positive: frozenset[str]) -> Interval | None:
    """The least of its lower ends and the greatest of its upper ones, over `scope`."""
    names = {x.variable for x in scope}
    if names.isdisjoint(i.lower.variables() | i.upper.variables()):
        return i
    lower = bound(i.lower, scope, False, positive)
    last = bound(i.upper - 1, scope, True, positive)
    return None if lower is None or last is None else Interval(i.variable, lower, last + 1)


def loop_hulls(loops: Sequence[Interval], positive: frozenset[str]) -> tuple[Interval, ...]:
    """Loops, outermost first, with hulls for ends that are not affine in the loops around."""
    found: list[Interval] = []
    for i in loops:
        around = {x.variable for x in found}
        plain = all(isinstance(a, str) or not _mentions(a, around) for a in _atoms(i))
        wide = None if plain else hull(i, tuple(reversed(found)), positive)
        found.append(wide or i)
    return tuple(found)


def _atoms(i: Interval) -> Iterator[object]:
    return (a for e in (i.lower, i.upper) for a, _ in e.terms)


def _mentions(atom: object, names: set[str]) -> bool:
    return not names.isdisjoint(of_atom(atom).variables())  # type: ignore[arg-type]


def at_worst_ends(
    e: Index, dependent: Mapping[str, Variable], names: frozenset[str]
) -> Iterator[Index]:
    """e >= 0 at every point, for a worst end of each dependent variable that has an affine one."""
    for name in reversed(tuple(dependent)):  # inner ones first
        if name not in e.variables():
            continue
        parts = split(e, name)
        direction = None if parts is None else sign(parts[0])
        where = dependent[name].where
        if parts is None or direction is None or where is None:
            continue
        end = where[0] if direction > 0 else where[1] - 1
        ends = _arms(end, Min if direction > 0 else Max)
        if all(_is_linear(x, names) for x in ends):
            for x in ends:
                yield from at_worst_ends(substitute(e, {name: x}), dependent, names)
            return
    yield e


def _arms(e: Index, kind: type[Min] | type[Max]) -> tuple[Index, ...]:
    if len(e.terms) == 1 and isinstance(e.terms[0][0], kind) and e.terms[0][1] == 1:
        return tuple(x + e.constant for x in e.terms[0][0].args)
    return (e,)


def _is_linear(e: Index, names: frozenset[str]) -> bool:
    return all(split(e, v) is not None for v in names & e.variables())


def dependents(variables: Sequence[Variable]) -> dict[str, Variable]:
    """Variables whose ranges use other index variables, in the order of the variables."""
    names = {v.name for v in variables}
    return {
        v.name: v for v in variables if v.where is not None and not names.isdisjoint(_used(v.where))
    }


def _used(ends: tuple[Index, Index]) -> frozenset[str]:
    return ends[0].variables() | ends[1].variables()
