# SPDX-License-Identifier: Apache-2.0
"""How the copy of an operand (`stage`) is filled, or read into a result: in vectors along memory,
by blocks that are turned in registers, row by row where lanes are in several rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import (
    ONE,
    TRUE,
    ZERO,
    Atom,
    Condition,
    FloorDiv,
    Index,
    Mod,
    all_of,
    ceildiv,
    condition_variables,
    floordiv,
    ge,
    index,
    minimum,
    mod,
    var,
)
from tcsym.index.linear import linear_coefficient
from tcsym.index.values import map_atoms, substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Loop, Node, Store, TransposeBlock, Value, value_dtype
from tcsym.ir.packed import elements_of
from tcsym.ir.traverse import map_value, same, substitute_node
from tcsym.mapping.nest import stride
from tcsym.mapping.plan import Refused, Stage
from tcsym.mapping.rows_apart import rows_apart, rows_of
from tcsym.mapping.tree import Mapping_

Places = tuple[Index, ...]


class Copy(Struct, frozen=True):
    """source: the operand's place in the loops `dims`, which are the dimensions of the copy."""

    m: Mapping_
    d: Stage
    source: Places
    dims: tuple[Loop, ...]
    name: str
    value: Value | None

    @property
    def places(self) -> Places:
        return tuple(var(x.variable) - x.lower for x in self.dims)

    def filled(self) -> Node:
        """Beyond the ends of the operand are zeros: what a masked load has there."""
        if self.d.as_ == "turned":
            return self._turned(into_copy=True)
        value, places = self._made, self.places

        def copied(place: Callable[[Index], Index]) -> Node:
            return Store(self.name, places, map_value(value, same, place), self.name)

        lane = self.dims[-1]
        whole = _are_together(self.source, lane)
        if whole == TRUE or lane.kind != "vector":
            return self._around(copied(_as_it_is), self.dims)
        if lane.mask is not None:
            whole = all_of((whole, ge(lane.mask, lane.upper)))
        apart, ends = rows_apart(self.source, lane), lane.mask or ZERO
        moves = condition_variables(whole) | ends.variables()
        moves |= apart.first.variables() if apart is not None else frozenset()
        for x in reversed(self.dims[:-1]):  # loops that an outer one's ends need are outside of it
            moves |= x.end_variables if x.variable in moves else frozenset()
        outer = [x for x in self.dims[:-1] if x.variable in moves]
        inner = tuple(x for x in self.dims[:-1] if x.variable not in moves)
        vector = replace(lane, order="parallel", mask=None, body=copied(partial(_together, lane)))
        if apart is None:
            single = replace(lane, order="parallel", body=copied(_as_it_is))
            other = self._around(single, inner)
        else:
            held = Read(self.name, places, value_dtype(value))
            around: Callable[[Node], Node] = lambda x: self._around(x, inner)  # noqa: E731
            is_short = self.m.buffers[self.d.operand].dtype.bits < 32
            one_by_one = (apart.is_scattered or is_short) and not self.m.machine.has_masks
            other = (
                apart.elements(copied, around) if one_by_one else apart.filled(held, copied, around)
            )
        return _in_order(outer, Branch(whole, self._around(vector, inner), other))

    @property
    def _made(self) -> Value:
        """An element of the copy."""
        operand = self.m.buffers[self.d.operand]
        return Read(operand.name, self.source, operand.dtype) if self.value is None else self.value

    def out(self) -> Node:
        if self.d.as_ == "turned":
            return self._turned(into_copy=False)
        read = Read(self.name, self.places, self.m.buffers[self.d.operand].dtype)
        return self._around(Store(self.d.operand, self.source, read, self.d.operand), self.dims)

    def _around(self, store: Node, dims: tuple[Loop, ...]) -> Node:
        """Loops as the operand lies in memory, points inside; ragged rows are counted."""
        far = any(x.kind == "vector" and self._moves_far(x) for x in dims[-1:])
        moved = [self._as_lanes(x) for x in dims]
        loops = [x for x in moved if _is_loop(x) or (far and x.kind == "unrolled")]
        serial = [x if x.kind == "serial" else _counted(x) for x in loops]
        points = [x for x in moved if x not in loops]
        for x in sorted(points, key=lambda x: x.kind != "vector"):
            store = replace(x, order="parallel", body=store)
        loops = sorted(serial, key=self._dimension)
        if self.lanes > 1 and loops:
            store, last = self._in_vectors(store, loops[-1])
            loops[-1] = last
        return _in_order(loops, store)

    def _moves_far(self, lane: Loop) -> bool:
        """Lanes lie apart in memory, each in a row of its own."""
        return stride(self.m.buffers[self.d.operand], self.source, lane.variable) != ONE

    def _as_lanes(self, x: Loop) -> Loop:
        """Rows that lie along memory in both are a vector, if they are as many as one has lanes."""
        n, b = x.upper.as_int() or 0, self.m.buffers[self.d.operand]
        if x != self.dims[-1] or x.kind != "unrolled" or n < 2 or n & (n - 1):
            return x
        along = stride(b, self.source, x.variable) == ONE
        alone = not any(y.kind == "vector" for y in self.dims)
        return replace(x, kind="vector") if along and alone else x

    @property
    def lanes(self) -> int:
        """Of vectors along memory, which both lie along; 1 if the copy's loops have lanes."""
        b, x = self.m.buffers[self.d.operand], self.dims[-1]
        dtype = b.dtype if self.value is None else value_dtype(self.value)
        along = x.kind == "serial" and self._dimension(x) == len(self.source) - 1
        if not along or any(y.kind == "vector" for y in self.dims):
            return 1
        fits = stride(b, self.source, x.variable) in (None, index(elements_of(self.value)))
        return self.m.machine.lanes(max(b.dtype.bits, dtype.bits)) if fits else 1

    def _in_vectors(self, store: Node, x: Loop) -> tuple[Node, Loop]:
        blocks, lane = f"{x.variable}.block", f"{self.d.operand}.{x.variable}.lane"
        n = self.lanes
        at = x.lower + var(blocks) * n + var(lane)
        left = extent(x) - var(blocks) * n
        body = substitute_node(store, {x.variable: at})
        body = Loop(lane, ZERO, index(n), body, "vector", "parallel", left)
        return body, Loop(blocks, ZERO, ceildiv(extent(x), n), body, "serial", "parallel")

    def _dimension(self, x: Loop) -> int:
        return next((d for d, s in enumerate(self.source) if x.variable in s.variables()), -1)

    def block(self) -> tuple[int, int]:
        """The copy's dimension that lies along memory in the operand, and the side of a block."""
        b, name = self.m.buffers[self.d.operand], self.d.operand
        along = [k for k, x in enumerate(self.dims) if stride(b, self.source, x.variable) == ONE]
        lane = self.dims[-1]
        if lane.kind != "vector" or len(along) != 1 or self.dims[along[0]].kind != "serial":
            raise Refused(f"{name} has no loop along memory that its copy could be turned from")
        steps = [linear_coefficient(s, lane.variable) for s in self.source]
        rows = [d for d, s in enumerate(self.source) if lane.variable in s.variables()]
        if len(rows) != 1 or rows[0] == len(steps) - 1 or steps[rows[0]] != ONE:
            raise Refused(f"lanes of {name} are no rows of a block")
        inner = linear_coefficient(self.source[-1], self.dims[along[0]].variable)
        if inner != ONE or b.element_strides()[-1] != ONE:
            raise Refused(f"{name} is not used element by element along its last dimension")
        size, side = lane.upper.as_int() or 1, self.m.machine.block_lanes(b.dtype.bits)
        if size % side and b.dtype.bits < 32:
            raise Refused(f"{name} has no blocks of {size} in registers")
        return along[0], size if size % side else side

    def stored(self, store: Store) -> Node | None:
        """Elements are moved to where they are stored, not to a copy; None if that is no block."""
        k, _ = self.block()
        x, lane = self.dims[k].variable, self.dims[-1].variable
        *rows, last = store.subscripts
        places = [d for d, s in enumerate(rows) if x in s.variables()]
        steps = [linear_coefficient(rows[d], x) for d in places] + [linear_coefficient(last, lane)]
        own = any(lane in s.variables() for s in rows) or x in last.variables()
        if own or steps != [ONE, ONE]:
            return None
        return self._turned(True, (store.buffer, store.subscripts, places[0]))

    def _turned(self, into_copy: bool, to: tuple[str, Places, int] | None = None) -> Node:
        """Blocks that are transposed in registers: lanes of the copy are rows of the operand. to:
        what there is in the place of a copy, and its dimension that goes along the operand."""
        k, size = self.block()
        x, lane = self.dims[k], self.dims[-1]
        blocks, lanes = f"{x.variable}.block", f"{lane.variable}.block"
        first = var(lanes) * size if lane.upper != index(size) else ZERO
        start = {x.variable: x.lower + var(blocks) * size, lane.variable: first}
        operand = tuple(substitute(s, start) for s in self.source)
        name, places, column = to or (self.name, self.places, k)
        copy = tuple(substitute(s, start) for s in places)
        row, steps = self._dimension(lane) - len(operand), column - len(copy)
        left = (lane.upper if lane.mask is None else lane.mask) - first
        along, own = extent(x) - var(blocks) * size, self.d.operand
        node: Node = (
            TransposeBlock(name, copy, own, operand, left, along, size, row, steps)
            if into_copy
            else TransposeBlock(own, operand, name, copy, along, left, size, steps, row)
        )
        if lane.upper != index(size):
            node = Loop(lanes, ZERO, floordiv(lane.upper, size), node, "serial", "parallel")
        others = [y for y in self.dims[:-1] if y is not x]
        node = _in_order([y for y in others if y.kind != "serial"], node)
        node = Loop(blocks, ZERO, ceildiv(extent(x), size), node, "serial", "parallel")
        return _in_order([y for y in others if y.kind == "serial"], node)


