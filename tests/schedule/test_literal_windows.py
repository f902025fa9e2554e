# SPDX-License-Identifier: Apache-2.0
"""Versions of nests for windows of one literal size: what they hold, and where there is none."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.index.expr import index, var
from tcsym.index.text import condition_text
from tcsym.ir.loops import Branch, Kernel, Loop, Node
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.map_cpu import map_cpu, nests
from tcsym.schedule.proved import schedule_program
from tcsym.schedule.split.unswitch import unswitch_serial
from tcsym.schedule.version.literal_windows import (
    LITERAL,
    LiteralCopy,
    Windows,
    literal_copy,
    symbolic_windows,
)
from tcsym.target.machine import Machine
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, kernel, op, par, rd, red, up, v
from tests.schedule.targets import AVX2, AVX512

POINTS = 8
DEPTHWISE = """def f(float(C,H,W) I, float(C,KH,KW) F) -> (O) {
  O(c,h,w) +=! I(c,h+kh,w+kw) * F(c,kh,kw)
}"""


def naive(source: str) -> Kernel:
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


def windows_of(k: Kernel, points: int = POINTS) -> Windows:
    (nest,) = nests(k.body)
    return symbolic_windows(k, band_of(find_loop(k.body, nest)), points)


def copied(k: Kernel, loop: str) -> LiteralCopy:
    return literal_copy(k, loop, windows_of(k), Names.of(k))


@pytest.mark.parametrize("kh", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("kw", [1, 3])
@pytest.mark.parametrize("loop", ["c", "h", "w"])
def test_results_are_kept_at_every_size(kh: int, kw: int, loop: str) -> None:
    k = naive(DEPTHWISE)
    both = copied(k, loop).before(loop, windows_of(k).are_literal)
    verify(both)
    assert_same(k, both, {"C": 2, "H": 8, "W": 9, "KH": kh, "KW": kw})
    outside = unswitch_serial(both, Names.of(both))
    verify(outside)
    assert isinstance(outside.body, Branch)
    assert_same(k, outside, {"C": 2, "H": 8, "W": 9, "KH": kh, "KW": kw})


def test_windows_and_what_depends_on_them_are_numbers() -> None:
    k = naive(DEPTHWISE)
    assert condition_text(windows_of(k).are_literal) == "KH == 3 && KW == 3"
    loops = [x for x, _ in walk(copied(k, "c").copy) if isinstance(x, Loop)]
    assert {x.upper.as_int() for x in loops if x.order == "reduction"} == {LITERAL}
    assert not any({"KH", "KW"} & x.upper.variables() for x in loops)


def test_a_window_of_some_size_minus_one_decides_that_size() -> None:
    k = sliding(red("k", var("K") - 1, up("O", v("h"), "add", rd("I", var("h") + var("k")))))
    assert windows_of(k).fixed_sizes() == {"K": index(4)}


def sliding(*body: Node) -> Kernel:
    buffers = [buf("I", "H"), buf("F", "K K"), buf("O", "P")]
    return kernel("f", "H K P", buffers, par("h", "P", *body))


def _term(*window: str) -> Node:
    h, k = var("h"), sum((var(x) for x in window), index(0))
    return up("O", (h,), "add", op("mul", rd("I", h + k), rd("F", var(window[0]), 0)))


@pytest.mark.parametrize(
    "nest",
    [
        red("k", 3, _term("k")),
        red("k", "K", up("O", v("h"), "add", rd("F", var("k"), 0))),
        red("k", "K", red("c", "P", _term("k"))),
        red("k", "K", red("l", var("K") * 2, _term("k", "l"))),
        red("k", "K", red("l", "K", red("m", "K", _term("k", "l", "m")))),
        red("k", "K", _term("k"), lower=1),
    ],
    ids=["known", "does not slide", "a long loop inside", "never both", "long", "not from 0"],
)
def test_no_windows_where_they_would_not_be_straight_code(nest: Node) -> None:
    assert windows_of(sliding(nest)) == Windows(())


@pytest.mark.parametrize(("target", "versions"), [(AVX2, 1), (AVX512, 2)])
def test_one_version_for_each_width_of_tiles(target: Machine, versions: int) -> None:
    """With few registers straight code has narrow tiles only."""
    mapped = map_cpu(naive(DEPTHWISE), target, Options()).kernel
    tests = [condition_text(x.condition) for x, _ in walk(mapped.body) if isinstance(x, Branch)]
    assert tests.count("KH == 3 && KW == 3") == versions


@pytest.mark.parametrize(("step", "slides"), [("1", True), ("N", False)])
def test_merged_dimensions_are_no_windows(step: str, slides: bool) -> None:
    """X[step*m + r]: rows of windows that overlap, or rows of N elements that lie end to end."""
    m, i, j, r = v("m i j r")
    at = m + r if step == "1" else m * var("N") + r
    term = up("O", (m, i, j), "add", op("mul", rd("X", at, j), rd("W", i, r)))
    body = par("m", "M", par("i", "I", par("j", "J", red("r", "N", term))))
    shapes = [buf("X", "L J"), buf("W", "I N"), buf("O", "M I J")]
    k = kernel("merged", "M I J N L", shapes, body)
    found = symbolic_windows(k, band_of(find_loop(k.body, "m")), 8)
    assert bool(found.loops) == slides
