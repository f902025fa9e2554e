# SPDX-License-Identifier: Apache-2.0
"""Sums in steps of a loop in order: points outside of their terms, rows outside of the loop."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

ATTENTION = """def attention(float(T,B,K) Q, float(T,B,K) Ke, float(T,B,V) Va) -> (Y) {
  for t in T {
    if t == 0 { S(t,b,k,v) = Ke(t,b,k) * Va(t,b,v) }
    else { S(t,b,k,v) = 0.5 * S(t-1,b,k,v) + Ke(t,b,k) * Va(t,b,v) }
    Y(t,b,v) +=! Q(t,b,k) * S(t,b,k,v)
  }
}"""
# what a row stores, the next step's other rows read
MIXED = ATTENTION.replace("S(t-1,b,k,v)", "S(t-1,(b+1)%B,k,v)")
# points of a row, too
MIXED_POINTS = ATTENTION.replace("S(t-1,b,k,v)", "S(t-1,b,k,(v+1)%V)")
SHARED = ATTENTION.replace("float(T,B,K) Q", "float(T,K) Q").replace("Q(t,b,k)", "Q(t,k)")


@pytest.mark.parametrize("text", [ATTENTION, MIXED, MIXED_POINTS, SHARED])
def test_results_are_those_of_the_reference(text: str) -> None:
    kernel = tcsym.define(text, target="cpu:avx2").attention
    for t, b, k, v in ((4, 3, 5, 19), (1, 1, 1, 1), (3, 17, 2, 1), (2, 2, 0, 9), (0, 2, 2, 2)):
        rng = np.random.default_rng(t)
        shapes = [(t, b, k), (t, b, k), (t, b, v)]
        given = [rng.integers(-3, 4, s).astype(np.float32) for s in shapes]
        if text is SHARED:
            given[0] = given[0][:, 0]
        for threads in (1, 2):
            want = kernel.reference(*given)
            np.testing.assert_allclose(kernel(*given, threads=threads), want, 1e-5, 1e-4)


def mapped(text: str) -> str:
    return tcsym.define(text, target="cpu:avx2").attention.explain("mapped")


def test_rows_that_share_nothing_go_outside_and_sums_stay_in_registers() -> None:
    loops = mapped(ATTENTION)
    at = loops.index("serial t in")
    assert loops.index("parallel b in") < at
    points, sums, terms = (loops.index(x, at) for x in ("serial v.tile", "Y_acc", "serial k"))
    assert points < sums < terms


def test_rows_that_share_operands_stay_inside() -> None:
    loops = mapped(SHARED)
    assert loops.index("serial t in") < loops.index("parallel b")


@pytest.mark.parametrize("text", [MIXED, MIXED_POINTS])
def test_what_others_wrote_keeps_loops_where_they_are(text: str) -> None:
    loops = mapped(text)
    at = loops.index("serial t in")
    if text is MIXED:
        assert "parallel b" not in loops[:at]
    else:
        assert loops.index("serial k", at) < loops.index("serial v_1", at)
        assert "Y_acc" not in loops