def _is_loop(x: Loop) -> bool:
    return x.kind == "serial" or (x.kind == "unrolled" and x.mask is not None)


def _counted(x: Loop) -> Loop:
    upper = x.upper if x.mask is None else minimum(x.upper, x.mask)
    return replace(x, kind="serial", order="parallel", upper=upper, mask=None)


def _are_together(source: Places, lane: Loop) -> Condition:
    """All lanes are in one row of loops that are merged (`Merge`)."""
    found = dict.fromkeys(a for s in source for a in rows_of(s, lane))
    rows = ((a.divisor, mod(a.dividend - var(lane.variable), a.divisor)) for a in found)
    return all_of(dict.fromkeys(ge(n, first + lane.upper) for n, first in rows))


def _together(lane: Loop, place: Index) -> Index:
    """Where they are then."""
    own = var(lane.variable)

    def one(a: Atom) -> Index | None:
        if not isinstance(a, FloorDiv | Mod) or a.dividend.coefficient(lane.variable) != 1:
            return None
        first = a.dividend - own
        whole = isinstance(a, FloorDiv)
        return floordiv(first, a.divisor) if whole else mod(first, a.divisor) + own

    return map_atoms(place, one)


def _as_it_is(place: Index) -> Index:
    return place


def _in_order(loops: Sequence[Loop], node: Node) -> Node:
    for x in reversed(loops):
        upper = x.upper if x.mask is None else minimum(x.upper, x.mask)
        node = Loop(x.variable, x.lower, upper, node, "serial", "parallel")
    return node
