# SPDX-License-Identifier: Apache-2.0
"""Accesses of one statement -> the ranges of its index variables, in rounds (LANGUAGE A20, A21).

Each subscript `e` over an extent `E` demands e >= 0 and E - 1 - e >= 0. In a round, every demand
with exactly one unresolved variable, the others at their worst case, bounds that variable; a
variable with both bounds is resolved at the end of the round. Quotients, minima and choices of
index or loop variables, and gathers, say nothing (B3, B4). A size may multiply a variable: `S*i +
r < N` gives i < (N - 1 - r)/S + 1 and the demand S >= 1. A demand whose coefficient has no known
sign says nothing.

Example: X(i + k) over N with 0 <= k < K gives 0 <= i < N - K + 1.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec import Struct, field

from tcsym.errors import RangeError
from tcsym.frontend.infer_dependent import (
    at_worst_ends,
    dependents,
    hull,
    loop_hulls,
    ragged,
)
from tcsym.frontend.infer_facts import Facts
from tcsym.frontend.infer_forms import Interval, extreme, sign, split
from tcsym.frontend.infer_messages import plain
from tcsym.frontend.infer_paths import Path
from tcsym.frontend.program import Given
from tcsym.frontend.resolved import Variable
from tcsym.index.expr import ZERO, Atom, Index, Product, ceildiv, floordiv, of_atom


class Demand(Struct, frozen=True):
    """`e >= 0` must hold at every point; `variables`: the index variables it mentions."""

    e: Index
    variables: frozenset[str]


def demands(
    subscripts: Iterable[Index], extents: Iterable[Index], path: Path, names: frozenset[str]
) -> list[Demand]:
    """What an access asks of the index variables `names`, less what its guards imply (C7)."""
    found = []
    for subscript, extent in zip(subscripts, extents, strict=True):
        mentioned = subscript.variables() & names
        if mentioned:
            sides = (subscript, extent - 1 - subscript)
            found += [Demand(e, mentioned) for e in sides if not path.implies(e)]
    return found


class Bounds(Struct):
    """Bounds collected for one variable in one round."""

    lower: list[Index] = field(default_factory=list)
    upper: list[Index] = field(default_factory=list)


class Ranges(Struct, frozen=True):
    """Intervals in the order of the statement's variables; `strides` must be >= 1."""

    intervals: tuple[Interval, ...]
    strides: tuple[Index, ...]


def resolve_ranges(
    variables: Sequence[Variable],
    needs: Sequence[Demand],
    loops: Sequence[Interval],
    facts: Facts,
    given: Sequence[Given] = (),
) -> Ranges:
    """Ranges of all `variables`; `loops` are the enclosing loops, outermost first.

    Raises RangeError at the first variable that no rule bounds.
    """
    waiting = dependents(variables)
    plain = [v for v in variables if v.where is not None and v.name not in waiting]
    exact = {v.name: Interval(v.name, *v.where) for v in variables if v.where is not None}
    known = {v.name: exact[v.name] for v in plain}
    needs = _at_worst(needs, waiting, variables, ragged(tuple(exact.values()), given))
    loops = loop_hulls(loops, facts.positive)
    strides: dict[Index, None] = {}
    while any(v.where is None and v.name not in known for v in variables):
        open_ = {v.name: v for v in variables if v.where is None and v.name not in known}
        _add_hulls(waiting, open_, known, facts)
        scope = [*known.values(), *reversed(loops)]
        unknown = open_.keys() | (waiting.keys() - known.keys())
        found = {n: Bounds(lower=[] if v.reduced else [ZERO]) for n, v in open_.items()}
        for need in needs:
            unresolved = need.variables & unknown
            if len(unresolved) == 1 and unresolved <= open_.keys():
                (name,) = unresolved
                _solve(need.e, name, scope, found[name], strides, facts)
        done = {n: b for n, b in found.items() if b.lower and b.upper}
        if not done:
            raise _not_inferable(list(open_.values()))
        for n, b in done.items():
            known[n] = Interval(n, facts.greatest(b.lower), facts.smallest(b.upper))
    return Ranges(tuple((known | exact)[v.name] for v in variables), tuple(strides))


def _at_worst(
    needs: Sequence[Demand],
    waiting: Mapping[str, Variable],
    variables: Sequence[Variable],
    lost: frozenset[str],
) -> Sequence[Demand]:
    """Demands with dependent variables at their worst ends; without those on ragged ones (F3)."""
    if not waiting and not lost:
        return needs
    names = frozenset(v.name for v in variables)
    ends = (e for need in needs for e in at_worst_ends(need.e, waiting, names | lost))
    return [Demand(e, e.variables() & names) for e in ends if lost.isdisjoint(e.variables())]


def _add_hulls(
    waiting: Mapping[str, Variable], open_: Container[str], known: dict[str, Interval], facts: Facts
) -> None:
    """Hulls of the dependent variables whose ends are over known ones now."""
    for name, v in waiting.items():
        if name in known or v.where is None:
            continue
        used = v.where[0].variables() | v.where[1].variables()
        if any(n in open_ or (n in waiting and n not in known) for n in used):
            continue
        wide = hull(Interval(name, *v.where), tuple(known.values()), facts.positive)
        if wide is not None:
            known[name] = wide


def _solve(
    e: Index,
    name: str,
    scope: Sequence[Interval],
    bounds: Bounds,
    strides: dict[Index, None],
    facts: Facts,
) -> None:
    """Add the bound on `name` that e >= 0 gives with the rest of `e` at its least."""
    if _has_opaque(e, {name, *(i.variable for i in scope)}):
        return
    worst = extreme(e, scope, greatest=False, positive=facts.positive)
    parts = None if worst is None else split(worst, name)
    if parts is None:
        return
    a, rest = parts
    n = a.as_int()
    if n is not None:
        if n > 0:
            bounds.lower.append(ceildiv(-rest, n))
        elif n < 0:
            bounds.upper.append(floordiv(rest, -n) + 1)
        return
    direction = sign(a)
    if direction == 1:
        bounds.lower.append(ZERO if rest == ZERO else -floordiv(rest, a))
    elif direction == -1:
        bounds.upper.append(floordiv(rest, -a) + 1)
    if direction == -1 or (direction == 1 and rest != ZERO):
        strides[a * direction] = None


def _has_opaque(e: Index, moving: set[str]) -> bool:
    """True if a variable of `moving` stands inside a quotient, minimum, maximum or choice."""
    return any(_is_opaque(a, moving) for a, _ in e.terms)


def _is_opaque(atom: Atom, moving: set[str]) -> bool:
    if isinstance(atom, str):
        return False
    if isinstance(atom, Product):
        return any(_is_opaque(f, moving) for f in atom.factors)
    inner = of_atom(atom).variables()
    return not moving.isdisjoint(inner)


def _not_inferable(open_: list[Variable]) -> RangeError:
    first = min(open_, key=lambda v: (v.span.line, v.span.column))
    return RangeError(
        f"the range of the index variable `{plain(first.name)}` cannot be inferred: "
        "no access bounds it on both sides",
        span=first.span,
        hint=f"give its range: `where {plain(first.name)} in 0:…`",
    )
