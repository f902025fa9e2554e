# SPDX-License-Identifier: Apache-2.0
"""How sliding windows are mapped: padded copies, ranges for guards, tiles across rows of images."""

from __future__ import annotations

import numpy as np
import pytest

from tcsym.compiler import analyse
from tcsym.cost.counting import nanoseconds
from tcsym.index.values import evaluate
from tcsym.ir.loops import Kernel, Loop, Store, Update
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.map_cpu import Mapped, map_cpu
from tests.schedule.targets import AVX2

PADDED = """def f(float(N,C,H,W) I, float({shape}) F) -> (O) {{
  O({out}) +=! ((h+kh >= 1 && h+kh <= H && w+kw >= 1 && w+kw <= W) ? I(n,c,h+kh-1,w+kw-1) : 0)
    * F({weight}) where h in 0:H, w in 0:W
}}"""
DEPTHWISE = PADDED.format(shape="C,3,3", out="n,c,h,w", weight="c,kh,kw")
DENSE = PADDED.format(shape="M,C,3,3", out="n,m,h,w", weight="m,c,kh,kw")
CAUSAL = """def f(float(R,T) X, float(C,R,2) F) -> (O) {
  O(c,t) +=! X(r,t) * F(c,r,1) + ((t - 4 >= 0) ? X(r,t-4) * F(c,r,0) : 0)
}"""


def naive(source: str) -> Kernel:
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


def mapped(source: str) -> Mapped:
    return map_cpu(naive(source), AVX2, Options())


def loops(k: Kernel) -> list[Loop]:
    return [x for x, _ in walk(k.body) if isinstance(x, Loop)]


@pytest.mark.parametrize(
    ("source", "rank", "private"), [(DEPTHWISE, 2, True), (DENSE, 4, False)], ids=["plane", "whole"]
)
def test_a_guard_is_asked_only_while_the_copy_is_made(
    source: str, rank: int, private: bool
) -> None:
    """Depthwise: one plane in the loops over images and channels; dense: all planes, once."""
    kernel = mapped(source).kernel
    copy = kernel.buffer("I_padded.1")
    assert len(copy.shape) == rank and bool(copy.private) == private
    for x, _ in walk(kernel.body):
        if isinstance(x, Store | Update) and x.buffer != copy.name:
            assert not any(a.buffer == "I" for a in accesses(x))
            assert "?" not in str(x.value)


def test_rows_of_the_copy_are_whole_vectors() -> None:
    *_, width = mapped(DEPTHWISE).kernel.buffer("I_padded.1").shape
    for w in (1, 6, 7, 14, 15):
        assert evaluate(width, {"W": w}) == -(-(w + 2) // 8) * 8


def test_few_rows_take_no_tile_of_more() -> None:
    """A row alone took as long as four; so did all of an image under a window of one point."""
    text = """def f(float(C,H,W) I, float(C,KH,KW) F) -> (O) {
  O(c,h,w) +=! I(c,h+kh,w+kw) * F(c,kh,kw)
}"""
    heights = np.array([3, 4, 5, 6])
    others = {"C": 64, "W": 66, "KH": 3, "KW": 3}
    sizes = {"H": heights, **{n: np.full_like(heights, v) for n, v in others.items()}}
    one, two, three, four = nanoseconds(mapped(text).kernel, AVX2, sizes)
    assert one < 0.6 * four and two < 1.05 * four and three < 1.5 * four


def test_single_channels_take_no_tile_of_more() -> None:
    """One output channel took as long as four."""
    text = """def f(float(C,H,W) I, float(O,C,KH,KW) F) -> (Y) {
  Y(o,h,w) +=! I(c,h+kh,w+kw) * F(o,c,kh,kw)
}"""
    channels = np.array([1, 2, 4])
    others = {"C": 64, "H": 66, "W": 66, "KH": 3, "KW": 3}
    sizes = {"O": channels, **{n: np.full_like(channels, v) for n, v in others.items()}}
    one, two, four = nanoseconds(mapped(text).kernel, AVX2, sizes)
    assert one < 0.6 * four and two < four
