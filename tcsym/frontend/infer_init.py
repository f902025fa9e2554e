# SPDX-License-Identifier: Apache-2.0
"""Which elements are written before each read: proofs, conditions on sizes or per point.

Two levels. `Written` is what plain reading of the text shows: whole tensors and slabs at a fixed
position (`h(t, :, :)`) written on every way to this place. It settles the usual program without
isl. `Initialised` is exact: from the points of a read it subtracts, for each defining statement,
the points whose element an earlier instance wrote; "earlier" is the order of statement instances,
the common loops compared lexicographically, then text order (a 2d+1 schedule).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import islpy as isl
from msgspec import Struct

from tcsym.frontend.infer_bounds import Points
from tcsym.frontend.infer_extents import Extents, index_variable_at
from tcsym.frontend.infer_facts import Facts
from tcsym.frontend.infer_forms import Interval, split
from tcsym.frontend.infer_walk import Node, Placed, placed_statements
from tcsym.index.expr import (
    ONE,
    TRUE,
    Atom,
    Condition,
    Index,
    all_of,
    atom_text,
    eq,
    ge,
    lt,
    of_atom,
    var,
)
from tcsym.index.quasi_affine import is_quasi_affine, odd_atoms
from tcsym.index.values import condition_substitute, map_atoms, map_condition, substitute

Place = tuple[Index | None, ...]
"""Per dimension a position, or None for all of them."""


# ---- what plain reading shows


class Written(Struct, frozen=True):
    """Slabs that are completely written whenever control is here: (tensor, place)."""

    slabs: frozenset[tuple[str, Place]] = frozenset()

    @staticmethod
    def whole(tensors: Iterable[tuple[str, int]]) -> Written:
        """All elements of tensors with these names and ranks."""
        return Written(frozenset((name, (None,) * rank) for name, rank in tensors))

    def covers(self, tensor: str, subscripts: Place) -> bool:
        """True if every element of `tensor` at `subscripts` (within its extents) is written."""
        if (tensor, (None,) * len(subscripts)) in self.slabs:
            return True
        return any(
            name == tensor
            and all(s is None or s == e for s, e in zip(slab, subscripts, strict=True))
            for name, slab in self.slabs
        )

    def after(self, placed: Placed, shape: Sequence[Index], facts: Facts) -> Written:
        """With what `placed` surely writes; an interval short of its dimension adds nothing."""
        if not placed.surely_writes:
            return self
        place: list[Index | None] = []
        for d, extent in enumerate(shape):
            name = index_variable_at(placed.statement, d)
            if name is None:
                place.append(placed.statement.subscripts[d])
                continue
            r = next(r for r in placed.domain if r.variable == name)
            if not _spans(r.lower, r.upper, extent, facts):
                return self
            place.append(None)
        return Written(self.slabs | {(placed.statement.target, tuple(place))})

    def either(self, other: Written) -> Written:
        return Written(self.slabs & other.slabs)

    def leave(self, loop: Interval, inside: Written, extents: Extents) -> Written:
        """After the loop whose body ends in `inside`: what holds anyway or every iteration adds to.

        A slab at position t + c, with t over the whole dimension, is the whole dimension.
        """
        kept = set(self.slabs)
        facts = extents.facts
        runs = facts.is_nonnegative(loop.upper - loop.lower - 1)
        for tensor, place in inside.slabs - self.slabs:
            moving = [d for d, e in enumerate(place) if e and loop.variable in e.variables()]
            if not moving and runs:
                kept.add((tensor, place))
            if len(moving) == 1 and (e := place[moving[0]]) is not None:
                extent = extents.shape(tensor)[moving[0]]
                if _sweeps(e, loop, extent, facts):
                    whole = (*place[: moving[0]], None, *place[moving[0] + 1 :])
                    kept.add((tensor, whole))
        return Written(frozenset(kept))


def _spans(lower: Index, upper: Index, extent: Index, facts: Facts) -> bool:
    return facts.is_nonnegative(-lower) and facts.is_nonnegative(upper - extent)


def _sweeps(e: Index, loop: Interval, extent: Index, facts: Facts) -> bool:
    """True if `e`, with slope 1 or -1, meets all of 0:extent in the course of `loop`."""
    parts = split(e, loop.variable)
    if parts is None or parts[0] not in (ONE, -ONE):
        return False
    first, last = parts[1] + parts[0] * loop.lower, parts[1] + parts[0] * (loop.upper - 1)
    low, high = (first, last) if parts[0] == ONE else (last, first)
    return _spans(low, high + 1, extent, facts)


# ---- exact


class Access(Struct, frozen=True):
    """A read of `tensor`; a subscript None reaches the whole dimension (a gather).

    by_position: it is to be known of each position in such a dimension.
    """

    tensor: str
    subscripts: Place
    points: Points
    loops: tuple[Interval, ...] = ()
    number: int | None = None  # of its statement; None: after the whole program
    by_position: bool = False


class Missing(Struct, frozen=True):
    """Where an access meets elements that were not written.

    `sizes`: the condition under which there is no such point. `points`: where they are, over index
    variables and sizes, and positions by `element_name`. Both None if isl cannot express the
    program's positions.
    """

    sizes: Condition | None
    points: Condition | None = None


class Initialised(Struct, frozen=True):
    """The statements that define elements, by tensor, in text order."""

    definitions: Mapping[str, tuple[Placed, ...]]
    extents: Extents
    facts: Facts

    @staticmethod
    def of_nodes(nodes: tuple[Node, ...], extents: Extents, facts: Facts) -> Initialised:
        found: dict[str, tuple[Placed, ...]] = {}
        for p in placed_statements(nodes):
            if p.surely_writes:
                found[p.statement.target] = (*found.get(p.statement.target, ()), p)
        return Initialised(found, extents, facts)

    def is_state(self, tensor: str, loops: Sequence[Interval]) -> bool:
        """True if a loop around an access writes the tensor."""
        around = {i.variable for i in loops}
        definitions = self.definitions.get(tensor, ())
        return any(i.variable in around for w in definitions for i in w.loops)

    def missing(self, access: Access) -> Missing:
        """The exact analysis of one access."""
        shape = self.extents.shape(access.tensor)
        target, elements, inside = _named_elements(access, shape)
        used = frozenset(i.variable for i in access.loops).union(*(e.variables() for e in target))
        names, where = access.points.constraints(used)
        names = (*names, *elements)
        where = all_of((where, inside))
        ways = [
            way
            for w in reversed(self.definitions.get(access.tensor, ()))
            for way in _earlier(w, target, shape, access, self.facts)
        ]
        # products such as S*c stand for themselves: unknown, but the same at a point and where an
        # instance of the same iteration wrote its element
        sizes = frozenset(self.facts.sizes)
        called = {
            a: var(atom_text(a))
            for a in odd_atoms(where, *(condition for _, condition in ways))
            if not (own := of_atom(a).variables()) <= sizes and own <= sizes.union(names)
        }
        affine = is_quasi_affine(where, sizes)
        where = _with_names(where, called)
        points, opaque = len(names) - len(elements), tuple(map(str, called.values()))
        names = (*names, *opaque)
        isl_ = self.facts.presburger
        left = isl_.set("", names, where)
        everything = left
        exact = True
        for extra, known in ways:
            if left.is_empty():
                return Missing(TRUE)
            condition = _with_names(known, called)
            if not is_quasi_affine(condition, (*sizes, *opaque)):
                exact = False  # an over-approximation of what is written proves nothing
                continue
            exact = exact and condition == known
            written = isl_.set("", (*names, *extra), all_of((where, condition)))
            left = left.subtract(written.project_out(isl.dim_type.set, len(names), len(extra)))
        if left.is_empty():
            return Missing(TRUE)
        if not exact:
            return Missing(None)
        if not access.points.by_data and affine and not access.by_position:
            return Missing(self.facts.simplify(self.facts.size_set().subtract(left.params())))
        # executed points are some of those in `left`: exact at each of them, not over the sizes
        points += len(elements) if access.by_position else 0
        at, among = (
            s.project_out(isl.dim_type.set, points, len(names) - points) for s in (left, everything)
        )
        names = names[:points]
        return Missing(None, isl_.condition_of(at.coalesce().gist(among), names))


def _with_names(c: Condition, called: Mapping[Atom, Index]) -> Condition:
    return map_condition(c, lambda e: map_atoms(e, called.get)) if called else c


def element_name(d: int) -> str:
    """Stands for the position in a dimension that is reached as a whole."""
    return f"{d}'"


def _named_elements(
    access: Access, shape: Sequence[Index]
) -> tuple[list[Index], list[str], Condition]:
    """Subscripts with a fresh variable for each whole dimension, those variables, their bounds."""
    target, fresh, inside = [], [], []
    for d, (e, extent) in enumerate(zip(access.subscripts, shape, strict=True)):
        if e is not None:
            target.append(e)
            continue
        x = var(element_name(d))
        fresh.append(element_name(d))
        target.append(x)
        inside += [ge(x, 0), lt(x, extent)]
    return target, fresh, all_of(inside)


def _earlier(
    w: Placed, target: Sequence[Index], shape: Sequence[Index], access: Access, facts: Facts
) -> Iterator[tuple[tuple[str, ...], Condition]]:
    """Ways in which an instance of `w` before the access writes its element.

    One way for each common loop that `w` is an earlier iteration of, and one for the same
    iteration: variables of `w` that remain, and the condition on them and on the point.
    """
    common = 0
    for a, b in zip(w.loops, access.loops):
        if a.variable != b.variable:
            break
        common += 1
    if access.number is None or w.number < access.number:
        yield _way(w, target, shape, common, None, facts)
    for level in range(common):
        yield _way(w, target, shape, level, w.loops[level].variable, facts)


def _primed(name: str) -> str:
    return name + "'"


def _way(
    w: Placed,
    target: Sequence[Index],
    shape: Sequence[Index],
    n_shared: int,
    earlier: str | None,
    facts: Facts,
) -> tuple[tuple[str, ...], Condition]:
    """`w` in the same iteration of its first `n_shared` loops, with the rest of its loops free.

    earlier: of the loop among these whose iteration must be before that of the access.
    """
    own = w.loops[n_shared:]
    solved = _solved(w, target, {i.variable for i in own})
    free = tuple([i.variable for i in own if i.variable not in solved])
    rename = solved | {v: var(_primed(v)) for v in free}
    parts = [TRUE if earlier is None else lt(rename[earlier], var(earlier))]
    for i in own:
        x = rename[i.variable]
        parts += [ge(x, substitute(i.lower, rename)), lt(x, substitute(i.upper, rename))]
    parts += [condition_substitute(c, rename) for c in w.conditions]
    for d, e in enumerate(w.statement.subscripts):
        name = index_variable_at(w.statement, d)
        if name is None:
            parts.append(eq(substitute(e, rename), target[d]))
            continue
        r = next(r for r in w.domain if r.variable == name)
        if not _spans(r.lower, r.upper, shape[d], facts):
            parts += [ge(target[d], r.lower), lt(target[d], r.upper)]
    return tuple(map(_primed, free)), all_of(parts)


def _solved(w: Placed, target: Sequence[Index], own: set[str]) -> dict[str, Index]:
    """Values of the loop variables `own` that a subscript of `w` says, where it is `target`."""
    found: dict[str, Index] = {}
    for d, e in enumerate(w.statement.subscripts):
        inside = e.variables() & own
        if index_variable_at(w.statement, d) is None and len(inside) == 1 and inside - found.keys():
            (name,) = inside
            parts = split(e, name)
            if parts is not None and parts[0] in (ONE, -ONE):
                found[name] = (target[d] - parts[1]) * parts[0]
    return found
