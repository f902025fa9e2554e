# SPDX-License-Identifier: Apache-2.0
"""Tiles of rows that are not all there read nothing beyond what temporaries of all rows have, and
nothing that copies did not get: what lies there may be numbers that processors are slow with."""

from __future__ import annotations

import numpy as np
import pytest

from tcsym.compiler import Lowering, analyse
from tcsym.index.values import evaluate
from tcsym.options import Options
from tcsym.target.names import resolve_target
from tests.schedule.execute import execute

ATTENTION = """def f(float(1,ROWS,D) Q, float(1,S,D) K, float(1,S,V) W) -> (O) {
  A(b,i,j) +=! Q(b,i,k) * K(b,j,k)
  m(b,i) max=! A(b,i,j)
  E(b,i,j) = exp(A(b,i,j) - m(b,i))
  s(b,i) +=! E(b,i,j)
  O(b,i,v) +=! E(b,i,j) * W(b,j,v)
  O(b,i,v) = O(b,i,v) / s(b,i)
}"""


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("rows", ["1", "3", "R"])
def test_rows_of_temporaries(rows: str, target: str) -> None:
    source = ATTENTION.replace("ROWS", rows)
    program, rng = analyse(source)["f"], np.random.default_rng(0)
    sizes = {"D": 3, "S": 18, "V": 5, **({"R": 5} if rows == "R" else {})}
    target_, options = resolve_target(target), Options(inner_fusion="min")
    stages = Lowering(program, target_, options, {}, ("dense",) * 4, (), {})
    kernel = stages.mapped(stages.scheduled()).kernel
    inputs = {
        t.name: rng.uniform(-1, 1, [evaluate(n, sizes) for n in t.shape]) for t in program.inputs
    }
    e = np.exp(np.einsum("bik,bjk->bij", inputs["Q"], inputs["K"]))
    wanted = np.einsum("bij,bjv->biv", e / e.sum(2, keepdims=True), inputs["W"])
    for k in range(max(c.versions for c in kernel.choices)):
        out = np.full(wanted.shape, np.nan, object)
        chosen = {c.variable: min(k, c.versions - 1) for c in kernel.choices}
        execute(kernel, sizes, {**inputs, "O": out}, unset=["O"], chosen=chosen)
        np.testing.assert_allclose(out.astype(float), wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_rows_of_copies(n: int, target: str) -> None:
    source = "def f(double(M,K) X, double(K,N) Y) -> (Z) { Z(n,m) +=! X(m,k) * Y(k,n) }"
    plan = """split n tile reg:4 end=half; split m tile reg:4 end=half; split k tile lane:4 end=peel
        combine k; order n.tile m.tile; stage Y at n.tile order n.reg k.tile k.lane"""
    target_, options = resolve_target(target), Options(plan=plan)
    stages = Lowering(analyse(source)["f"], target_, options, {}, ("dense",) * 3, (), {})
    kernel, rng = stages.mapped(stages.scheduled()).kernel, np.random.default_rng(0)
    sizes = {"M": 5, "K": 7, "N": n}
    x, y, z = rng.uniform(-1, 1, (5, 7)), rng.uniform(-1, 1, (7, n)), np.full((n, 5), 0, object)
    execute(kernel, sizes, {"X": x, "Y": y, "Z": z}, unset=["Z"])
    np.testing.assert_allclose(z.astype(float), (x @ y).T, 1e-6)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_rows_of_sums_behind_them(target: str) -> None:
    """A tile of three rows reads no fourth one, nor one in front of the first."""
    source = """def f(float(N,M,K) X, float(K,L) Y) -> (Z) {
      S(a,b,c) +=! X(a,b,k) * Y(k,c)
      Z(a,b,c) = S(a,b,c) - S(a,M-1-b,c) }"""
    target_, options = resolve_target(target), Options(inner_fusion="min")
    stages = Lowering(analyse(source)["f"], target_, options, {}, ("dense",) * 3, (), {})
    kernel, rng = stages.mapped(stages.scheduled()).kernel, np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (13, 7, 2)), rng.uniform(-1, 1, (2, 31))
    wanted = x @ y - (x @ y)[:, ::-1]
    sizes = {"N": 13, "M": 7, "K": 2, "L": 31, "launch.threads": 3}
    for k in range(max(c.versions for c in kernel.choices)):
        z = np.full(wanted.shape, np.nan, object)
        chosen = {c.variable: min(k, c.versions - 1) for c in kernel.choices}
        execute(kernel, sizes, {"X": x, "Y": y, "Z": z}, unset=["Z"], chosen=chosen)
        np.testing.assert_allclose(z.astype(float), wanted, 1e-4, 1e-4)
