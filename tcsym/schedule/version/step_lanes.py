# SPDX-License-Identifier: Apache-2.0
"""Steps of a scan that sum a few terms for a few columns -> rows in the lanes, where they lie.

`for t { S(t,b,h) +=! S(t-1,b,k) * U(h,k) }` with a hidden unit or two: a register tile has one
column in use, a vector along the sum one term, and what follows, a tanh, is made for one element at
a time. Rows fill vectors. Their elements lie apart, which costs a gather for each term and for each
operand of a column; a step is too short for copies.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.index.expr import all_of, ge, maximum
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.band import band_of, reductions, roles_at
from tcsym.schedule.analysis.loops import find_loop, loops_around
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import Lanes, Version
from tcsym.schedule.version.short_rows import in_lanes

MOST_GATHERS = 15  # for a vector of rows, of terms and of what follows: tiles take as long
OTHERS = 2  # an operand of what follows, and the result


def step_lanes(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Lanes]]:
    """Rows in lanes, if the nest is part of a step."""
    roles = roles_at(kernel, nest)
    around = loops_around(kernel.body, nest)
    if roles is None or roles.rows is None or not any(x.is_steps for x in around):
        return
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    columns = product_of(extent(x) for x in band.loops if x.variable != roles.rows)
    sums = {product_of(map(extent, loops)) for _, loops in reductions(band.body)}
    terms = maximum(*sums)
    rows = extent(band.loop(roles.rows))
    used = columns.variables() | terms.variables() | rows.variables()
    if lanes == 1 or not used <= frozenset(kernel.sizes):
        return
    few = all_of((ge(MOST_GATHERS, columns * (terms + OTHERS)), ge(rows, lanes)))
    yield from in_lanes(kernel, nest, roles.rows, few)
