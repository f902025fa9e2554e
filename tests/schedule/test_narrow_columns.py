# SPDX-License-Identifier: Apache-2.0
"""Few columns and many rows: functions of sums apart from these."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.index.expr import FALSE
from tcsym.index.values import holds
from tcsym.ir.loops import Kernel
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tcsym.schedule.version import narrow_columns
from tests.schedule.compare import assert_same
from tests.schedule.targets import AVX2, AVX512

LINEAR = "def f(float(B,K) X, float(N,K) W, float(N) b) -> (Y) {{ Y(i,j) +=! X(i,k) * W(j,k) {} }}"
BIAS = LINEAR.format("Y(i,j) = fmax(Y(i,j) + b(j), 0)")
TANH = LINEAR.format("Y(i,j) = tanh(Y(i,j))")
GELU = LINEAR.format("Y(i,j) = Y(i,j) + b(j) Y(i,j) = 0.5 * Y(i,j) * (1 + erf(Y(i,j) * 0.7))")
OTHERS = """def f(float(T,B,K) X, float(K,N) W) -> (Y, Z) {
  Y(t,i,j) +=! X(t,i,k) * W(k,j)
  Y(t,i,j) = exp(Y(t,i,j))
  Z(t,i,j) = Y(t,i,j) * 2
}"""
SOURCES = {"bias": BIAS, "tanh": TANH, "gelu": GELU, "others": OTHERS}


def naive(source: str) -> Kernel:
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", [AVX2, AVX512], ids=lambda t: t.name)
@pytest.mark.parametrize("source", SOURCES)
def test_as_without_versions(source: str, target: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow_columns, "LEAST_RESULTS", 1)
    kernel = naive(SOURCES[source])
    mapped = map_cpu(kernel, target, Options(), whole=True).kernel  # type: ignore[arg-type]
    for n in (1, 2, 5, 6, 13):
        for rows, terms in ((1, 3), (8, 1), (67, 7), (33, 8)):
            sizes = {"B": rows, "K": terms, "N": n, "T": 2}
            assert_same(kernel, mapped, {v: sizes[v] for v in kernel.sizes})


@pytest.mark.parametrize(("source", "has_functions"), [(BIAS, False), (TANH, True), (GELU, True)])
def test_few_calls_need_them(source: str, has_functions: bool) -> None:
    left = map_cpu(naive(source), AVX512, Options()).kernel.left_out
    for rows, terms, columns, needed in (
        (9000, 8, 1, has_functions),
        (1000, 30, 12, has_functions),
        (1000, 30, 13, False),
        (100, 30, 2, False),
    ):
        assert holds(left, {"B": rows, "K": terms, "N": columns}) == needed


def test_sums_that_are_stored_have_no_functions() -> None:
    text = LINEAR.format("").replace("float(N) b", "float b")
    left = map_cpu(naive(text), AVX512, Options()).kernel.left_out
    assert left != FALSE and not holds(left, {"B": 9000, "K": 30, "N": 2})


def test_functions_of_few_columns_are_apart() -> None:
    notes = map_cpu(naive(GELU), AVX512, Options(), whole=True).notes
    assert any("few columns: functions of sums apart" in x for x in notes)


@pytest.mark.parametrize(("source", "apart"), [(BIAS, False), (TANH, True)])
def test_light_epilogues_stay_with_sums_along_their_terms(source: str, apart: bool) -> None:
    """They need no second nest, for which threads would wait for each other."""
    kernel = map_cpu(naive(source), AVX512, Options()).kernel
    passed_on = [b for b in kernel.buffers if b.name.startswith("Y_acc") and b.space == "arena"]
    assert bool(passed_on) == apart


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("source", "target"),
    [*((x, "cpu") for x in SOURCES), ("gelu", "cpu:avx2"), ("bias", "cpu:novector")],
)
def test_as_the_reference(source: str, target: str) -> None:
    kernel, rng = tcsym.define(SOURCES[source], target=target).f, np.random.default_rng(3)
    for n, rows, terms in ((1, 8200, 3), (1, 1100, 20), (2, 600, 9), (5, 300, 40), (12, 90, 3)):
        x, w = (rng.uniform(-1, 1, s).astype("f4") for s in ((rows, terms), (n, terms)))
        b = rng.uniform(-1, 1, n).astype("f4")
        given = (x[None].repeat(2, 0), w.T.copy()) if source == "others" else (x, w, b)
        want = kernel.reference(*given)
        for y, z in zip(_each(kernel(*given)), _each(want)):
            np.testing.assert_allclose(y, z, rtol=2e-5, atol=2e-5)


def _each(results: object) -> tuple[np.ndarray, ...]:
    return results if isinstance(results, tuple) else (results,)  # type: ignore[return-value]
