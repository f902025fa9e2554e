# SPDX-License-Identifier: Apache-2.0
"""Rows in registers whose sums have ranges of their own: what all have in one loop, the rest apart;
and nests that run for one row after the other."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcsym
from tests.mapping.proposals import proposed

HEAD = "def f(float(N,M) X, float(M,P) Y) -> (Z) "
RANGES = {
    "lower": "m in 0:min(n+1,M)",
    "upper": "m in min(n,M):M",
    "band": "m in max(0,n-3):min(n+2,M)",
    "shrinking": "m in 0:max(0,M-n)",
    "empty at first": "m in 0:max(0,min(n-2,M))",
    "steep": "m in 0:min(2*n+1,M)",
}
SIZES = [(1, 1, 1), (5, 7, 3), (13, 9, 17), (40, 40, 33), (3, 60, 8), (64, 20, 40)]
CAUSAL = """def f(float(B,T,D) Q, float(B,T,D) K, float(B,T,E) V) -> (O) {
  L(b,i,j) +=! Q(b,i,d) * K(b,j,d)
  M(b,i) max=! L(b,i,j) where j in 0:i+1
  P(b,i,j) = j <= i ? exp(L(b,i,j) - M(b,i)) : 0.0
  S(b,i) +=! P(b,i,j) where j in 0:i+1
  O(b,i,e) +=! P(b,i,j) * V(b,j,e) where j in 0:i+1
  O(b,i,e) = O(b,i,e) / S(b,i)
}"""


def source(name: str) -> str:
    return f"{HEAD} {{ Z(n,p) +=! X(n,m) * Y(m,p) where n in 0:N, {RANGES[name]} }}"


def check(f: tcsym.Kernel, n: int, m: int, p: int) -> None:
    rng = np.random.default_rng(n + m + p)
    x, y = (rng.integers(-3, 4, s).astype("f4") for s in ((n, m), (m, p)))
    np.testing.assert_array_equal(f(x, y), f.reference(x, y))


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu", "cpu:novector"])
@pytest.mark.parametrize("name", RANGES)
def test_sums_over_ranges_of_their_own(name: str, target: str) -> None:
    for plan in (None, *proposed(source(name), target)):
        f = tcsym.define(source(name), target=target, **({"plan": plan} if plan else {})).f
        for sizes in SIZES:
            check(f, *sizes)


@pytest.mark.parametrize("end", ["mask", "half"])
@pytest.mark.parametrize("rows", [2, 3, 6])
@pytest.mark.parametrize("name", RANGES)
def test_any_number_of_rows(name: str, rows: int, end: str) -> None:
    plan = f"""split n tile reg:{rows} end={end}; split p tile reg:2 lane:8 end={end}
      split m unroll:4; order p.tile n.tile"""
    f = tcsym.define(source(name), target="cpu:avx2", plan=plan).f
    for sizes in SIZES:
        check(f, *sizes)


def test_terms_of_all_rows_are_in_one_loop() -> None:
    plan = "split n tile reg:4 end=half; split p tile lane:8; order p.tile n.tile"
    f = tcsym.define(source("lower"), target="cpu:avx2", plan=plan).f
    loops = re.findall(
        r"(serial m\.\S+|unrolled n\.reg\.\d+|vector p\.lane\.\d+) in", f.explain("mapped")
    )
    kinds = [x.rpartition(".")[0] for x in loops]
    shared, own = kinds.index("serial m"), kinds.index("serial m.last")
    assert kinds[shared : shared + 3] == ["serial m", "unrolled n.reg", "vector p.lane"]
    assert kinds[own - 1 : own + 2] == ["unrolled n.reg", "serial m.last", "vector p.lane"]


def test_lanes_have_no_ranges_of_their_own() -> None:
    plan = "split n tile lane:8; order p n.tile"
    with pytest.raises(tcsym.errors.OptionError, match=r"the range of m moves with n\.lane"):
        tcsym.define(source("lower"), target="cpu:avx2", plan=plan).f(
            np.ones((3, 3), "f4"), np.ones((3, 3), "f4")
        )


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu", "cpu:novector"])
def test_nests_of_a_row_run_one_row_after_the_other(target: str) -> None:
    plans = proposed(CAUSAL, target) if target != "cpu:novector" else ()
    for plan in (None, *plans):
        f = tcsym.define(CAUSAL, target=target, **({"plan": plan} if plan else {})).f
        for b, t, d, e in ((1, 1, 1, 1), (2, 5, 3, 4), (1, 13, 17, 9), (2, 40, 8, 33)):
            rng = np.random.default_rng(t)
            given = [rng.standard_normal((b, t, n), "f4") for n in (d, d, e)]
            np.testing.assert_allclose(f(*given), f.reference(*given), 1e-4, 1e-5)
