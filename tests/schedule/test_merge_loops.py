# SPDX-License-Identifier: Apache-2.0
"""Loops over adjacent dimensions become one where all buffers allow it, and results are kept."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.frontend.program import IndexValue
from tcsym.index.expr import index, var
from tcsym.ir.loops import Block, Kernel, Loop, Node, Verify
from tcsym.ir.traverse import substitute_value, walk
from tcsym.ir.verify import verify
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.combine.accumulate import accumulate_privately
from tcsym.schedule.order.merge_loops import merge_loops
from tcsym.schedule.storage.place_allocations import place_allocations, without_allocations
from tcsym.schedule.storage.privatise import privatise
from tests.schedule import naive
from tests.schedule.compare import assert_same
from tests.schedule.naive import F32, buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import some_sizes

N, C, H, W = v("n c h w")


def merged(k: Kernel) -> Kernel:
    bare = replace(k, body=without_allocations(k.body))
    out = merge_loops(privatise(accumulate_privately(bare, Names.of(bare))), Names.of(bare))
    verify(place_allocations(out))
    return out


def loops(k: Kernel) -> list[str]:
    return [x.variable for x, _ in walk(k.body) if isinstance(x, Loop)]


def same(k: Kernel, out: Kernel) -> None:
    for sizes in some_sizes(k)[-3:]:
        if all(sizes.values()):
            assert_same(k, place_allocations(out), sizes)


@pytest.mark.parametrize("name", naive.ALL)
def test_results_are_kept(name: str) -> None:
    same(naive.ALL[name](), merged(naive.ALL[name]()))


def image(*body: Node, extra: str = "") -> Kernel:
    buffers = [buf("X", "N C H W"), buf("g", "C"), buf("O", "N C H W"), buf("m", "C")]
    return kernel("image", f"N C H W{extra}", buffers, Block(body))


def test_parts_of_rows_stay() -> None:
    """Between them is what the loops do not touch."""
    copy = st("O", (N, C, H, W), rd("X", N, C, H, W))
    k = image(par("n", "N", par("c", "C", par("h", "H", par("w", "W", copy)))))
    x, g, wide, m = k.buffers
    k = replace(k, buffers=(x, g, replace(wide, shape=(*wide.shape[:3], var("W") + 3)), m))
    out = merged(k)
    assert "w" in loops(out)
    same(k, out)


def test_only_the_loops_that_all_buffers_walk_alike_merge() -> None:
    scaled = st("O", (N, C, H, W), op("mul", rd("X", N, C, H, W), rd("g", C)))
    k = image(par("n", "N", par("c", "C", par("h", "H", par("w", "W", scaled)))))
    out = merged(k)
    assert loops(out) == ["n", "c", "h_w.1"]
    assert [str(e) for e in out.buffer("X").shape] == ["N", "C", "H*W"]
    same(k, out)


def test_a_whole_tensor_is_one_row() -> None:
    one = st("O", (N, C, H, W), rd("X", N, C, H, W))
    k = image(par("n", "N", par("c", "C", par("h", "H", par("w", "W", one)))))
    out = merged(k)
    assert len(loops(out)) == 1
    same(k, out)


def test_nests_merge_different_dimensions_of_one_tensor() -> None:
    a, b, c, d = v("a b c d")
    total = red("a", "N", red("b", "H", red("d", "W", up("m", (c,), "add", rd("X", a, c, b, d)))))
    spread = op("sub", rd("X", N, C, H, W), rd("m", C))
    rows = par("h", "H", par("w", "W", st("O", (N, C, H, W), spread)))
    k = image(par("c", "C", st("m", (c,), con(0.0)), total), par("n", "N", par("c_1", "C", rows)))
    k = replace(k, body=_renamed(k.body))
    out = merged(k)
    assert loops(out) == ["c", "a", "b_d.1", "n", "c_1", "h_w.1"]
    same(k, out)


def _renamed(node: Node) -> Node:
    """The second nest runs over `c_1`."""
    from tcsym.ir.traverse import substitute_node

    assert isinstance(node, Block)
    first, second = node.body
    return Block((first, substitute_node(second, {"c": var("c_1")})))


def test_a_value_that_depends_on_a_loop_keeps_it() -> None:
    k = image(
        par("h", "H", par("w", "W", st("O", (0, 0, H, W), IndexValue(H, F32)))),
    )
    assert loops(merged(k)) == ["h", "w"]


def test_windows_and_parts_of_rows_stay_apart() -> None:
    k = naive.convolution()
    assert loops(merged(k)) == loops(k)
    part = par("h", "H", par("w", var("W") - 1, st("O", (0, 0, H, W), con(1.0))))
    assert loops(merged(image(part))) == ["h", "w"]


def test_extents_that_may_be_negative_stay_apart() -> None:
    h, w = var("H") - 3, var("W") - 3
    body = par("h", h, par("w", w, st("O", (H, W), con(1.0))))
    k = kernel("k", "H W", [buf("O", (h, w))], body)
    assert loops(merged(k)) == ["h", "w"]


def test_a_temporary_of_one_loop_only_keeps_both() -> None:
    body = par(
        "h", "H", par("w", "W", st("T", (index(0),), rd("X", H, W)), st("O", (H, W), rd("T", 0)))
    )
    for private, expected in (("h w", 1), ("h", 2)):
        buffers = [buf("X", "H W"), buf("O", "H W"), buf("T", (1,), private=private)]
        k = kernel("k", "H W", buffers, body)
        bare = replace(k, body=without_allocations(k.body))
        out = merge_loops(privatise(bare), Names.of(bare))
        assert len(loops(out)) == expected


def test_rows_run_on_where_only_another_nest_needs_both_dimensions() -> None:
    """A copy of a matrix, to rows of which others are added at positions that are checked."""
    position = replace(rd("O", 1, 0, H, 0), checked=(False, False, True, False))
    copy = par("h", "H", par("w", "W", st("O", (1, 0, H, W), rd("X", 1, 0, H, W))))
    check = par("n", "H", Verify(substitute_value(position, {"h": var("n")})))
    k = image(copy, check)
    out = merged(k)
    assert loops(out) == ["h_w.1", "n"]
    assert [str(e) for e in out.buffer("O").shape] == ["N", "C", "H", "W"]
    same(k, out)
    row = par("h", "H", par("w", "W", st("O", (1, 0, H, W), rd("O", 1, 0, 2, 0))))
    assert loops(merged(image(row, check))) == ["h", "w", "n"]  # may be another row's element
