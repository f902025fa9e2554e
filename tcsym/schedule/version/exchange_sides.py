# SPDX-License-Identifier: Apache-2.0
"""Few columns beside loops that share the rows' operand -> whether rows as columns take less time.

`Z(a,b,c,d) += X(e,b,a,d) * Y(c,e)` with two d: a tile has d in its lanes, for the sake of Z, and
panels of X for each a and b. With c there, Y has one panel for all of these and X stays as it
lies; only sums are stored across. So the gradient of a convolution's weights: windows are its few
columns, and output channels change places with them.
"""

from __future__ import annotations

from tcsym.index.expr import FALSE, ZERO, Condition, Index, all_of, ge
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.access import value_variables
from tcsym.schedule.analysis.band import Roles, band_of, reductions
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.operands import outer_loops
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.version.contraction_versions import (
    FEW_ROWS,
    column_count,
    streams_in_place,
)
from tcsym.schedule.version.interleaving import SCATTER_TIME, tile_time

MOST_COLUMNS = 15  # a vector of these, or more, wastes little
# Times in tenths of a nanosecond, of 180 products with AVX-512
PANEL_TIME, PERMUTED_TIME = 2, 12  # of an element in a panel; in one that lies along no side
LEAST_GAIN = 100_000  # in a call: less is not worth code of its own


def shared_pays(
    kernel: Kernel, nest: str, roles: Roles, other: Roles, setting: Setting
) -> Condition:
    """other: with rows as columns. FALSE if nothing shares its panels, or sizes do not tell."""
    band = band_of(find_loop(kernel.body, nest))
    own = {other.columns, other.rows, *outer_loops(band, other)}
    if own >= {*band.variables}:
        return FALSE
    tiles = tile_time(kernel, nest, roles, setting) + _panel_time(kernel, nest, roles, setting)
    points = product_of(map(extent, band.loops))
    across = tile_time(kernel, nest, other, setting) + SCATTER_TIME * points
    across = across + _panel_time(kernel, nest, other, setting)
    if not (tiles + across).variables() <= frozenset(kernel.sizes):
        return FALSE
    few = ge(MOST_COLUMNS, column_count(kernel, nest, roles))
    return all_of(
        (few, ge(extent(band.loop(other.columns)), FEW_ROWS), ge(tiles, across + LEAST_GAIN))
    )


def _panel_time(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Index:
    """Of filling the panels of what is streamed, once."""
    band = band_of(find_loop(kernel.body, nest))
    loops, total = {x.variable: x for x in band.loops}, ZERO
    loops |= {y.variable: y for _, around in reductions(band.body) for y in around}
    for r in roles.streamed:
        moved = value_variables(r)
        total = total + product_of(extent(loops[v]) for v in loops if v in moved)
    in_place = streams_in_place(kernel, nest, roles, setting)
    return (PANEL_TIME if in_place else PERMUTED_TIME) * total
