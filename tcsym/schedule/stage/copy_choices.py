# SPDX-License-Identifier: Apache-2.0
"""Windows over subscripts that choose -> a copy of what they choose, read at plain subscripts.

`X(min(max(y+i-1,0),H-1))`, `X((t+k) % N)`: borders that repeat, mirror or wrap choose for every
term of every sum, and gather. The copy holds the operand's elements by `y + i`, so it chooses once
for each, and the sums are windows as any other. It stands before the nest, or inside those of its
outer loops that have planes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read, Select
from tcsym.index.expr import (
    ZERO,
    Choose,
    Condition,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    all_of,
    atom_parts,
    ge,
    var,
)
from tcsym.index.values import substitute
from tcsym.ir.bounds import eliminate, extent, extent_from
from tcsym.ir.loops import Branch, Buffer, Kernel, Loop, Node, Store, Value, block, conditional
from tcsym.ir.traverse import map_node, value_children, walk
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.band import Band, band_of, reductions
from tcsym.schedule.analysis.loops import find_loop, loops_around, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.split.choices import split_choices
from tcsym.schedule.split.quotients import split_quotients
from tcsym.trees import preorder

_PLACE = "$place"  # in `_Axis.source`; no name of a program


class _Axis(Struct, frozen=True):
    """A dimension of the operand, which is read at `source` of `_PLACE` = `subscript`.

    low <= subscript < low + n, where the loops that move it run.
    """

    subscript: Index
    source: Index
    low: Index
    n: Index

    @property
    def chooses(self) -> bool:
        return _PLACE in (self.source - var(_PLACE)).variables()


class Chosen(Struct, frozen=True):
    """`copies`: the nests that make the copy; `nest`: the outermost loop of what reads it."""

    kernel: Kernel
    copies: tuple[str, ...]
    nest: str


def copy_choices(kernel: Kernel, nest: str, names: Names) -> Chosen | None:
    """The first unguarded read of the nest's sums whose window slides over choices by a copy."""
    band = band_of(find_loop(kernel.body, nest))
    written = {a.buffer for a in accesses(band.body) if a.written}
    if any(isinstance(x, Branch) for x, _ in walk(band.body)):
        return None  # what runs nowhere may have no elements to copy
    for update, around in reductions(band.body) if band.loops else ():
        for read in _unguarded(update.value):
            axes = _axes(kernel, read, band, around)
            if axes is not None and read.tensor not in written:
                return _copied(kernel, band, read, (*band.loops, *around), axes, names)
    return None


def _unguarded(v: Value) -> Iterator[Read]:
    found = [x for x in preorder(v, _unguarded_parts) if isinstance(x, Read)]
    return (r for r in found if r.unwritten is None and _is_affine(r))


def _is_affine(r: Read) -> bool:
    return all(isinstance(s, Index) for s in r.subscripts)


def _unguarded_parts(v: Value) -> tuple[Value, ...]:
    match v:
        case Read():
            return ()
        case Select(condition):
            return (condition,)
    return value_children(v)


def _axes(
    kernel: Kernel, read: Read, band: Band, around: tuple[Loop, ...]
) -> tuple[_Axis, ...] | None:
    """One for each subscript; None if no window slides over a choice, or one is another form."""
    subscripts = [s for s in read.subscripts if isinstance(s, Index)]
    if all(isinstance(atom, str) for s in subscripts for atom, _ in s.terms):
        return None
    loops, sizes = (*band.loops, *around), frozenset(kernel.sizes)
    axes: list[_Axis] = []
    for s in subscripts:
        axis = _axis(s, loops, sizes)
        if axis is None:
            return None
        axes.append(axis)
    inner, outer = ({x.variable for x in ls} for ls in (around, band.loops))
    slides = any(
        x.chooses and x.subscript.variables() & inner and x.subscript.variables() & outer
        for x in axes
    )
    return tuple(axes) if slides else None


def _axis(s: Index, loops: tuple[Loop, ...], sizes: frozenset[str]) -> _Axis | None:
    names = frozenset(x.variable for x in loops)
    place = _moving_part(s, names)
    if all(c < 0 for _, c in place.terms):
        place = -place
    single = [v for v in place.variables() if place.coefficient(v) == 1]
    if place.terms and not single:
        return None
    source = s
    if single:
        v = min(single)
        source = substitute(s, {v: var(_PLACE) - (place - var(v))})
    low, high = (eliminate(place, loops, high) for high in (False, True))
    if source.variables() & names or low is None or high is None:
        return None
    if not (low.variables() | high.variables()) <= sizes:
        return None
    axis = _Axis(place, source, low, extent_from(high - low + 1, sizes))
    return axis if _has_no_gaps(place, loops) or not axis.chooses else None


