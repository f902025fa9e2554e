# SPDX-License-Identifier: Apache-2.0
"""Contractions with little reuse -> beside them, strips along a loop that one operand lies along.

`Z(a,b,c,d) += X(d,b,e,a) * Y(e,c)` with two c: the register tile has d in its lanes, for the sake
of Z, and two rows; X is copied for them. X as it lies has a in the lanes: each of its elements is
loaded once for each c, and only sums are stored across. Which of both takes less time depends on
how much of a tile is in use, and how often: only the call knows.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.index.expr import FALSE, ONE, ZERO, Condition, Index, ceildiv, ge, minimum
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.access import stride, value_variables
from tcsym.schedule.analysis.band import Band, Roles, band_of, factors, reductions, roles_at
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import Strips, Version
from tcsym.schedule.tile.strip_schedule import can_strip
from tcsym.schedule.version.contraction_versions import (
    exchanged,
    has_windows,
    streams_in_place,
)
from tcsym.schedule.version.interleaving import tile_time

LEAST_LOOPS = 3  # of the band; a product of two matrices has a version with its sides exchanged
# Times in tenths of a nanosecond, with AVX-512
STRIP_TIME, STRIP_TERM_TIME = 60, 6  # of a vector of sums stored across, and of each of its terms
COPY_TIME = 2  # of an element of an operand in a panel


def strips_along(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Strips]]:
    """Strips along such a loop, if there is one."""
    roles = roles_at(kernel, nest)
    band = band_of(find_loop(kernel.body, nest))
    columns = None if roles is None else next(_candidates(kernel, band, roles), None)
    if len(band.loops) < LEAST_LOOPS or columns is None or has_windows(kernel, nest):
        return
    if roles is None or setting.lanes(kernel, band.body) == 1:
        return
    pays = _pays(kernel, nest, roles, columns, setting)
    note = f"little reuse: strips along {columns}"
    yield Version(pays, Strips(columns, vectors=1), "before", note=note, keeps_rest=True)


def _candidates(kernel: Kernel, band: Band, roles: Roles) -> Iterator[str]:
    """Loops that move a factor of each term, by neighbours, and no other one; not those of tiles,
    which have a version of their own with columns and rows exchanged."""
    terms = [factors(x) for x, _ in reductions(band.body)]
    for v in band.variables:
        steps = [[stride(kernel.buffer(r.tensor), r.subscripts, v) for r in t] for t in terms]
        along = all(t.count(ONE) == 1 and t.count(ZERO) == len(t) - 1 for t in steps)
        if along and v not in (roles.columns, roles.rows) and can_strip(kernel, band, v):
            yield v


def _pays(kernel: Kernel, nest: str, roles: Roles, columns: str, setting: Setting) -> Condition:
    """FALSE if sizes do not tell."""
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    terms = product_of(extent(y) for _, around in reductions(band.body) for y in around)
    vectors = ceildiv(extent(band.loop(columns)), lanes)
    for x in band.loops:
        vectors = vectors * (extent(x) if x.variable != columns else ONE)
    strips = vectors * (STRIP_TIME + STRIP_TERM_TIME * terms)
    tiles, other = tile_time(kernel, nest, roles, setting), exchanged(kernel, nest, roles)
    if other is not None:
        tiles = minimum(tiles, tile_time(kernel, nest, other, setting))
    tiles = tiles + _copied(kernel, nest, roles, setting)
    used = strips.variables() | tiles.variables()
    return ge(tiles, strips) if used <= frozenset(kernel.sizes) else FALSE


def _copied(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Index:
    """Time to copy what tiles stream."""
    if streams_in_place(kernel, nest, roles, setting):
        return ZERO
    band, total = band_of(find_loop(kernel.body, nest)), ZERO
    loops = {x.variable: x for x in band.loops}
    loops |= {y.variable: y for _, around in reductions(band.body) for y in around}
    for r in roles.streamed:
        moved = (loops[v] for v in loops if v in value_variables(r))
        total = total + COPY_TIME * product_of(map(extent, moved))
    return total
