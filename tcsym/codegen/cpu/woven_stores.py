# SPDX-License-Identifier: Apache-2.0
"""Stores that fill every element between a vector's lanes -> whole vectors, side by side.

Y(i,0), Y(i,1), Y(i,2) in one vector loop: pixels, complex numbers. Each alone is a store for every
lane, or a run under a mask; together they are as many plain stores, of lanes that take turns.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.codegen.cpu.lane_order import LaneOrder
from tcsym.codegen.cpu.memory import store_run
from tcsym.codegen.scalar.addresses import address, step_by
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.values import Code, Val, constant
from tcsym.ir.loops import Node, Store
from tcsym.ir.traverse import loads

MOST_WOVEN = 4


def grouped(
    context: Context, body: tuple[Node, ...], order: LaneOrder
) -> Iterator[Node | tuple[Store, ...]]:
    """The nodes of a block in order; stores that can be woven as one."""
    k = 0
    while k < len(body):
        ahead = (body[k : k + n] for n in range(2, MOST_WOVEN + 1))
        group = next((g for x in ahead if (g := _woven(context, x, order))), None)
        yield group or body[k]
        k += len(group or (k,))


def _woven(context: Context, nodes: tuple[Node, ...], order: LaneOrder) -> tuple[Store, ...] | None:
    """The nodes from the lowest address on, if they are such stores and read nothing of them."""
    stores = tuple(n for n in nodes if isinstance(n, Store) and not n.streamed)
    if not 1 < len(stores) == len(nodes) or context.width == 1 or context.mask is not None:
        return None
    name, buffer = stores[0].buffer, context.buffers[stores[0].buffer]
    read = any(r.tensor == name for n in stores for r in loads(n.value))
    same = all(n.buffer == name for n in stores)
    if read or not same or buffer.space == "register" or name in order.buffers:
        return None
    start = context.offset_of(buffer, stores[0].subscripts)
    apart = {(context.offset_of(buffer, n.subscripts) - start).as_int(): n for n in stores}
    places = sorted(d for d in apart if d is not None)
    if places != list(range(places[0], places[0] + len(stores))):
        return None
    at = address(context, buffer, stores[0].subscripts)
    if at.offsets is not None or at.stride != len(stores):
        return None
    return tuple(apart[d] for d in places)


def store_woven(context: Context, group: tuple[Store, ...], elements: list[Val]) -> None:
    """`elements`: what each of the group stores, in its order."""
    buffer, code, width = context.buffers[group[0].buffer], context.code, context.width
    at = address(context, buffer, group[0].subscripts)
    lanes = [code.spread(x, width) for x in elements]
    for r in range(len(group)):
        pointer = (
            step_by(context, at.pointer, constant(r * width, "i64"), at.kind) if r else at.pointer
        )
        store_run(context, pointer, _run(code, lanes, r * width), None)
    context.note_store(buffer.name)


def _run(code: Code, parts: list[Val], first: int) -> Val:
    """Lanes of all parts in turn, as many as one has, from the given one on."""
    n, width = len(parts), parts[0].lanes
    turns = [divmod(first + j, n) for j in range(width)]
    found = parts[0]
    for k in range(1, n):
        picks = [
            width + lane if part == k else (lane if k == 1 else j)
            for j, (lane, part) in enumerate(turns)
        ]
        found = code.shuffle(found, parts[k], tuple(picks))
    return found
