# SPDX-License-Identifier: Apache-2.0
"""Windows over images -> tiles of a row's points with another loop in the lanes, where that pays.

A vector along a row of an image reads neighbours that cross lines of the first cache, once for each
point of the window, and the last vector of a row is mostly empty. In copies with channels side by
side every load is a whole line, all lanes are full, and points of a row share the weights. The
copies cost a block for each element, as if windows had a few terms more: they pay for narrow
images, and for large windows.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import FALSE, TRUE, ZERO, Condition, all_of, ceildiv, ge, negate
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import Band, band_of, reductions
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.overlap import is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.tile.register_tile import can_tile
from tcsym.schedule.tile.window_schedule import ACCUMULATORS, sliding_reads
from tcsym.schedule.version.interleaving import (
    Interleaving,
    copied_elements,
    copies_fit,
)
from tcsym.schedule.version.literal_windows import are_known, symbolic_windows

POINTS = 6  # of a row at once: sums enough in flight, and few rows are shorter
# Tenths of a cycle: of a term of a vector in place, of one of a tile, of the copy of an element
PLACED, TILED, COPIED = 14, 36, 72


class LaneWindows(Struct, frozen=True):
    """How the nest runs interleaved where it `fits`; in less time than in place if it `pays`."""

    interleaving: Interleaving
    fits: Condition
    pays: Condition


def lane_windows(
    kernel: Kernel, nest: str, x: Interleaving, setting: Setting
) -> LaneWindows | None:
    """The nest interleaved as `x` says, in tiles of points of a row; None: never."""
    band = band_of(find_loop(kernel.body, nest))
    row = _row(kernel, band, x)
    if row is None or len({(u.buffer, u.subscripts) for u, _ in reductions(band.body)}) != 1:
        return None
    shorter = _takes_less_time(kernel, band, x, row, setting)
    if shorter is None:
        return None
    lanes, n = setting.lanes(kernel, band.body), extent(band.loop(row))
    straight = all_of((_is_straight(kernel, band), ge(n, lanes)))
    full = all_of((ge(extent(band.loop(x.loop)), lanes), ge(n, POINTS)))
    pays = all_of((copies_fit(kernel, x, setting), negate(straight), shorter))
    if in_context(kernel, all_of((full, pays))) == FALSE:
        return None
    return LaneWindows(replace(x, rows=row, height=POINTS), full, pays)


def _row(kernel: Kernel, band: Band, x: Interleaving) -> str | None:
    """The innermost loop along which windows slide: its points lie side by side in the copies."""
    for v in reversed(band.variables):
        if v == x.loop or v in x.outer or not sliding_reads(band, v):
            continue
        points = frozenset((x.loop, v))
        if can_tile(band, x.loop, v, x.outer) and is_repeatable(kernel, band.body, points):
            return v
    return None


def _takes_less_time(
    kernel: Kernel, band: Band, x: Interleaving, row: str, setting: Setting
) -> Condition | None:
    """Than tiles in place; None if sizes cannot tell."""
    inside = [y for y in band.loops if y.variable not in x.outer]
    terms = sum((product_of(map(extent, around)) for _, around in reductions(band.body)), ZERO)
    rows = product_of(extent(y) for y in inside if y.variable not in (x.loop, row))
    counts = (terms, *map(extent, inside))
    if not all(n.variables() <= frozenset(kernel.sizes) for n in counts):
        return None
    lanes, n, columns = setting.lanes(kernel, band.body), extent(band.loop(x.loop)), band.loop(row)
    place = n * rows * terms * ceildiv(extent(columns), lanes) * PLACED
    tiles = rows * terms * ceildiv(extent(columns), POINTS) * TILED
    copies = sum(copied_elements(kernel, x), ZERO) * COPIED
    return ge(place, ceildiv(n, lanes) * (tiles + copies))


def _is_straight(kernel: Kernel, band: Band) -> Condition:
    """In place, full vectors have the whole window as straight code, which takes half the time."""
    if are_known(band, ACCUMULATORS):
        return TRUE
    windows = symbolic_windows(kernel, band, ACCUMULATORS)
    return windows.are_literal if windows.loops else FALSE
