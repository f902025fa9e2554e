# SPDX-License-Identifier: Apache-2.0
"""What is waited for, does not fit registers, or is masked where there are no masks: by plan."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.compiler import Lowering, analyse
from tcsym.cost.counting import counted
from tcsym.cost.terms import of
from tcsym.options import Options
from tests.targets import target_of

LINE = 16  # elements
ROWS = "def f(float(N,D) X) -> (S) { S(n) +=! X(n,d) }"
COLUMNS = "def f(float(N,D) X) -> (S) { S(d) +=! X(n,d) }"
MM = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
FOUR_ROWS = "split n tile reg:4 end=half; split d tile lane:8 end=peel; combine d; order n.tile"
SINGLE = "split d tile reg:4 lane:8 end=peel; combine d"
STRIPS = "split d tile reg:8 lane:8 end=half; order d.tile"
LONG = """def f(float(D,E,G,A) X, float(G,F,B) Y) -> (Z) {
  Z(a,b,d,e,f) +=! X(d,e,g,a) * Y(g,f,b)
}"""
POOL = "def f(float(N,H,W) X) -> (Y) { Y(n,h,w) max=! X(n,2*h+r,2*w+s) where r in 0:3, s in 0:3 }"
PARTS = """split n tile row:32; combine n.row at d; merge n.row d.parts
split n.row tile reg:8 lane:8 end=half; split d tile lane:8; order n.row.tile; order d.tile"""


def count(source: str, plan: str, term: str, target: str = "avx2", **sizes: int) -> float:
    (program,) = analyse(source).values()
    layouts = ("dense",) * (len(program.inputs) + len(program.outputs))
    chosen = target_of(target)
    stages = Lowering(program, chosen, Options(plan=plan, parallelize=False), {}, layouts, (), {})
    kernel = stages.mapped(stages.scheduled()).kernel
    found = counted(kernel, chosen.machine, {n: np.array([v]) for n, v in sizes.items()})
    return float(of(found, term)[0])


@pytest.mark.parametrize(
    "source, plan, n, d, share",
    [
        (ROWS, SINGLE, 6000, 900, (0, 0.01)),  # one row goes on where the one before ends
        (ROWS, FOUR_ROWS, 6000, 900, (1.0, 1.3)),  # 57 lines, and to begin them
        (ROWS, FOUR_ROWS, 4, 2_000_000, (0, 0.01)),  # begun once
        (COLUMNS, STRIPS, 300, 17_000, (3.2, 3.8)),  # four lines, and to begin them
        (COLUMNS, STRIPS, 30, 170_000, (0, 0.01)),  # so many rows are fetched ahead
        (COLUMNS, PARTS, 300, 17_000, (0, 0.1)),
        (ROWS, FOUR_ROWS, 50, 900, (0, 0)),  # in the cache
        (COLUMNS, STRIPS, 20, 2000, (0, 0)),
    ],
)
def test_lines_that_do_not_follow_others(
    source: str, plan: str, n: int, d: int, share: tuple[float, float]
) -> None:
    least, most = share
    assert least <= count(source, plan, "awaited", N=n, D=d) / (n * d / LINE) <= most


@pytest.mark.parametrize("order", ["b d a.tile f.tile", "b d e a.tile f.tile"])
def test_merged_dimensions_are_one_row(order: str) -> None:
    """Results of sixteen rows at once, each of which goes on through two dimensions."""
    merged = "" if " e " in order else "merge d e; "
    plan = f"{merged}split a tile reg:8; split f tile lane:8; order {order}"
    found = count(LONG, plan, "awaited", **dict.fromkeys("ABDEFG", 16))
    assert found / (16**5 / LINE) < 0.1


@pytest.mark.parametrize("w, share", [(100, (0, 0.01)), (2000, (0.5, 2))])
def test_rows_of_a_page_go_on_together(w: int, share: tuple[float, float]) -> None:
    """Windows over images of which rows at once are of one page, and over larger ones."""
    plan = "split h tile reg:4 end=overlap; split w tile lane:8 end=overlap; order n h.tile w.tile"
    least, most = share
    assert least <= count(POOL, plan, "awaited", N=600, H=113, W=w) / (600 * 113 * w / LINE) <= most


def test_temporaries_that_do_not_fit_are_brought() -> None:
    """Once, however many nests write and read them."""
    plan = """split k part row:512; combine k.part at m
    split n.parts tile reg:2 lane:8; order k.part m.parts n.parts.tile
    split n tile lane:8; order m n.tile"""
    for n, times in ((1600, 1), (40, 0)):
        parts = n * n / LINE
        found = count(MM, plan, "again", M=n, N=n, K=3) / parts
        assert abs(found - times) < 0.1


@pytest.mark.parametrize(
    "order, n, times",
    [
        ("m.tile n.tile", 2000, 4),  # all of B for each tile of rows
        ("n.tile m.tile", 2000, 0),  # a strip of B, which stays
        ("m.tile n.tile", 100, 0),  # all of B stays
    ],
)
def test_lines_that_are_brought_again(order: str, n: int, times: int) -> None:
    plan = f"split m tile reg:4 end=half; split n tile reg:2 lane:8; order {order}"
    found = count(MM, plan, "again", M=20, K=n, N=n) / (n * n / LINE)
    assert abs(found - times) <= 0.2


@pytest.mark.parametrize(
    "target, rows, vectors, spilled",
    [("avx2", 6, 2, 0), ("avx2", 6, 4, 13), ("avx512", 6, 4, 0), ("avx512", 12, 4, 21)],
)
def test_registers_of_a_tile(target: str, rows: int, vectors: int, spilled: int) -> None:
    """So many sums, as many vectors of a row of B, and an element of A: for each term."""
    lanes, k = (8, 40) if target == "avx2" else (16, 40)
    plan = f"split m tile reg:{rows}; split n tile reg:{vectors} lane:{lanes}; order m.tile n.tile"
    sizes = {"M": rows, "N": vectors * lanes, "K": k}
    assert count(MM, plan, "spilled", target, **sizes) == spilled * k


@pytest.mark.parametrize("target, masked", [("avx2", 9.0), ("avx512", 0.0)])
def test_stores_of_some_lanes(target: str, masked: float) -> None:
    text = "def f(float(N,D) X, float(N) b) -> (Y) { Y(n,d) = X(n,d) + b(n) }"
    lanes = 8 if target == "avx2" else 16
    plan = f"split d tile lane:{lanes} end=peel; order n d.tile"
    assert count(text, plan, "masked", target, N=9, D=3 * lanes + 1) == masked
    assert count(text, plan, "masked", target, N=9, D=3 * lanes) == 0


def test_pitches_that_no_loop_moves_with() -> None:
    """Of arrays of any layout, among versions that the cost chooses."""
    source = """def f(float(S,6) X, float(6,N) W, inout float(S,N) Y) -> () {
      T(k,j) = W(k,j)
      for t in 3 {
        T(k,j) = T(k,j) * 0.5 + W(k,j)
        Y(i,j) +=! X(i,k) * T(k,j)
      }
    }"""
    f = tcsym.define(source, options=Options(), target="cpu:avx2").f
    x, w, y = np.ones((6, 5), "f4").T, np.ones((4, 6), "f4").T, np.zeros((5, 4), "f4")
    f(x, w, y)
    np.testing.assert_array_equal(y, np.full((5, 4), 11.25, "f4"))
