# SPDX-License-Identifier: Apache-2.0
"""Leaf schedule `contraction`: a register tile over packed panels, the band's epilogue on it."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tcsym.frontend.program import Call, dtype_of
from tcsym.index.expr import ONE, ZERO, Index, floordiv, index, maximum, var
from tcsym.ir.bounds import extent, least
from tcsym.ir.loops import Kernel, Loop, Node, Update
from tcsym.ir.packed import SHORT
from tcsym.ir.traverse import map_node
from tcsym.schedule.analysis.assume import most_in_context
from tcsym.schedule.analysis.band import Roles, band_of, is_fused, reductions, roles_of
from tcsym.schedule.analysis.loops import (
    chain_of,
    find_loop,
    is_leaf,
    loops_around,
    loops_in,
    outermost_loop,
    replace_loop,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.operands import (
    Operand,
    is_held,
    outer_loops,
    widened_terms,
)
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.vector_legality import vector_refusal
from tcsym.schedule.order.fuse_reductions import fuse_reductions
from tcsym.schedule.order.interchange import can_sink
from tcsym.schedule.order.order_reductions import order_reductions
from tcsym.schedule.split.narrow_edge import narrow_edge
from tcsym.schedule.stage.pack_operand import (
    fill_before,
    fill_inside,
    panel_extents,
    reuse_loop,
)
from tcsym.schedule.stage.packed_steps import pack_steps
from tcsym.schedule.stage.panels import (
    Panels,
    Room,
    block_panels,
    threads_left,
)
from tcsym.schedule.tile.register_tile import (
    Tiled,
    TileShape,
    can_tile,
    tile_registers,
)
from tcsym.schedule.version.contraction_sides import contraction_sides

CONSTANT_UNROLL = 4
MOST_STATEMENTS = 160
LEAST_TILES = 8  # of a panel, so that each row of its source is read in a run worth its page


def contraction_refusal(kernel: Kernel, nest: str, roles: Roles | None) -> str | None:
    """Why the nest is not a register-tiled contraction, or None."""
    band = band_of(find_loop(kernel.body, nest))
    if roles is None or roles.rows is None:
        return "no contraction with rows and columns"
    points = frozenset((roles.columns, roles.rows))
    if not can_sink(band.body, points):
        return "bounds or conditions move with the tile"
    if any(x.order == "parallel" and not is_leaf(x) for x in loops_in(band.body)):
        return "several nests share the band"
    if not can_tile(band, roles.columns, roles.rows, outer_loops(band, roles)):
        return "bounds of the band move with each other"
    return vector_refusal(kernel, band.body, roles.columns)


def schedule_contraction(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Kernel:
    """Register tile of rows x columns; the streamed operands packed. Needs no refusal."""
    kernel, names = widened_terms(kernel, nest), setting.names
    if setting.tiling.packs:
        kernel = pack_steps(order_reductions(kernel, nest, roles), nest, roles, setting).kernel
        roles = _roles_of(kernel, nest, roles)
    body = band_of(find_loop(kernel.body, nest)).body
    shape = tile_shape(kernel, body, roles, setting)
    sides = contraction_sides(kernel, nest, roles, setting)
    kernel, roles, outer = sides.kernel, sides.roles, sides.outer
    band = band_of(find_loop(kernel.body, sides.nest))
    inner = frozenset(x.variable for x in loops_in(band.body))
    tiled = tile_registers(kernel, band, roles.columns, roles.rows, outer, shape, names)
    kernel = _fill_stationary(tiled, sides.stationary, shape, names)
    kernel = _fill_streamed(replace(tiled, kernel=kernel), sides.streamed, shape, setting)
    kernel, left = fuse_reductions(kernel, inner, names)
    kernel = _unroll_reductions(kernel, frozenset(left), setting.tiling.unroll)
    assert roles.rows is not None
    columns, rows = (extent(band.loop(v)) for v in (roles.columns, roles.rows))
    masked = not setting.tiling.packs
    kernel = narrow_edge(kernel, tiled, columns, rows, shape, names, masked)
    return _single_row_tile(kernel, tiled, rows, shape)


def _roles_of(kernel: Kernel, nest: str, roles: Roles) -> Roles:
    assert roles.rows is not None
    found = roles_of(band_of(find_loop(kernel.body, nest)), roles.columns, roles.rows)
    return found or roles


def _single_row_tile(kernel: Kernel, tiled: Tiled, rows: Index, shape: TileShape) -> Kernel:
    """One iteration, known as such, where a block has rows for one tile: addresses move out."""
    tile = tiled.row_tile
    if tile is None:
        return kernel
    some = least(rows, loops_around(kernel.body, tile))
    if not some or some < 1 or most_in_context(kernel, rows) > shape.rows:
        return kernel
    body = replace_loop(kernel.body, tile, lambda x: replace(x, lower=ZERO, upper=ONE))
    return replace(kernel, body=body)


def _fill_stationary(
    tiled: Tiled, operands: tuple[Operand, ...], shape: TileShape, names: Names
) -> Kernel:
    """Panels of row tiles, all before the loops that reuse them."""
    kernel, rows = tiled.kernel, TileShape(1, shape.rows, 1)
    for operand in operands:
        assert tiled.row_tile is not None
        before = reuse_loop(kernel, operand, tiled.row_tile) or tiled.column_tile
        kernel = fill_before(kernel, operand, tiled.row_tile, before, rows, names)
    return kernel


def _fill_streamed(
    tiled: Tiled, operands: tuple[Operand, ...], shape: TileShape, setting: Setting
) -> Kernel:
    """Panels before the loops that reuse them whole; the others panel by panel. Those of constants
    are made once, before all loops (`stage.binding`)."""
    kernel, tile, names = tiled.kernel, tiled.column_tile, setting.names
    inside: list[Operand] = []
    once: list[Operand] = []
    for operand in operands:
        before = reuse_loop(kernel, operand, tile)
        if is_held(kernel, operand):
            once += [operand] if before is None else []
            before = outermost_loop(kernel.body, tile).variable
        if before is None:
            inside.append(operand)
        else:
            kernel = fill_before(kernel, operand, tile, before, shape, names)
    if operands and len(inside) + len(once) == len(operands):
        fit = _tiles_that_fit(kernel, [*inside, *once], tile, shape, setting)
        threads = threads_left(kernel, tile, setting)
        room = Room(_share(setting), fit, shape.rows, threads)
        kernel, panels = block_panels(kernel, tile, tiled.row_tile, room, setting)
    else:
        panels = Panels(tile, var(tile), var(tile) + 1, ONE)
    for operand in inside:
        kernel = fill_inside(kernel, operand, tile, panels, shape, names)
    return kernel


def _tiles_that_fit(
    kernel: Kernel, operands: list[Operand], tile: str, shape: TileShape, setting: Setting
) -> Index:
    """How many tiles a panel may have. Those of long sums leave the second cache: their steps are
    streamed in order from the next one, which costs less than panels of a tile or two."""
    around = loops_around(kernel.body, tile)
    total = ZERO
    for operand in operands:
        own = tuple([x for x in operand.inner if x not in around])
        operand = replace(operand, inner=own)
        size = index(shape.columns * dtype_of(operand.value).bytes)
        for e in panel_extents(kernel, operand, around, shape):
            size = size * e
        total = total + size
    return maximum(LEAST_TILES, floordiv(_share(setting), total))


def _share(setting: Setting) -> int:
    """Bytes of the second cache that a panel may take."""
    return setting.machine.level("l2").bytes // 2


def tile_shape(kernel: Kernel, body: Node, roles: Roles, setting: Setting) -> TileShape:
    """The target's register tile, with fewer rows if several elements are accumulated, or if a
    term needs registers of its own before it is added."""
    lanes = setting.lanes(kernel, body)
    vectors = max(setting.vectors, 2) if lanes == 1 else setting.vectors
    accumulators = max(1, roles.accumulators)
    rows = setting.rows // accumulators
    assert roles.rows is not None
    terms = [x for x, _ in reductions(body)]
    fused = all(is_fused(x, roles.columns, roles.rows) for x in terms)
    if not setting.tiling.rows and not fused:
        rows = min(rows, setting.machine.vector_registers // 2 // vectors // accumulators)
    if not setting.tiling.rows and any(map(_is_added_apart, terms)):
        rows = min(rows, setting.machine.vector_registers * 3 // 8 // vectors // accumulators)
    return TileShape(max(1, rows), vectors, lanes, setting.machine.has_masks)


def _is_added_apart(x: Update) -> bool:
    """A product that many processors add by another instruction: all of a step are in flight."""
    return isinstance(x.value, Call) and x.value.function == SHORT


def _unroll_reductions(kernel: Kernel, loops: frozenset[str], steps: int) -> Kernel:
    """Short constant reduction loops are unrolled, the innermost long ones by a few."""

    def change(x: Node) -> Node:
        if not (isinstance(x, Loop) and x.variable in loops):
            return x
        n = extent(x).as_int()
        short = n is not None and n <= CONSTANT_UNROLL and x.lower.as_int() == 0
        if short and _is_short_code(x):
            return replace(x, kind="unrolled")
        innermost = not any(y.variable in loops for y in loops_in(x.body))
        return replace(x, unroll=steps) if innermost else x

    return replace(kernel, body=map_node(kernel.body, change))


def _is_short_code(loop: Loop) -> bool:
    """Few statements, and no loop at run time inside. With more of them than registers can serve,
    elements that loops around use again are kept on the stack, a vector of copies each."""
    chain = chain_of(loop)
    straight = all(x.kind != "serial" for x in chain[1:])
    copies = math.prod(extent(x).as_int() or 1 for x in chain if x.kind != "vector")
    return straight and copies <= MOST_STATEMENTS
