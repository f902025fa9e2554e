# SPDX-License-Identifier: Apache-2.0
"""Leaf schedule `windows`: register tiles of rows x columns where windows slide over an operand.

Depthwise convolution, pooling, stencils with reductions: nothing is worth packing, but
neighbouring rows read each other's elements, or share the weights. The tile's accumulators stay in
registers while the window's points pass by. Tiles at the end of a row or of the rows overlap their
neighbours, so that whole vectors are loaded and stored without masks. Few long rows, as of images
seen as one row, are done one by one; other images smaller than a tile get masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from msgspec.structs import replace

from tcsym.frontend.program import Call, Read
from tcsym.index.expr import FALSE, all_of, negate
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node
from tcsym.ir.packed import is_dot
from tcsym.ir.traverse import loads, subvalues, walk
from tcsym.schedule.analysis.access import accesses, subscript_variables
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import Band, band_of, reductions
from tcsym.schedule.analysis.loops import find_loop, loops_in, replace_loop, statements_in
from tcsym.schedule.analysis.overlap import fits_tiles, is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.sliding import slides
from tcsym.schedule.analysis.vector_legality import can_mask
from tcsym.schedule.order.interchange import can_sink, reorder_chain
from tcsym.schedule.plan import Version, WindowTile, always
from tcsym.schedule.tile.register_tile import TileShape, can_tile, tile_registers
from tcsym.schedule.tile.unroll_window import unroll_window
from tcsym.schedule.version.literal_windows import (
    LITERAL,
    Windows,
    literal_copy,
    symbolic_windows,
)

ACCUMULATORS = 8
ROWS = 4
NO_WINDOWS = Windows(())
OPERANDS = 2  # registers for what streams past the accumulators and the weights


def window_rows(kernel: Kernel, nest: str, columns: str) -> str | None:
    """The loop to unroll over, innermost of those with the most shared reads; None: no window."""
    band = band_of(find_loop(kernel.body, nest))
    best, most = None, 0
    for v in reversed(band.variables):
        if v == columns or not _can_unroll(kernel, band, columns, v):
            continue
        n = sliding_reads(band, v)
        if n > most:
            best, most = v, n
    return best


def sliding_reads(band: Band, rows: str) -> int:
    """Reads of which some subscript moves with both the rows and a reduction."""
    found: set[Read] = set()
    for x, around in reductions(band.body):
        found.update(
            r for r in loads(x.value) if any(slides(s, rows, around) for s in r.subscripts)
        )
    return len(found)


def _can_unroll(kernel: Kernel, band: Band, columns: str, rows: str) -> bool:
    inner = _from(band, columns, rows)
    bounds = [e for v in (columns, rows) for e in (band.loop(v).lower, band.loop(v).upper)]
    fixed = not any(e.variables() & set(band.variables) for e in bounds)
    return (
        fixed
        and can_sink(band.body, frozenset((columns, rows)))
        and can_tile(inner, columns, rows, ())
        and _is_reduction_only(band.body)
    )


def _is_reduction_only(body: Node) -> bool:
    """All loops inside reduce into elements that no loop moves: accumulators fit registers."""
    inside = {x.variable for x in loops_in(body)}
    written = [a for a in accesses(body) if a.written]
    return not any(subscript_variables(a.subscripts) & inside for a in written)


def _from(band: Band, columns: str, rows: str) -> Band:
    """The part of the band that starts with the outer one of both loops."""
    first = min(band.variables.index(v) for v in (columns, rows))
    return Band(band.loops[first:], band.body)


def can_tile_windows(kernel: Kernel, nest: str, columns: str, setting: Setting) -> bool:
    body = band_of(find_loop(kernel.body, nest)).body
    return can_mask(kernel, body, setting.machine, columns)


def window_tiles(
    kernel: Kernel, nest: str, columns: str, rows: str, setting: Setting
) -> Iterator[Version[WindowTile]]:
    """Overlapping tiles where both extents fill one, masked ones elsewhere.

    Windows of symbolic size have a version as straight code beside their loops, in the tiles that
    suit it best and in narrower ones. Contract: `can_tile_windows`.
    """
    band, note = band_of(find_loop(kernel.body, nest)), f"windows, columns {columns}, rows {rows}"
    lanes = setting.lanes(kernel, band.body)
    shape = _shape(band, columns, rows, lanes, setting)
    narrow, flat = TileShape(shape.rows, 1, lanes), TileShape(1, shape.rows, lanes)
    tiles = tuple(dict.fromkeys((shape, narrow, flat)))
    again = is_repeatable(kernel, band.body, frozenset((columns, rows)))
    for k, whole in enumerate(tiles if again else ()):
        windows = symbolic_windows(kernel, band, ACCUMULATORS)
        fits = fits_tiles(band, columns, rows, whole)
        literal = _shape(band, columns, rows, lanes, setting, windows)
        if windows.loops and whole != literal:
            if literal in tiles[k:]:
                fits = all_of((fits, negate(windows.are_literal)))
            if literal in tiles[k:] or whole != narrow:
                windows = NO_WINDOWS
        if in_context(kernel, fits) != FALSE:
            plan = _plan(columns, rows, whole, has_literal=bool(windows.loops))
            yield Version(fits, plan, note=note)
            note = ""
    yield always(_plan(columns, rows, narrow, is_masked=True), note)


def whole_window_tile(
    kernel: Kernel, nest: str, columns: str, rows: str, setting: Setting
) -> Version[WindowTile]:
    """Overlapping tiles alone, where they may run."""
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    shape = _shape(band, columns, rows, lanes, setting)
    again = lanes > 1 and is_repeatable(kernel, band.body, frozenset((columns, rows)))
    fits = fits_tiles(band, columns, rows, shape) if again else FALSE
    return Version(fits, _plan(columns, rows, shape))


def _plan(
    columns: str, rows: str, x: TileShape, is_masked: bool = False, has_literal: bool = False
) -> WindowTile:
    return WindowTile(columns, rows, x.rows, x.vectors, is_masked, has_literal)


def schedule_window_tile(kernel: Kernel, nest: str, x: WindowTile, setting: Setting) -> Kernel:
    """Contract: a proposal of this module made the plan."""
    band = band_of(find_loop(kernel.body, nest))
    shape = TileShape(x.n_rows, x.vectors, setting.lanes(kernel, band.body))
    windows: Windows | None = None
    if not x.is_masked:
        windows = symbolic_windows(kernel, band, ACCUMULATORS) if x.has_literal else NO_WINDOWS
    return _tile(kernel, x.columns, x.rows, shape, setting, windows)


def _shape(
    band: Band,
    columns: str,
    rows: str,
    lanes: int,
    setting: Setting,
    literal: Windows = NO_WINDOWS,
) -> TileShape:
    """Four rows of vectors, as many as keep additions in flight without filling the registers.

    One vector each if that lets the weights of a window of known size stay in registers too.
    """
    targets = {(x.buffer, x.subscripts) for x, _ in reductions(band.body)}
    calls = any(
        isinstance(v, Call) and not is_dot(v)
        for x, _ in statements_in(band.body)
        for v in subvalues(x.value)
    )
    vectors = 1 if calls else max(1, ACCUMULATORS // (ROWS * max(1, len(targets))))
    one = ROWS * len(targets)
    free = setting.machine.vector_registers - one - _weights(band, columns, rows, literal)
    if free - one * (vectors - 1) < OPERANDS <= free:
        vectors = 1
    return TileShape(ROWS, vectors, lanes)


def _weights(band: Band, columns: str, rows: str, literal: Windows) -> int:
    """Elements that every point of a tile uses again, as far as the loops' extents are known."""
    found: dict[Read, int] = {}
    for x, around in reductions(band.body):
        for r in loads(x.value):
            used = subscript_variables(r.subscripts)
            if not used & {columns, rows}:
                found[r] = prod(_trips(y, literal) for y in around if y.variable in used)
    return sum(found.values())


