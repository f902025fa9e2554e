# SPDX-License-Identifier: Apache-2.0
"""Mapped loops -> estimated time, in sixteenths of a processor cycle, over sizes.

What is counted are instructions as the emitter makes them: one for a register full of lanes, none
for what stays in registers, one for what the copies of an unrolled loop share. A plain vector
instruction takes half a cycle, so an operation on one of eight float32 costs about 1. The weights
are throughputs of AVX2 processors and of our own functions. An estimate is good within a factor of
two or three: it chooses numbers of threads.
"""

from __future__ import annotations

from collections.abc import (
    Iterable,
    Mapping,
    Sequence,
)
from math import prod

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.cost.statements import NEAR, OTHER_CYCLES, Copies, function_cycles, is_copied
from tcsym.frontend.program import Binary, Call, Cast, Const, IndexValue, Read
from tcsym.index.expr import ONE, ZERO, Index, Max, Min, floordiv, index, maximum, minimum
from tcsym.index.linear import linear_coefficient
from tcsym.ir.bounds import eliminate, relax, trip_bound
from tcsym.ir.device import DeviceNode, not_on_a_cpu
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
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
from tcsym.ir.packed import is_dot
from tcsym.ir.traverse import loads, value_children, walk
from tcsym.target.machine import Machine
from tcsym.trees import fold
from tcsym.types import DType

PER_CYCLE = 16  # units of work: a price of half a cycle is a number, too
PLAIN = 8  # of work, as all prices: of an instruction of which two run in a cycle
_PRICES = {
    "store": 16,
    "conversion": 16,
    "division": 48,
    "integer division": 128,
    "lane": 40,  # of a gather
    "across": 96,  # a reduction of the lanes of a vector
    "transposed": 6,  # an element of a block
    "step": 24,  # of a loop: counting, comparing, moving addresses
    "wait": 40,  # for the sum that the next term is added to
}


def function_cost(name: str) -> int:
    return round(function_cycles(name) * PER_CYCLE)


