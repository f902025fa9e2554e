# SPDX-License-Identifier: Apache-2.0
"""Which loops are one side of a register tile."""

from __future__ import annotations

import pytest

from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel
from tcsym.options import Options
from tcsym.schedule.analysis.band import band_of, contraction_roles
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.version.contraction_sides import Sides, contraction_sides
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import AVX2


def four_loops(order: str, left: str, right: str, sizes: str = "A B C D K") -> Kernel:
    """Z[order] += X[left] * Y[right], summed over k."""
    at = v(" ".join(order))
    term = op("mul", rd("X", *v(" ".join(left))), rd("Y", *v(" ".join(right))))
    body = red("k", "K", up("Z", at, "add", term))
    node = par(order[-1], order[-1].upper(), st("Z", at, con(0.0)), body)
    for x in reversed(order[:-1]):
        node = par(x, x.upper(), node)
    shapes = {"X": left, "Y": right, "Z": order}
    buffers = [buf(n, " ".join(s.upper())) for n, s in shapes.items()]
    return kernel("f", sizes, buffers, node)


def sides(k: Kernel, nest: str, pack: bool) -> Sides:
    roles = contraction_roles(k, band_of(find_loop(k.body, nest)))
    assert roles is not None
    return contraction_sides(
        k, nest, roles, Setting(AVX2, Options(), Names.of(k), []).with_tiling(packs=pack)
    )


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize(
    ("order", "left", "right", "rows"),
    [
        ("acbd", "kab", "kcd", "A*B"),  # b lies in the loop a, which the stores leave for c
        ("dacb", "abk", "ckd", "C*D"),  # c is moved around d
        ("abc", "bka", "kc", "A"),  # the stores run on from a to b: nothing is gained
    ],
)
def test_rows_are_two_loops_where_one_may_be_short(
    order: str, left: str, right: str, rows: str, pack: bool
) -> None:
    k = four_loops(order, left, right)
    found = sides(k, order[0], pack)
    assert found.roles.rows is not None
    band = band_of(find_loop(found.kernel.body, found.nest))
    assert str(extent(band.loop(found.roles.rows))) == rows
