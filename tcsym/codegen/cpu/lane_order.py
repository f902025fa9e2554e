# SPDX-License-Identifier: Apache-2.0
"""Register buffers whose lanes stay in the order in which shuffles leave them.

Every second element of two vectors comes out of one shuffle within halves of 128 bits, in another
order; a second shuffle, across the halves, costs as much as three others on AMD Zen. A buffer that
only gathers such loads keeps their order, and is put right where another statement reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tcsym.frontend.program import Binary, Call, Const, Read, Unary
from tcsym.index.expr import ONE, ZERO, Index, condition_variables, of_atom
from tcsym.ir.loops import Allocate, Block, Branch, Buffer, Loop, Node, Store, Update, Value
from tcsym.ir.traverse import loads, subvalues
from tcsym.target.machine import Machine
from tcsym.types import DType

HALVES = 256  # bits of the vectors that have this order; wider ones shuffle across at once


class LaneOrder(Struct, frozen=True):
    """`buffers` in shuffled order. `whole`: trips of unrolled loops whose copies all run alike."""

    buffers: frozenset[str] = frozenset()
    whole: tuple[tuple[str, int], ...] = ()


class _Place(Struct, frozen=True):
    """A statement, its vector loop if it has one, and whether all its lanes always run."""

    statement: Store | Update
    lanes: Loop | None
    plain: bool


def shuffled(width: int) -> tuple[int, ...]:
    """The lane at each position: of each half, those from the first vector, then the second."""
    per = width // 4
    return tuple(
        vector * width // 2 + half * per + k
        for half in range(2)
        for vector in range(2)
        for k in range(per)
    )


def restored(width: int) -> tuple[int, ...]:
    """The position of each lane."""
    order = shuffled(width)
    return tuple(order.index(lane) for lane in range(width))


def lane_order(body: Node, buffers: dict[str, Buffer], machine: Machine) -> LaneOrder:
    """Which buffers of `body` can stay shuffled."""
    if machine.vector_bits != HALVES:
        return LaneOrder()
    places = list(_places(body, None, True))
    wanted = {p.statement.buffer for p in places if _gathers_pairs(p, buffers)}
    refused = {
        name
        for p in places
        if wanted
        for name in wanted & {p.statement.buffer, *(r.tensor for r in loads(p.statement.value))}
        if not _keeps(p, name, buffers)
    }
    kept = frozenset(wanted - refused)
    return LaneOrder(kept, tuple(_whole_loops(body))) if kept else LaneOrder()


def _places(node: Node, lanes: Loop | None, plain: bool) -> Iterator[_Place]:
    match node:
        case Store() | Update():
            yield _Place(node, lanes, plain)
        case Loop():
            if node.kind == "vector":
                yield from _places(node.body, node, node.mask is None)
            else:
                yield from _places(node.body, lanes, plain)
        case Branch(c, a, b):
            same = lanes is None or lanes.variable not in condition_variables(c)
            for arm in (a, b):
                if arm is not None:
                    yield from _places(arm, lanes, plain and same)
        case Block(body):
            for x in body:
                yield from _places(x, lanes, plain)
        case Allocate(_, body):
            yield from _places(body, lanes, plain)
        case _:
            pass


def _gathers_pairs(p: _Place, buffers: dict[str, Buffer]) -> bool:
    x, lanes = p.statement, p.lanes
    if not isinstance(x, Update) or lanes is None or buffers[x.buffer].space != "register":
        return False
    return any(is_strided_row(r, lanes.variable, buffers) for r in loads(x.value))


def is_strided_row(r: Read, lane: str, buffers: dict[str, Buffer]) -> bool:
    """Lanes read every second element of a row, without checks."""
    *outer, last = [s if isinstance(s, Index) else None for s in r.subscripts] or [None]
    if last is None or None in outer or last.coefficient(lane) != 2:
        return False
    buffer = buffers[r.tensor]
    if buffer.space == "register" or any(r.checked) or r.unwritten is not None:
        return False
    moving = [a for a, _ in last.terms if lane in of_atom(a).variables()]
    inside = any(lane in s.variables() for s in outer if s is not None)
    return not inside and moving == [lane] and _has_unit_rows(buffer)


def _has_unit_rows(buffer: Buffer) -> bool:
    return buffer.strides is None or buffer.strides[-1] == ONE


def _keeps(p: _Place, name: str, buffers: dict[str, Buffer]) -> bool:
    """The statement works, or reads `name`, with whole vectors in any order of their lanes."""
    x, lanes, buffer = p.statement, p.lanes, buffers[name]
    if lanes is None or not p.plain:
        return False
    width = lanes.upper.as_int() or 0
    if width * buffer.dtype.bits != HALVES or buffer.dtype.bits < 32:
        return False
    own = [r.subscripts for r in loads(x.value) if r.tensor == name]
    if x.buffer == name:
        own.append(x.subscripts)
    if not all(_is_whole(s[-1], lanes.variable, width) for s in own if s):
        return False
    return x.buffer != name or all(
        is_elementwise(v, buffer.dtype, lanes.variable, buffers, name) for v in subvalues(x.value)
    )


def _is_whole(s: object, lane: str, width: int) -> bool:
    """One vector: the lane and multiples of its width."""
    if not isinstance(s, Index) or s.coefficient(lane) != 1:
        return False
    others = [(a, c) for a, c in s.terms if a != lane]
    return s.constant % width == 0 and all(
        c % width == 0 and lane not in of_atom(a).variables() for a, c in others
    )


def is_elementwise(
    v: Value, dtype: DType, lane: str, buffers: dict[str, Buffer], own: str = ""
) -> bool:
    """Computed alike in each lane, of elements in shuffled order: `own`'s are kept so."""
    match v:
        case Const() | Unary() | Call():
            return True
        case Binary():
            return v.op not in ("and", "or")
        case Read():
            uniform = all(isinstance(s, Index) and lane not in s.variables() for s in v.subscripts)
            same_bits = buffers[v.tensor].dtype == dtype
            return v.tensor == own or (same_bits and (uniform or is_strided_row(v, lane, buffers)))
        case _:
            return False


def _whole_loops(node: Node) -> Iterator[tuple[str, int]]:
    """Unrolled reductions of which no branch inside leaves out single copies."""
    match node:
        case Loop():
            trips = node.upper.as_int()
            reduces = node.kind == "unrolled" and node.order == "reduction" and node.mask is None
            if reduces and trips and node.lower == ZERO and not _asks(node.body, node.variable):
                yield node.variable, trips
            yield from _whole_loops(node.body)
        case Branch(_, a, b):
            yield from _whole_loops(a)
            if b is not None:
                yield from _whole_loops(b)
        case Block(body):
            for x in body:
                yield from _whole_loops(x)
        case Allocate(_, body):
            yield from _whole_loops(body)
        case _:
            pass


def _asks(node: Node, variable: str) -> bool:
    """A condition, a mask or a bound inside uses the variable."""
    match node:
        case Loop():
            bounds = [node.lower, node.upper, *([] if node.mask is None else [node.mask])]
            return any(variable in e.variables() for e in bounds) or _asks(node.body, variable)
        case Branch(c, a, b):
            inside = variable in condition_variables(c) or _asks(a, variable)
            return inside or (b is not None and _asks(b, variable))
        case Block(body):
            return any(_asks(x, variable) for x in body)
        case Allocate(_, body):
            return _asks(body, variable)
        case _:
            return False
