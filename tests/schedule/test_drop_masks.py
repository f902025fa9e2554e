# SPDX-License-Identifier: Apache-2.0
"""Vector loops that may compute all lanes have no mask; the others keep theirs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.frontend.program import Expr
from tcsym.index.expr import index, var
from tcsym.ir.loops import Kernel, Loop, Update
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.split.clamp_rows import drop_masks
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, st, v

LANES = 8


def tile(term: Expr, padded: bool = True) -> Kernel:
    """Y(l) = 0 + term for l < N <= 8, summed in a register."""
    (lane, last) = v("l m")
    update = Update("T", (lane,), "add", term)
    sums = Loop("l", index(0), index(LANES), update, "vector", "parallel", var("N"))
    body = par(
        "i",
        1,
        Loop("z", index(0), index(LANES), st("T", (var("z"),), con(0.0)), "vector", "parallel"),
        sums,
        replace(sums, variable="m", body=st("Y", (last,), rd("T", last))),
    )
    buffers = [
        buf("X", (LANES,)),
        buf("Y", (LANES,)),
        replace(buf("P", (LANES,)), padded=True),
        replace(buf("T", (LANES,), private="i"), space="register", padded=padded),
    ]
    return kernel("tile", "N", buffers, body)


def masks(k: Kernel) -> dict[str, bool]:
    loops = [x for x, _ in walk(drop_masks(k).body) if isinstance(x, Loop) and x.kind == "vector"]
    return {x.variable: x.mask is not None for x in loops}


LANE = var("l")


@pytest.mark.parametrize("term", [rd("P", LANE), rd("X", 0), op("mul", rd("P", LANE), rd("X", 3))])
def test_lanes_of_padded_buffers_need_no_mask(term: Expr) -> None:
    k = tile(term)
    assert masks(k) == {"z": False, "l": False, "m": True}  # the store to memory keeps its mask
    assert_same(k, drop_masks(k), {"N": 5})


def test_lanes_of_memory_and_what_depends_on_the_mask_keep_it() -> None:
    assert masks(tile(rd("X", LANE)))["l"]
    assert masks(tile(rd("X", var("N") - 1)))["l"]
    assert masks(tile(replace(rd("X", 0), checked=(True,))))["l"]
    assert masks(tile(rd("P", LANE), padded=False))["l"]


def test_a_tile_may_read_what_moves_with_the_loops_around_it() -> None:
    at = var("s")
    k = tile(op("mul", rd("P", LANE), rd("X", at)))
    tiles = map_node(
        k.body,
        lambda x: replace(x, mask=var("N") - at) if isinstance(x, Loop) and x.mask else x,
    )
    around = Loop("s", index(0), var("N"), tiles, "serial", "parallel")
    moving = replace(k, body=around)
    assert masks(moving) == {"z": False, "l": False, "m": True}
    assert masks(replace(moving, body=replace(around, kind="unrolled")))["l"]