class Costs(Struct, frozen=True):
    """Of the loops of a kernel on a target. `vector_bytes`: of a register, 0 without vectors.

    scalars: by variable with a value that is read, how many elements may be read for it.
    """

    buffers: Mapping[str, Buffer]
    vector_bytes: int
    scalars: Mapping[str, Index] = field(default_factory=dict)

    @staticmethod
    def of(kernel: Kernel, machine: Machine) -> Costs:
        buffers = {b.name: b for b in kernel.buffers}
        scalars = {
            x.variable: _elements(buffers, x.value)
            for x, _ in walk(kernel.body)
            if isinstance(x, Loop) and x.value is not None
        }
        return Costs(buffers, machine.vector_bits // 8, scalars)

    def of_iteration(self, loops: tuple[Loop, ...], known: frozenset[str]) -> Index:
        """Bound of one iteration of a perfect chain, in the variables `known` around it."""
        inside = known | {x.variable for x in loops}
        return _without(self._node(loops[-1].body, inside, None, (), loops), loops, known)

    def of_statement(
        self, n: Store | Update | Verify, loop: str | None, tile: tuple[Copies, ...]
    ) -> int:
        """Of all its copies. loop: the innermost around it that is no copies."""
        return _Instructions(self, loop, tile, {}).of_statement(n)

    def _node(
        self,
        n: Node,
        known: frozenset[str],
        loop: str | None,
        tile: tuple[Copies, ...],
        around: tuple[Loop, ...],
    ) -> Index:
        """Bound of a node in the variables `known`. loop: the innermost that is no copies."""
        match n:
            case Store() | Update() | Verify():
                return index(self.of_statement(n, loop, tile))
            case Loop() if is_copied(n):
                return self._node(n.body, known, loop, (*tile, Copies.of(n)), around)
            case Loop():
                trips, inside = self._trips(n, known, around), (*around, n)
                inner = self._node(n.body, known | {n.variable}, n.variable, (), inside)
                if inner.is_constant:
                    inner += _PRICES["step"] // n.unroll
                return _without(inner * trips, (n,), known) * prod(x.count for x in tile)
            case Branch(_, a, b):
                then = self._node(a, known, loop, tile, around)
                return (
                    then if b is None else _dearer(then, self._node(b, known, loop, tile, around))
                )
            case Block(body):
                return sum((self._node(x, known, loop, tile, around) for x in body), ZERO)
            case Allocate(_, body):
                return self._node(body, known, loop, tile, around)
            case TransposeBlock():
                return index(_PRICES["transposed"] * n.block * n.block)
            case DeviceNode():
                raise not_on_a_cpu(n)

    def _trips(self, n: Loop, known: frozenset[str], around: tuple[Loop, ...]) -> Index:
        """At most how many. Those of a range between two scalars that are read: all ranges together
        are as long as what they run along."""
        lower, upper = (e.variables() & self.scalars.keys() for e in (n.lower, n.upper))
        if n.value is not None or n.at is not None:
            return ONE
        if not lower | upper:
            trips = relax(trip_bound(n), known, True) or ONE
            return eliminate(trips, around, True) or trips
        most = _least_known(n.upper, known - self.scalars.keys())
        if most is None:
            return ONE
        rows = [self.scalars[v] for v in upper] if lower and upper else []
        return floordiv(most, maximum(1, rows[0])) + 1 if rows else most


def _elements(buffers: Mapping[str, Buffer], value: Value) -> Index:
    read = next((x for x in loads(value) if x.subscripts), None)
    moving = (
        []
        if read is None
        else [n for n, s in zip(buffers[read.tensor].shape, read.subscripts) if _variables((s,))]
    )
    return prod(moving, start=ONE)


def _least_known(e: Index, known: frozenset[str]) -> Index | None:
    """What a minimum in the expression says in known variables."""
    for atom, _ in e.terms:
        if isinstance(atom, Min | Max):
            plain = [a for a in atom.args if a.variables() <= known and not a.is_constant]
            if plain and isinstance(atom, Min):
                return minimum(*plain)
            inner = (_least_known(a, known) for a in atom.args)
            return next((x for x in inner if x is not None), None)
    return None


class _Instructions(Struct, frozen=True):
    """Of one statement in its copies. `seen`: values that are computed, and what they depend on."""

    costs: Costs
    loop: str | None
    tile: tuple[Copies, ...]
    seen: dict[Value, frozenset[str]]

    def of_statement(self, n: Store | Update | Verify) -> int:
        if isinstance(n, Verify):
            return self._value(n.value)[0]
        buffer = self.costs.buffers[n.buffer]
        written = _variables(n.subscripts)
        if isinstance(n, Store):
            cost, used = self._value(n.value)
            return cost + self._access(buffer, n.subscripts, _PRICES["store"], used | written)
        v = n.value
        fused = n.op == "add" and (is_dot(v) or (isinstance(v, Binary) and v.op == "mul"))
        cost, used = _together(map(self._value, value_children(v) if fused else (v,)))
        used |= written
        cost += PLAIN * self._times(buffer.dtype, used)
        for touch in (PLAIN, _PRICES["store"]):
            cost += self._access(buffer, n.subscripts, touch, used)
        waits = all(x.variable not in written for x in self.tile)
        return cost + (_PRICES["wait"] if waits else 0)

    def _value(self, v: Value) -> tuple[int, frozenset[str]]:
        """Its cost, and the variables on which it depends. Nothing for what was computed before."""
        return fold(v, self._below, self._of_parts)

    def _below(self, v: Value) -> tuple[Value, ...]:
        if isinstance(v, Shuffle):
            raise not_on_a_cpu(v)
        return () if v in self.seen or isinstance(v, HorizontalReduce) else value_children(v)

    def _of_parts(
        self, v: Value, parts: Sequence[tuple[int, frozenset[str]]]
    ) -> tuple[int, frozenset[str]]:
        if v in self.seen:
            return 0, self.seen[v]
        if isinstance(v, HorizontalReduce):
            lanes = Copies(v.variable, v.width, True)
            inside = replace(self, tile=(*self.tile, lanes))
            cost, used = inside._value(v.value)
            return cost + _PRICES["across"] * self._times(v.dtype, used - {v.variable}), used
        cost, used = _together(parts)
        match v:
            case IndexValue(i):
                used |= i.variables()
            case Read():
                used |= _variables(v.subscripts)
            case _:
                pass
        self.seen[v] = used
        if self.loop is not None and self.loop not in used:
            return cost, used  # computed once, in front of the loop
        if isinstance(v, Read):
            subscripts = [s if isinstance(s, Index) else self.seen[s] for s in v.subscripts]
            cost += self._access(self.costs.buffers[v.tensor], subscripts, PLAIN, used)
            return cost + PLAIN * sum(v.checked) * self._times(DType.INT64, used), used
        weight = 0 if isinstance(v, Const | Holds) else self._weight(v)
        dtype = DType.INT32 if isinstance(v, IndexValue) else value_dtype(v)
        return cost + weight * self._times(dtype, used), used

    def _weight(self, v: Value) -> int:
        """Of one instruction; a division of integers, a register's worth of scalar ones."""
        wide = 2 if value_dtype(v) is DType.FLOAT64 else 1
        match v:
            case Binary("div" | "mod"):
                lanes = max(1, self.costs.vector_bytes // v.dtype.bytes)
                each = wide if v.dtype.is_float else lanes
                return each * _PRICES["division" if v.dtype.is_float else "integer division"]
            case Binary("min" | "max") if v.dtype.is_float:
                return 3 * PLAIN  # NaN wins
            case Cast():
                return _PRICES["conversion"]
            case Call(function):
                weight = function_cost(function)
                return weight * wide if PLAIN < weight < OTHER_CYCLES * PER_CYCLE else weight
            case _:
                return PLAIN

    def _access(
        self,
        buffer: Buffer,
        subscripts: Sequence[Index | frozenset[str]],
        weight: int,
        used: frozenset[str],
    ) -> int:
        """Of a load or store; nothing in registers. Lanes that are far apart go one by one."""
        if buffer.space == "register":
            return 0
        lane = next((x.variable for x in self.tile if x.are_lanes and x.variable in used), None)
        whole = buffer.space == "stack" and len(buffer.shape) == 1  # a vector, permuted
        apart = 1 if lane is None or whole else _distance(buffer, subscripts, lane)
        if apart <= NEAR:
            return weight * (1 if apart == 1 else 2 * apart) * self._times(buffer.dtype, used)
        return _PRICES["lane"] * prod(x.count for x in self.tile if x.variable in used)

    def _times(self, dtype: DType, used: frozenset[str]) -> int:
        """Instructions for all copies of an operation that depends on the variables `used`."""
        lanes = max(1, self.costs.vector_bytes // dtype.bytes)
        own = [x for x in self.tile if x.variable in used]
        return prod(-(-x.count // lanes) if x.are_lanes else x.count for x in own)


def _variables(subscripts: Iterable[object]) -> frozenset[str]:
    own = (s.variables() for s in subscripts if isinstance(s, Index))
    return frozenset[str]().union(*own)


def _distance(buffer: Buffer, subscripts: Sequence[Index | frozenset[str]], lane: str) -> int:
    """Of neighbouring lanes in memory, in elements; more than NEAR where it is not known."""
    far, total = 0, ZERO
    for s, stride in zip(subscripts, buffer.element_strides()):
        if isinstance(s, frozenset):
            far += NEAR + 1 if lane in s else 0
        else:
            total += s * stride
    step = linear_coefficient(total, lane)
    return far + (NEAR + 1 if step is None or not step.is_constant else abs(step.constant))


def _dearer(a: Index, b: Index) -> Index:
    difference = a - b
    weights = (difference.constant, *(c for _, c in difference.terms))
    if min(weights) >= 0:  # of terms that are never negative
        return a
    return b if max(weights) <= 0 else maximum(a, b)


def _without(total: Index, loops: tuple[Loop, ...], known: frozenset[str]) -> Index:
    if not total.variables() & {x.variable for x in loops}:
        return total
    bound = eliminate(total, loops, True)
    for most in (total, _increasing(total)):
        bound = bound if bound is not None else relax(most, known, True)
    return ONE if bound is None or not bound.variables() <= known else bound


def _increasing(e: Index) -> Index:
    """`e` without what it subtracts: extents are differences."""
    return Index(tuple((atom, c) for atom, c in e.terms if c > 0), max(0, e.constant))


def _together(parts: Iterable[tuple[int, frozenset[str]]]) -> tuple[int, frozenset[str]]:
    parts = tuple(parts)
    return sum(c for c, _ in parts), frozenset[str]().union(*(used for _, used in parts))
