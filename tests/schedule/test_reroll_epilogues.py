# SPDX-License-Identifier: Apache-2.0
"""Long epilogues run as loops over the rows of their tile; everything else stays unrolled."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.frontend.program import Call, Expr
from tcsym.index.expr import ZERO, index, var
from tcsym.ir.loops import Kernel, Loop, Node, Store, block
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.split.full_tiles import full_tiles
from tcsym.schedule.storage.place_allocations import place_allocations
from tcsym.schedule.tile.reroll_epilogues import reroll_epilogues
from tests.schedule.compare import assert_same
from tests.schedule.naive import F32, buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import AVX2, AVX512

ROWS, LANES = 4, 8


def points(variables: str, ragged: bool, *body: Node) -> Node:
    """An unrolled loop over rows around a vector loop, the latter perhaps ragged."""
    row, lane = variables.split()
    mask = var("N") if ragged else None
    inner = Loop(lane, var("N") * 0, var("N") * 0 + LANES, block(*body), "vector", "parallel", mask)
    return Loop(row, var("N") * 0, var("N") * 0 + ROWS, inner, "unrolled", "parallel")


def tile(result: Expr, ragged: bool = False) -> Kernel:
    """Y(r,l) = result, after T(r,l) = sum over k of X(k,r,l)."""
    a, b, c, d, e, f, k = v("a b c d e f k")
    body = par(
        "i",
        1,
        points("a b", False, st("T", (a, b), con(0.0))),
        red("k", "K", points("c d", ragged, up("T", (c, d), "add", rd("X", k, c, d)))),
        points("e f", ragged, st("Y", (e, f), result)),
    )
    buffers = [
        buf("X", (var("K"), ROWS, LANES)),
        buf("Y", (ROWS, LANES)),
        replace(buf("T", (ROWS, LANES), private="i"), space="register", padded=True),
    ]
    return kernel("tile", "N K", buffers, body)


def heavy(x: Expr) -> Expr:
    return Call("exp", (op("mul", Call("tanh", (x,), F32), con(0.0)),), F32)


def rolled(k: Kernel, target=AVX2) -> Kernel:
    out = place_allocations(reroll_epilogues(k, target, Names.of(k)))
    verify(out)
    return out


def kinds(k: Kernel) -> dict[str, str]:
    return {x.variable: x.kind for x, _ in walk(k.body) if isinstance(x, Loop)}


T = rd("T", *v("e f"))


@pytest.mark.parametrize("ragged", [False, True])
def test_an_epilogue_with_calls_becomes_a_loop_over_a_tile_in_the_frame(ragged: bool) -> None:
    before = tile(heavy(T), ragged)
    after = rolled(before)
    assert kinds(after)["e"] == "serial"
    assert kinds(after)["a"] == kinds(after)["c"] == "unrolled"
    (copy,) = [b for b in after.buffers if b.name not in ("X", "Y", "T")]
    assert copy.space == "stack" and copy.shape == after.buffer("T").shape
    assert_same(before, after, {"N": 5, "K": 3})


def test_ragged_rows_are_stored_by_a_loop_where_the_target_has_no_masks() -> None:
    long = tile(op("add", T, con(1.0)), True)
    assert kinds(rolled(long))["e"] == "serial"
    assert kinds(rolled(long, AVX512))["e"] == "unrolled"
    assert_same(long, rolled(long), {"N": 5, "K": 3})


def test_what_is_short_or_no_epilogue_stays() -> None:
    assert kinds(rolled(tile(op("add", T, con(1.0)))))["e"] == "unrolled"
    streamed = tile(heavy(rd("X", 0, *v("e f"))))  # no tile: copies of the body hide latencies
    assert kinds(rolled(streamed))["e"] == "unrolled"


def test_a_tile_that_the_loop_writes_stays_in_registers() -> None:
    g, h = v("g h")
    k = tile(heavy(T))
    sums = points(
        "g h", False, up("T", (g, h), "add", con(1.0)), st("Y", (g, h), heavy(rd("T", g, h)))
    )
    after = rolled(replace(k, body=par("i", 1, sums)))
    assert kinds(after)["g"] == "unrolled"


def two_vectors() -> Kernel:
    """Rows of up to two vectors, N elements of them, as a register tile leaves them."""

    def vectors(variables: str, *body: Node) -> Node:
        row, register, lane = variables.split()
        mask = var("N") - var(register) * LANES
        inner = Loop(lane, ZERO, index(LANES), block(*body), "vector", "parallel", mask)
        inner = Loop(register, ZERO, index(2), inner, "unrolled", "parallel")
        return Loop(row, ZERO, index(ROWS), inner, "unrolled", "parallel")

    a, b, d, e, f, g, h, j, k = v("a b d e f g h j k")
    here, there = d + e * LANES, g + f * LANES
    last = j + h * LANES
    result = op("add", rd("T", var("i2"), last), rd("B", last))
    body = par(
        "i",
        1,
        vectors("a e d", st("T", (a, here), con(0.0))),
        red("k", "K", vectors("b f g", up("T", (b, there), "add", rd("X", k, b, there)))),
        vectors("i2 h j", st("Y", (var("i2"), last), result)),
    )
    buffers = [
        buf("X", (var("K"), ROWS, var("N"))),
        buf("B", (var("N"),)),
        buf("Y", (ROWS, var("N"))),
        replace(buf("T", (ROWS, 2 * LANES), private="i"), space="register", padded=True),
    ]
    return kernel("tile", "N K", buffers, body)


def test_ragged_rows_end_in_a_whole_vector_that_overlaps_the_one_before() -> None:
    before = two_vectors()
    after = rolled(full_tiles(before, Names.of(before)))
    stores = [
        around[-1]
        for x, around in walk(after.body)
        if isinstance(x, Store) and x.buffer == "Y" and any(y.kind == "serial" for y in around[1:])
    ]
    assert not any(x.mask is not None for x in stores)
    lanes = [x.upper.as_int() for x in stores if x.kind == "vector"]
    assert lanes == [8, 8, 4, 4, 2, 2] and len(stores) == 7
    for n in range(1, 17):
        assert_same(before, after, {"N": n, "K": 3})