def _trips(loop: Loop, literal: Windows) -> int:
    return LITERAL if loop in literal.loops else extent(loop).as_int() or 1


def _tile(
    kernel: Kernel,
    columns: str,
    rows: str,
    shape: TileShape,
    setting: Setting,
    windows: Windows | None,
) -> Kernel:
    """Row tiles outside column tiles; short constant windows unrolled row by row of the operand.

    `windows` get a version for the literal size. None: masked tiles, which do not overlap.
    """
    names = setting.names
    top = _outermost(kernel, columns, rows)
    band = band_of(find_loop(kernel.body, top))
    inner = tuple(x.variable for x in loops_in(band.body))
    others = tuple(v for v in band.variables if v not in (columns, rows))
    overlapping = windows is not None
    tiled = tile_registers(kernel, band, columns, rows, (), shape, names, overlapping)
    kernel = tiled.kernel
    assert tiled.row_tile is not None
    order = (*others, tiled.row_tile, tiled.column_tile)
    body = replace_loop(kernel.body, tiled.top, lambda x: reorder_chain(x, order))
    kernel = replace(kernel, body=body)
    if windows is None:
        return kernel
    if windows.loops:
        literal = literal_copy(kernel, tiled.column_tile, windows, names)
        kernel = literal.before(tiled.column_tile, windows.are_literal)
        inner = (*inner, *(literal.new[v] for v in inner))
    return unroll_window(kernel, inner, names)


def _outermost(kernel: Kernel, a: str, b: str) -> str:
    return next(
        x.variable for x, _ in walk(kernel.body) if isinstance(x, Loop) and x.variable in (a, b)
    )
