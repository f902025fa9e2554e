# SPDX-License-Identifier: Apache-2.0
"""A map that reads along one loop and writes along another -> tiles turned in shared memory.

    for n, m: Y[n, m] = f(X[m, n])
->  blocks of tiles of n x m:  lanes along n: tile = X;  barrier;  lanes along m: Y = f(tile)

So neighbours in a warp are neighbours in memory for both. Rows of a tile are longer by an element,
by which neither way has two lanes in one bank.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, ZERO, all_of, floordiv, lt, mod, var
from tcsym.ir.device import Barrier
from tcsym.ir.loops import Branch, Buffer, Loop, Node, Store, block
from tcsym.ir.traverse import certain_loads, loads, map_node, substitute_node
from tcsym.schedule.analysis.access import stride, subscript_variables
from tcsym.schedule.device.nest import Applied, Grid, Nest
from tcsym.schedule.device.plan import BLOCK_THREADS, TurnedTiles
from tcsym.schedule.device.staged import nested


def turned_loop(nest: Nest) -> str | None:
    """The loop along which all of the map's operands lie that the last one jumps in, if there is
    one such, and results lie along the last loop."""
    store, last = nest.body, nest.chain[-1].variable
    if not isinstance(store, Store) or not _lies_along(nest, store, last):
        return None
    found = _turned(nest)
    if not found or any(any(r.checked) or r.unwritten is not None for r in loads(store.value)):
        return None
    ways = [{v for v in nest.variables if _lies_along(nest, r, v)} for r in found]
    common = set.intersection(*ways) - {last}
    return min(common) if common else None


def _turned(nest: Nest) -> list[Read]:
    """Operands in global memory that move with the last loop, but not along it, and are read at
    every point."""
    store, last = nest.body, nest.chain[-1].variable
    assert isinstance(store, Store)
    moving = [r for r in certain_loads(store.value) if last in subscript_variables(r.subscripts)]
    return list(dict.fromkeys(r for r in moving if not _lies_along(nest, r, last)))


def _lies_along(nest: Nest, x: Read | Store, v: str) -> bool:
    b = nest.kernel.buffer(x.tensor if isinstance(x, Read) else x.buffer)
    return b.space in ("argument", "arena") and stride(b, x.subscripts, v) == ONE


def in_tiles(nest: Nest) -> tuple[Nest, Node, Node, tuple[Buffer, ...]]:
    """The nest with an element of each tile, what a point stores there, what is done with that, and
    the elements: for what that costs."""
    kernel, private = nest.kernel, frozenset(nest.variables)
    tiles = {
        r: Buffer(f"{r.tensor}.tile{k}", r.dtype, (ONE,), "shared", private=private)
        for k, r in enumerate(_turned(nest))
    }
    for b in tiles.values():
        kernel = kernel.with_buffer(b)
    places = {r: Read(b.name, (ZERO,), r.dtype) for r, b in tiles.items()}
    fills = block(*(Store(b.name, (ZERO,), r) for r, b in tiles.items()))
    inside = replace(nest, kernel=kernel)
    return inside, fills, _from(nest.body, places), tuple(tiles.values())


def _from(n: Node, places: Mapping[Read, Read]) -> Node:
    """With elements of tiles for operands."""
    return map_node(n, on_value=lambda v: places.get(v, v) if isinstance(v, Read) else v)


def apply_turned(plan: TurnedTiles, grid: Grid) -> Applied:
    """The nest by the plan, which was proposed for it."""
    nest, names, size = grid.nest, grid.names, plan.size
    last = nest.chain[-1]
    across = nest.loop(plan.across)
    tiled = grid.tiled({across.variable: size, last.variable: size})
    start = tiled.start
    copies = {r: grid.shared("tile", r.dtype, size, size + 1) for r in _turned(nest)}

    def phase(along: Loop, other: Loop, body: Node) -> Node:
        """`body` by all threads, neighbours along one loop."""
        threads, own = grid.threads(BLOCK_THREADS), names.fresh(other.variable)
        lane = mod(var(threads.variable), size)
        rows = BLOCK_THREADS // size
        row = floordiv(var(threads.variable), size) + var(own) * rows
        points = {
            along.variable: start[along.variable] + lane,
            other.variable: start[other.variable] + row,
        }
        inside = all_of(lt(points[x.variable], x.upper) for x in (along, other))
        one = Branch(inside, substitute_node(body, points))
        return replace(threads, body=nested((own,), (size // rows,), one))

    at = tuple(var(x.variable) - start[x.variable] for x in (last, across))
    fills = [Store(b.name, at, r) for r, b in copies.items()]

    turned = _from(nest.body, {r: Read(b.name, at, r.dtype) for r, b in copies.items()})
    phases = phase(across, last, block(*fills)), Barrier(), phase(last, across, turned)
    return tiled.applied(block(*phases))
