# SPDX-License-Identifier: Apache-2.0
"""How sliding windows are mapped: padded copies, ranges for guards, tiles across rows of images."""

from __future__ import annotations

import numpy as np
import pytest

from tcsym.compiler import analyse
from tcsym.cost.counting import nanoseconds
from tcsym.frontend.program import Binary, Read, Select, Unary
from tcsym.index.expr import index, var
from tcsym.index.values import evaluate
from tcsym.ir.loops import Kernel, Loop, Store, Update
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.map_cpu import Mapped, map_cpu
from tcsym.schedule.proved import schedule_program
from tcsym.schedule.split.terms import find_guard, split_ranges, split_terms
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
    assert 2 * one < four and two < four and three < 1.5 * four


def test_single_channels_take_no_tile_of_more() -> None:
    """One output channel took as long as four."""
    text = """def f(float(C,H,W) I, float(O,C,KH,KW) F) -> (Y) {
  Y(o,h,w) +=! I(c,h+kh,w+kw) * F(o,c,kh,kw)
}"""
    channels = np.array([1, 2, 4])
    others = {"C": 64, "H": 66, "W": 66, "KH": 3, "KW": 3}
    sizes = {"O": channels, **{n: np.full_like(channels, v) for n, v in others.items()}}
    one, two, four = nanoseconds(mapped(text).kernel, AVX2, sizes)
    assert 2 * one < four and two < four


def test_differences_are_added_term_by_term() -> None:
    """The sign goes to a factor, and nothing is added for a difference to zero."""
    text = """def f(float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) +=! 0 - (A(m,k) * B(k,n) - (m > k ? B(k,n) * A(m,k) : 0.0))
}"""
    kernel = naive(text)
    nest = next(x.variable for x, _ in walk(kernel.body) if isinstance(x, Loop))
    split = split_terms(kernel, nest)
    first, second = [x.value for x, _ in walk(split.body) if isinstance(x, Update)]
    assert isinstance(first, Binary) and first.op == "mul" and isinstance(first.left, Unary)
    assert isinstance(second, Select) and isinstance(second.then, Binary)
    assert isinstance(second.then.left, Read)


@pytest.mark.parametrize(
    ("term", "together"),
    [("A(i,k) * D(k,j)", 1), ("D(i,k) * B(k,j)", 2), ("D(i,k) * A(k,j)", 2)],
)
def test_products_of_one_element_of_the_rows_have_loops_of_their_own(
    term: str, together: int
) -> None:
    """In one loop what they share takes the registers of accumulators."""
    kernel = mapped(f"""def f(float(N,N) A, float(N,N) B, float(N,N) D) -> (C) {{
  C(i,j) +=! A(i,k) * B(k,j) + {term}
}}""").kernel
    sums = next(x for x in loops(kernel) if x.order == "reduction")
    assert sum(isinstance(x, Update) for x, _ in walk(sums)) == together


def test_sums_are_added_term_by_term_and_guards_become_ranges() -> None:
    kernel = naive(CAUSAL)
    nest = next(x.variable for x, _ in walk(kernel.body) if isinstance(x, Loop))
    split = split_terms(kernel, nest)
    updates = [x for x, _ in walk(split.body) if isinstance(x, Update)]
    assert len(updates) == 2
    guard = find_guard(split, nest)
    assert guard is not None and guard.lower == index(4) and guard.upper == var("T")
    ranges = split_ranges(split, nest, guard, Names.of(split))
    assert len(ranges.outside) == 1 and find_guard(ranges.kernel, ranges.inside) is None
    counts = [
        sum(isinstance(y, Update) for y, _ in walk(x))
        for x, around in walk(ranges.kernel.body)
        if isinstance(x, Loop) and not around
    ]
    assert counts == [2, 1]
    assert any(x.endswith("contraction, columns t, rows c") for x in mapped(CAUSAL).notes)
