"""Leaf schedule `windows`: register tiles of rows x columns where windows slide over an operand.

Depthwise convolution, pooling, stencils with reductions: nothing is worth packing, but
neighbouring rows read each other's elements, or share the weights. The tile's accumulators stay in
registers while the window's points pass by. Tiles at the end of a row or of the rows overlap their
neighbours, so that whole vectors are loaded and stored without masks; images smaller than a tile
get masks.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.frontend.program import Call, Read
from tcsym.index import FALSE, TRUE, Condition, Index, all_of, ge
from tcsym.loop_ir import Branch, Kernel, Loop, Node, Store, loads, subvalues, walk
from tcsym.polyhedral.passes.access import accesses, subscript_variables
from tcsym.polyhedral.passes.band import Band, band_of, reductions
from tcsym.polyhedral.passes.bounds import extent
from tcsym.polyhedral.passes.duplicate import duplicate
from tcsym.polyhedral.passes.interchange import can_sink, reorder_chain
from tcsym.polyhedral.passes.loops import find_loop, loops_in, replace_loop, statements_in
from tcsym.polyhedral.passes.names import Names
from tcsym.polyhedral.passes.register_tile import TileShape, can_tile, tile_registers
from tcsym.polyhedral.passes.setting import Setting
from tcsym.polyhedral.passes.unroll_window import unroll_window
from tcsym.polyhedral.passes.vector_legality import can_mask

ACCUMULATORS = 8
ROWS = 4


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
        inner = {y.variable for y in around}
        for r in loads(x.value):
            used = [s.variables() for s in r.subscripts if isinstance(s, Index)]
            if any(rows in u and u & inner for u in used):
                found.add(r)
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


def schedule_windows(
    kernel: Kernel, nest: str, columns: str, rows: str, setting: Setting
) -> Kernel | None:
    """Overlapping tiles where both extents fill one, masked tiles elsewhere. None: not possible."""
    band, names = band_of(find_loop(kernel.body, nest)), setting.names
    lanes = setting.lanes(kernel, band.body)
    shape = _shape(band, lanes)
    narrow = TileShape(shape.rows, 1, lanes)
    if not can_mask(kernel, band.body, setting.target):
        return None
    if is_repeatable(kernel, band.body, frozenset((columns, rows))):
        for whole in dict.fromkeys((shape, narrow)):
            fits = _fits(band, columns, rows, whole)
            if fits == TRUE:
                return _tile(kernel, columns, rows, whole, names, True)
            if fits == FALSE:
                continue
            kernel, copy, new = duplicate(kernel, find_loop(kernel.body, nest), names)
            body = _branch(kernel.body, nest, fits, copy)
            kernel = _tile(replace(kernel, body=body), columns, rows, whole, names, True)
            nest, columns, rows = new[nest], new[columns], new[rows]
            band = band_of(find_loop(kernel.body, nest))
    return _tile(kernel, columns, rows, narrow, names, False)


def _branch(node: Node, nest: str, condition: Condition, orelse: Node) -> Node:
    return replace_loop(node, nest, lambda x: Branch(condition, x, orelse))


def _fits(band: Band, columns: str, rows: str, shape: TileShape) -> Condition:
    """Both loops fill a tile."""
    wide = ge(extent(band.loop(columns)), shape.columns)
    return all_of((wide, ge(extent(band.loop(rows)), shape.rows)))


def _shape(band: Band, lanes: int) -> TileShape:
    """Four rows of vectors, as many as keep additions in flight without filling the registers."""
    targets = {(x.buffer, x.subscripts) for x, _ in reductions(band.body)}
    calls = any(
        isinstance(v, Call) for x, _ in statements_in(band.body) for v in subvalues(x.value)
    )
    vectors = 1 if calls else ACCUMULATORS // (ROWS * max(1, len(targets)))
    return TileShape(ROWS, max(1, vectors), lanes)


def is_repeatable(kernel: Kernel, body: Node, variables: frozenset[str]) -> bool:
    """An iteration of the loops may be made twice: it reads nothing that they leave behind."""
    read = {a.buffer for a in accesses(body) if not a.written}
    for x, _ in statements_in(body):
        buffer = getattr(x, "buffer", None)
        if buffer is None or variables <= kernel.buffer(buffer).private:
            continue
        if not isinstance(x, Store) or buffer in read:
            return False
    return True


def _tile(
    kernel: Kernel, columns: str, rows: str, shape: TileShape, names: Names, overlapping: bool
) -> Kernel:
    """Row tiles outside column tiles; short constant windows unrolled row by row of the operand."""
    top = _outermost(kernel, columns, rows)
    band = band_of(find_loop(kernel.body, top))
    inner = tuple(x.variable for x in loops_in(band.body))
    others = tuple(v for v in band.variables if v not in (columns, rows))
    tiled = tile_registers(kernel, band, columns, rows, (), shape, names, overlapping)
    kernel = tiled.kernel
    assert tiled.row_tile is not None
    order = (*others, tiled.row_tile, tiled.column_tile)
    body = replace_loop(kernel.body, tiled.top, lambda x: reorder_chain(x, order))
    kernel = replace(kernel, body=body)
    return unroll_window(kernel, inner, names) if overlapping else kernel


def _outermost(kernel: Kernel, a: str, b: str) -> str:
    return next(
        x.variable for x, _ in walk(kernel.body) if isinstance(x, Loop) and x.variable in (a, b)
    )
