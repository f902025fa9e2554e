# SPDX-License-Identifier: Apache-2.0
"""A statement in its copies -> the instructions of one iteration of the loop around, by kind.

Copies are the lanes of vectors and the bodies of unrolled loops. As the emitter makes them, an
instruction serves a register full of lanes; nothing is loaded or stored in registers; what does not
move with an unrolled loop is computed once for its copies, and what does not move with the loop
around them once in front of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.cost.terms import Counts, counts, of
from tcsym.frontend.program import Binary, Call, Cast, Const, IndexValue, Read
from tcsym.index.expr import ZERO, Atom, FloorDiv, Index, floordiv, of_atom, var
from tcsym.index.linear import linear_coefficient
from tcsym.index.values import map_atoms
from tcsym.ir.device import not_on_a_cpu
from tcsym.ir.loops import (
    Buffer,
    Holds,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Shuffle,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
    value_dtype,
)
from tcsym.ir.packed import elements_of, is_dot, packed_run
from tcsym.ir.traverse import loads, value_children, value_variables, walk
from tcsym.target.machine import Machine
from tcsym.trees import fold
from tcsym.types import DType

Statement = Store | Update | Verify | TransposeBlock
Variables = frozenset[str]

PART_BYTES = 32
NEAR = 4  # elements between lanes that are loaded in rows
SUM_CYCLES, OTHER_SUM_CYCLES = 4.0, 3.0  # until the next term of a sum, or of a maximum, may come
DIVISION_CYCLES = 6.0
MASKED_BITS = 32  # of the shortest elements that have gathers, and masks without mask registers
MASK_REGISTERS = 2  # of each vector that is masked, where masks are compared again and again
OTHER_CYCLES = 125.0  # of a function that is not named: it is called for each lane, as dearer ones
_CYCLES = {
    name: cycles
    for cycles, names in (
        (0.5, "fabs fmin fmax fma floor ceil trunc round copysign fdim pack"),
        (4.0, "fdivide sqrt rsqrt"),
        (11.25, "exp exp2 tanh logb"),
        (37.5, "log erf sin cos tan exp10 cbrt rcbrt sinpi cospi"),
        (37.5, "rhypot norm3d rnorm3d norm4d rnorm4d"),
        (437.5, "erfinv erfcinv normcdfinv"),
        (500.0, "lgamma atan2 y0 y1 tgamma"),
    )
    for name in names.split()
}


def function_cycles(name: str) -> float:
    """Of eight elements of float32."""
    return _CYCLES.get(name, OTHER_CYCLES)


class Copies(Struct, frozen=True):
    """An unrolled or vector loop around a statement."""

    variable: str
    count: int
    are_lanes: bool
    are_masked: bool = False

    @staticmethod
    def of(loop: Loop) -> Copies:
        count, are_lanes = loop.upper.as_int() or 0, loop.kind == "vector"
        return Copies(loop.variable, count, are_lanes, loop.mask is not None)


def is_copied(loop: Loop) -> bool:
    """Its iterations become copies of the same instructions: no other loop is inside."""
    inside = (x for x, _ in walk(loop) if isinstance(x, Loop))
    return all(x.kind in ("vector", "unrolled") for x in inside)


class Leaf(Struct, frozen=True):
    """Statements without a loop. inside: an iteration; before: once, in front of the loop around
    them; chain: cycles until a sum that an iteration adds to is there for the next one; held:
    registers of sums; passing: and of what is added to them, at a time."""

    inside: Counts
    before: Counts
    chain: float = 0.0
    held: float = 0.0
    passing: float = 0.0

    @staticmethod
    def together(leaves: Iterable[Leaf]) -> Leaf:
        parts = (EMPTY, *leaves)
        inside = sum((x.inside for x in parts), counts())
        before = sum((x.before for x in parts), counts())
        held, passing = sum(x.held for x in parts), max(x.passing for x in parts)
        return Leaf(inside, before, max(x.chain for x in parts), held, passing)

    def iteration(self, registers: float = math.inf) -> Counts:
        """With the cycles of an innermost loop, and what so many registers do not hold."""
        busy = _busy_cycles(self.inside)
        waiting = max(0.0, self.chain - busy)
        spilled = max(0.0, self.held + self.passing - registers)
        return self.inside + counts(core=max(busy, self.chain), wait=waiting, spilled=spilled)

    def once(self) -> Counts:
        """All of it, where there is no loop around."""
        return Leaf(self.inside, self.before).iteration() + self.before


EMPTY = Leaf(counts(), counts())


def _busy_cycles(found: Counts) -> float:
    """Of the busiest unit: two for arithmetic and two for loads, of 256 bits; one for stores."""
    arithmetic = of(found, "fma") + of(found, "other")
    loads = of(found, "load") + of(found, "splat") + of(found, "gather") + 2 * of(found, "near")
    stores = of(found, "store") + of(found, "scatter")
    return float(max(arithmetic / 2, loads / 2, stores))


class Machinery(Struct, frozen=True):
    """What statements are counted with. vector_bytes: of a register, 0 without vectors. awaited:
    buffers that vectors are computed of, which so wait for reductions across lanes."""

    buffers: Mapping[str, Buffer]
    vector_bytes: int
    registers: int
    has_masks: bool
    awaited: frozenset[str]

    @staticmethod
    def of(kernel: Kernel, machine: Machine) -> Machinery:
        buffers = {b.name: b for b in kernel.buffers}
        size, registers = machine.vector_bits // 8, machine.vector_registers
        return Machinery(buffers, size, registers, machine.has_masks, _awaited(kernel.body))

    def clipped(self, n: TransposeBlock) -> Counts:
        """More than a whole block, if some rows or columns are not there and there are no masks:
        half of a masked store for each row that is loaded, and one for each that is stored."""
        if self.has_masks:
            return counts()
        return counts(masked=n.block * (0.5 if self.buffers[n.target].padded else 1.5))

    def leaf(self, n: Statement, loop: str | None, tile: tuple[Copies, ...]) -> Leaf:
        """Of all copies. loop: the innermost around it that is no copies."""
        found = _Statement(self, loop, tile).leaf(n)
        match n:
            case Store(name, _, HorizontalReduce()) | Update(name, _, _, HorizontalReduce()):
                if name in self.awaited:
                    return replace(found, inside=found.inside + counts(stall=1))
        return found


def _awaited(body: Node) -> frozenset[str]:
    return frozenset(
        r.tensor
        for x, around in walk(body)
        if isinstance(x, Store | Update) and any(y.kind == "vector" for y in around)
        for r in loads(x.value)
    )


class _Statement(Struct, frozen=True):
    """`seen`: values that are computed, and what they depend on. before: counts, added to."""

    machinery: Machinery
    loop: str | None
    tile: tuple[Copies, ...]
    seen: dict[Value, Variables] = field(default_factory=dict)
    before: list[Counts] = field(default_factory=list)

    def leaf(self, n: Statement) -> Leaf:
        match n:
            case TransposeBlock():
                return Leaf(self._transposed(n), counts())
            case Verify():
                inside, _ = self._value(n.value)
                return self._leaf(inside)
            case Store():
                inside, used = self._value(n.value)
                written = used | _variables(n.subscripts)
                return self._leaf(inside + self._access(n.buffer, n.subscripts, True, written))
            case Update():
                return self._update(n)

    def _leaf(self, inside: Counts, chain: float = 0.0) -> Leaf:
        return Leaf(inside, sum(self.before, counts()), chain)

    def _transposed(self, n: TransposeBlock) -> Counts:
        elements = n.block * n.block
        source, target = self._bytes(n.source), self._bytes(n.target)
        parts = {"load": elements * source / PART_BYTES, "store": elements * target / PART_BYTES}
        return counts(trans=elements, **parts)

    def _bytes(self, buffer: str) -> int:
        return self.machinery.buffers[buffer].dtype.bytes

    def _update(self, n: Update) -> Leaf:
        v, buffer = n.value, self.machinery.buffers[n.buffer]
        is_fused = n.op == "add" and (is_dot(v) or (isinstance(v, Binary) and v.op == "mul"))
        written = _variables(n.subscripts)
        operands = value_children(v) if is_fused else (v,)
        parts = list(map(self._value, operands))
        inside, used = _together(parts)
        passing = self._passing([(v, x) for v, (_, x) in zip(operands, parts)], buffer.dtype)
        if not self.machinery.has_masks and self._is_masked(v):
            lanes = (self._registers(x, buffer.dtype) for _, x in parts if self._has_lanes(x))
            passing += MASK_REGISTERS * max(lanes)
        used |= written
        inside = inside + counts(fma=self._parts(buffer.dtype, used))
        terms = prod(x.count for x in self.tile if not x.are_lanes and x.variable not in written)
        if n.op in ("min", "max") and buffer.dtype.is_float:  # NaN wins
            asked = 1 + 1 / terms if self.machinery.has_masks else 2  # by pairs, and set once
            n_parts = self._parts(buffer.dtype, used, whole=True)
            inside = inside + counts(other=asked * n_parts)
        for stores in (False, True):
            inside = inside + self._access(n.buffer, n.subscripts, stores, used)
        if self.loop in written:
            return self._leaf(inside)
        cycles = SUM_CYCLES if n.op == "add" else OTHER_SUM_CYCLES
        through_memory = buffer.space != "register" and self.loop is not None
        chain = cycles * terms + (SUM_CYCLES if through_memory else 0.0)
        return replace(
            self._leaf(inside, chain), held=self._registers(written, buffer.dtype), passing=passing
        )

    def _value(self, v: Value) -> tuple[Counts, Variables]:
        """Its instructions and the variables on which it depends. None for what is there already,
        or is computed in front of the loop."""
        return fold(v, self._below, self._of_parts)

    def _below(self, v: Value) -> tuple[Value, ...]:
        if isinstance(v, Shuffle):
            raise not_on_a_cpu(v)
        is_known = v in self.seen or isinstance(v, HorizontalReduce) or packed_run(v) is not None
        return () if is_known else value_children(v)

    def _of_parts(
        self, v: Value, parts: Sequence[tuple[Counts, Variables]]
    ) -> tuple[Counts, Variables]:
        if v in self.seen:
            return counts(), self.seen[v]
        if isinstance(v, HorizontalReduce):
            return self._across(v)
        found, used = _together(parts)
        if isinstance(v, IndexValue):
            used |= v.index.variables()
        elif isinstance(v, Binary) and v.op == "mod":
            used = _moving_remainder(v, used)
        elif isinstance(v, Read):
            used |= _variables(v.subscripts)
        run = packed_run(v)
        if run is not None:
            used |= _variables(run.subscripts)
        self.seen[v] = used
        own = self._operation(v, used)
        if self.loop is None or self.loop in used:
            return found + own, used
        self.before.append(own)
        return found, used

    def _across(self, v: HorizontalReduce) -> tuple[Counts, Variables]:
        lanes = Copies(v.variable, v.width, True)
        inside = replace(self, tile=(*self.tile, lanes), seen={})
        found, used = inside._value(v.value)
        n = prod(x.count for x in self._own(used - {v.variable}) if not x.are_lanes)
        return found + counts(across=n), used

    def _operation(self, v: Value, used: Variables) -> Counts:
        run = packed_run(v)
        if run is not None:
            places = tuple(s for s in run.subscripts if isinstance(s, Index))
            return self._access(run.tensor, places, False, used, elements=elements_of(v))
        if isinstance(v, Read):
            lanes = {x.variable for x in self._own(used) if x.are_lanes}
            found = (s for s in v.subscripts if not isinstance(s, Index))
            is_found = any(lanes & value_variables(s) for s in found)
            places = tuple(s if isinstance(s, Index) else ZERO for s in v.subscripts)
            checks = sum(v.checked) * self._parts(DType.INT64, used)
            return self._access(v.tensor, places, False, used, is_found) + counts(other=checks)
        if isinstance(v, Const | Holds):
            return counts()
        n = self._parts(DType.INT32 if isinstance(v, IndexValue) else value_dtype(v), used)
        match v:
            case Binary("div" | "mod", _, divisor) if not _is_power_of_two(divisor):
                return counts(func=DIVISION_CYCLES * n)
            case Binary("min" | "max") if v.dtype.is_float:
                return counts(other=3 * n)  # NaN wins
            case Cast():
                return counts(other=2 * n)
            case Call("pack", elements) if not any(x.are_lanes for x in self._own(used)):
                return counts(gather=2 * len(elements) * n)
            case Call(function):
                return counts(func=function_cycles(function) * n)
            case _:
                return counts(other=n)

    def _access(
        self,
        name: str,
        subscripts: Sequence[Index],
        stores: bool,
        used: Variables,
        is_found: bool = False,
        elements: int = 1,
    ) -> Counts:
        """Of a load or store. is_found: of a place that only data know. elements: of each lane."""
        buffer = self.machinery.buffers[name]
        if buffer.space == "register":
            return counts()
        own = self._own(used)
        copies = prod(x.count for x in own if not x.are_lanes)
        shared = 1.0 if stores else _places(subscripts, own) / max(1, copies)
        vector = next((x for x in own if x.are_lanes), None)
        if vector is None:
            return counts(store=copies) if stores else counts(splat=copies * shared)
        lane = vector.variable
        subscripts = [_quotient_in_lanes(s, lane, vector.count) for s in subscripts]
        whole = buffer.space == "stack" and len(buffer.shape) == 1  # a vector, permuted
        apart = NEAR + 1 if is_found else 1 if whole else _distance(buffer, subscripts, lane)
        if apart == elements:
            n = shared * self._parts(DType.INT32 if elements > 1 else buffer.dtype, used)
            is_part = not buffer.padded and not self.machinery.has_masks
            is_part = is_part and any(x.are_lanes and x.are_masked for x in own)
            if is_part and buffer.dtype.bits * elements < MASKED_BITS:  # each behind a branch
                lanes = shared * copies * elements * prod(x.count for x in own if x.are_lanes)
                return counts(scatter=2 * lanes) if stores else counts(gather=2 * lanes)
            return counts(store=n, masked=n if is_part else 0) if stores else counts(load=n)
        if apart == 0:
            return counts(splat=copies * shared)
        if apart <= NEAR and not stores and elements == 1:
            return counts(near=apart * shared * self._parts(buffer.dtype, used, whole=True))
        lanes = shared * copies * prod(x.count for x in own if x.are_lanes)
        if stores:
            return counts(scatter=lanes)
        return counts(gather=lanes if buffer.dtype.bits >= MASKED_BITS else 2 * lanes)

    def _is_masked(self, v: Value) -> bool:
        """Whether lanes of memory are left out in what it reads."""
        masked = {x.variable for x in self.tile if x.are_lanes and x.are_masked}
        return any(
            masked & _variables(r.subscripts)
            for r in loads(v)
            if not self.machinery.buffers[r.tensor].padded
        )

    def _passing(self, operands: Sequence[tuple[Value, Variables]], dtype: DType) -> float:
        """Registers of operands: of a copy of the outermost loop, and what its copies share."""
        outer = next((x for x in self.tile if not x.are_lanes and x.count > 1), None)
        return sum(
            self._registers(x, dtype)
            * self._unshared(v, x)
            / (outer.count if outer and outer.variable in x else 1)
            for v, x in operands
        )

    def _unshared(self, v: Value, used: Variables) -> float:
        """The part of its copies that reads elements which no other one does."""
        own = self._own(used)
        copies = prod(x.count for x in own if not x.are_lanes)
        found = (tuple(s for s in r.subscripts if isinstance(s, Index)) for r in loads(v))
        return max((_places(s, own) for s in found), default=copies) / max(1, copies)

    def _has_lanes(self, used: Variables) -> bool:
        return any(x.are_lanes for x in self._own(used))

    def _registers(self, used: Variables, dtype: DType) -> float:
        """That hold what depends on these variables, of all copies."""
        n = self._parts(dtype, used) * PART_BYTES / max(1, self.machinery.vector_bytes)
        return max(1.0, n) if self._has_lanes(used) else prod(x.count for x in self._own(used))

    def _own(self, used: Variables) -> list[Copies]:
        return [x for x in self.tile if x.variable in used]

    def _parts(self, dtype: DType, used: Variables, whole: bool = False) -> float:
        """Of 256 bits, for all copies of an operation that depends on the variables `used`. whole:
        of one, as shuffles and compares, that takes as long on half a register."""
        lanes = max(1, self.machinery.vector_bytes // dtype.bytes)
        found = 1.0
        for x in self._own(used):
            if not x.are_lanes:
                found *= x.count
                continue
            registers = -(-x.count // lanes)
            filled = max(PART_BYTES, x.count // registers * dtype.bytes)
            n_bytes = self.machinery.vector_bytes
            found *= registers * (n_bytes if whole else min(n_bytes, filled)) / PART_BYTES
        return found


def _places(subscripts: Sequence[Index], own: Sequence[Copies]) -> int:
    """How many copies read elements that no other copy does: rows of a tile share what windows
    read, and lanes that are apart are loaded with those between."""
    moving = [x for x in own if not x.are_lanes]
    lanes = [x.variable for x in own if x.are_lanes]
    found = 1
    for at in subscripts:
        here = [x for x in moving if x.variable in at.variables()]
        steps = [at.coefficient(x.variable) for x in here]
        if not all(steps):
            found *= prod(x.count for x in here)
            continue
        ranges = (range(0, c * x.count, c) for c, x in zip(steps, here, strict=True))
        places = {sum(x) for x in product(*ranges)}
        apart = max(1, *(abs(at.coefficient(v)) for v in lanes), 1)
        found *= len({n // apart for n in places} if apart <= NEAR else places)
    return min(found, prod(x.count for x in moving))


def _variables(subscripts: Iterable[object]) -> Variables:
    return Variables().union(*(s.variables() for s in subscripts if isinstance(s, Index)))


def _moving_remainder(v: Binary, used: Variables) -> Variables:
    """Of a place by a power of two: what moves by multiples of it leaves the remainder."""
    if not isinstance(v.left, IndexValue) or not _is_power_of_two(v.right):
        return used
    assert isinstance(v.right, Const)
    n, place = int(v.right.value), v.left.index
    simple = {x for a, c in place.terms if c % n == 0 for x in of_atom(a).variables()}
    others = {x for a, c in place.terms if c % n for x in of_atom(a).variables()}
    return used - (simple - others)


def _is_power_of_two(v: Value) -> bool:
    n = int(v.value) if isinstance(v, Const) and not v.dtype.is_float else 0
    return n > 0 and n & (n - 1) == 0


def _quotient_in_lanes(s: Index, lane: str, count: int) -> Index:
    """Without the lane in quotients that are the same in all of them, of (k + 8*t)/64 in eight; a
    place for each lane where several have one, of (k + 8*t)/2: what lies side by side is spread."""

    def one(a: Atom) -> Index | None:
        if not isinstance(a, FloorDiv) or lane not in of_atom(a).variables():
            return None
        size, rest = a.divisor.as_int() or 0, a.dividend - var(lane)
        unit = count if size % count == 0 else size
        even = rest.is_multiple(unit)
        if not size or lane in rest.variables() or not even or max(size, count) % unit:
            return None
        return floordiv(rest, a.divisor) + (ZERO if unit == count else var(lane))

    return map_atoms(s, one)


def _distance(buffer: Buffer, subscripts: Sequence[Index], lane: str) -> int:
    """Of neighbouring lanes in memory, in elements; more than NEAR where it is not known."""
    place = ZERO
    for s, stride in zip(subscripts, buffer.element_strides()):
        place = place + s * stride
    apart = linear_coefficient(place, lane)
    return NEAR + 1 if apart is None or not apart.is_constant else abs(apart.constant)


def _together(parts: Iterable[tuple[Counts, Variables]]) -> tuple[Counts, Variables]:
    parts = tuple(parts)
    found = sum((x for x, _ in parts), counts())
    return found, Variables().union(*(used for _, used in parts))
