# SPDX-License-Identifier: Apache-2.0
"""Positions in a known distance of their loops: checked once, and still checked."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.errors import TCError

SCATTER = """def f(float(N) X, uint8(M) at, float(M) D) -> (float(N) Y) {
  Y(2*i + min(at(i), 2)) +=! D(i)
}"""
GATHER = """def f(float(N) X, uint8(M) at, float(M) D) -> (float(M) Y) {
  Y(i) = X(2*i + min(at(i), 2)) * D(i)
}"""
"""The last position of `m` elements is 2*m, which is inside of `n` where n > 2*m."""


@pytest.mark.parametrize("text", [SCATTER, GATHER])
def test_with_and_without_room_for_all(text: str) -> None:
    kernel = tcsym.define(text).f
    rng = np.random.default_rng(0)
    for n, m in ((41, 20), (60, 20), (1, 0), (3, 1), (40, 20)):
        X, D = rng.random(n, np.float32), rng.random(m, np.float32)
        at = rng.integers(0, 2, m).astype(np.uint8)
        expected = kernel.reference(X, at, D)
        np.testing.assert_allclose(kernel(X, at, D), expected, rtol=1e-6)


@pytest.mark.parametrize("text", [SCATTER, GATHER])
def test_outside_is_an_error(text: str) -> None:
    kernel = tcsym.define(text).f
    X, D, at = np.ones(40, np.float32), np.ones(20, np.float32), np.zeros(20, np.uint8)
    at[-1] = 7  # taken as 2: 38 + 2 is not inside
    with pytest.raises(TCError):
        kernel(X, at, D)


@pytest.mark.parametrize("at", ["at(i)", "int32(at(i))"])
def test_one_question_in_front_of_the_loops(at: str) -> None:
    text = SCATTER.replace("at(i)", at)
    mapped = tcsym.define(text, target="cpu:avx2").f.explain("mapped")
    assert mapped.count("if N >= 2*M + 1") == mapped.count("verify") > 0


def test_bytes_lie_inside_of_256() -> None:
    text = "def f(float(N) T, uint8(M) at) -> (Y) { Y(i) = T(at(i)) }"
    assert "if N >= 256" in tcsym.define(text, target="cpu:avx2").f.explain("mapped")


def test_what_is_wider_is_checked_everywhere() -> None:
    text = SCATTER.replace("uint8", "int32")
    assert "if N >= 2*M" not in tcsym.define(text, target="cpu:avx2").f.explain("mapped")


def test_versions_have_temporaries_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum that threads had in common: it was private to loops of the other version."""
    monkeypatch.setenv("TCSYM_VERIFY", "1")
    text = """def f(int32(K) A, uint8(M) P) -> (T) {
      T(i,j) min=! A(P(i)) - k where i in 0:M, j in 0:K, k in P(i):K
    }"""
    kernel = tcsym.define(text, options=tcsym.Options(min_work_per_thread=0)).f
    rng = np.random.default_rng(0)
    for k in (300, 7):
        x = rng.integers(0, 99, k, np.int32), rng.integers(0, min(k, 256), 40, np.uint8)
        np.testing.assert_array_equal(kernel(*x, threads=2), kernel.reference(*x))