def _has_no_gaps(place: Index, loops: tuple[Loop, ...]) -> bool:
    """Each place between the ends is one of some iterations: at others no element may be.

    Extents that are not known count as 1: with less there is no copy.
    """
    reach, names = 0, {x.variable for x in loops}
    for x in sorted(loops, key=lambda x: abs(place.coefficient(x.variable))):
        step = abs(place.coefficient(x.variable))
        if step > reach + 1 or x.end_variables & names:
            return False
        reach += step * ((extent(x).as_int() or 1) - 1)
    return True


def _moving_part(e: Index, names: frozenset[str]) -> Index:
    """The terms of loops in the first linear expression that has any."""
    found = Index((), 0)
    for atom, c in e.terms:
        if isinstance(atom, str) and atom in names:
            found = found + var(atom) * c
    if found.terms:
        return found
    for atom, _ in e.terms:
        parts = atom_parts(atom) if isinstance(atom, Min | Max | Choose | FloorDiv | Mod) else ()
        for part in parts:
            inner = _moving_part(part, names)
            if inner.terms:
                return inner
    return found


def _copied(
    kernel: Kernel,
    band: Band,
    read: Read,
    loops: tuple[Loop, ...],
    axes: tuple[_Axis, ...],
    names: Names,
) -> Chosen:
    planes = _planes(band, axes)
    kept = tuple(x for x in axes if not x.subscript.variables() <= planes)
    name, top = names.fresh(f"{read.tensor}_chosen"), band.variables[len(planes)]
    around = frozenset(x.variable for x in loops_around(kernel.body, top))
    shape = tuple(x.n for x in kept)
    kernel = kernel.with_buffer(Buffer(name, read.dtype, shape, "arena", private=around))
    new = Read(name, tuple(x.subscript - x.low for x in kept), read.dtype)
    part = replace(kernel, body=_copy(read, axes, kept, name, names))
    part = split_choices(split_quotients(part, names), names)
    copies = tuple(x.variable for x, outer in walk(part.body) if isinstance(x, Loop) and not outer)
    copy = conditional(_runs(loops, kept), part.body)

    def value(v: Value) -> Value:
        return new if v == read else v

    body = replace_loop(kernel.body, top, lambda x: block(copy, map_node(x, on_value=value)))
    return Chosen(replace(part, body=body), copies, top)


def _planes(band: Band, axes: tuple[_Axis, ...]) -> frozenset[str]:
    """The outermost loops of the band whose iterations have planes of their own, if each has."""
    plain = {v for x in axes if not x.chooses for v in x.subscript.variables()}
    moving = {v for x in axes if x.chooses for v in x.subscript.variables()}
    outer = takewhile(lambda v: v in plain and v not in moving, band.variables)
    planes = frozenset(outer)
    return planes if plain <= planes else frozenset()


def _copy(
    read: Read, axes: tuple[_Axis, ...], kept: tuple[_Axis, ...], name: str, names: Names
) -> Node:
    """Loops over the axes `kept`: name[u..] = operand[source of u + low..]."""
    variables = {id(x): names.fresh("u") for x in kept}
    places = [var(variables[id(x)]) + x.low if x in kept else x.subscript for x in axes]
    source = tuple(substitute(x.source, {_PLACE: p}) for x, p in zip(axes, places))
    target = tuple(map(var, variables.values()))
    node: Node = Store(name, target, replace(read, subscripts=source), name)
    for x, v in reversed(list(zip(kept, variables.values()))):
        node = Loop(v, ZERO, x.n, node, "serial", "parallel")
    return node


def _runs(loops: tuple[Loop, ...], kept: tuple[_Axis, ...]) -> Condition:
    """The loops that move the kept axes have iterations: else there may be nothing to copy."""
    moving = frozenset[str]().union(*(x.subscript.variables() for x in kept))
    return all_of(ge(extent(x), 1) for x in loops if x.variable in moving)
