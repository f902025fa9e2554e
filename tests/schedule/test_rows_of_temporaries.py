# SPDX-License-Identifier: Apache-2.0
"""Rows of temporaries that end inside of a vector: results stay."""

from __future__ import annotations

import itertools

import pytest

from tcsym.compiler import analyse
from tcsym.ir.loops import Kernel
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.map_cpu import map_cpu
from tests.schedule.compare import assert_same
from tests.schedule.targets import AVX2, AVX512

SCORES = """def f(float(M,D) X, float(N,D) Y) -> (O) {
  A(m,n) +=! X(m,d) * Y(n,d)
  t(m) max=! A(m,n)
  A(m,n) = fmin(t(m) - A(m,n), 3)
  z(m) +=! A(m,n)
  O(m,d) +=! A(m,n) * Y(n,d)
  O(m,d) = O(m,d) - z(m)
}"""
GATES = """def f(float(M,D) X, float(2,N,D) W) -> (O) {
  G(m,g,n) +=! X(m,d) * W(g,n,d)
  O(m,n) = fmin(G(m,0,n), 5) * G(m,1,n)
}"""
PARTS = """def f(float(M,D) X, float(N,D) W, float(N,D) U) -> (O) {
  G(m,n) +=! X(m,d) * W(n,d) where n in 0:N
  G(m,n) += X(m,d) * U(n,d) where n in 0:N/2
  O(m) max=! G(m,n)
}"""
TEXTS = {
    "scores": SCORES,
    "double": SCORES.replace("float", "double"),
    "half": SCORES.replace("float", "half"),
    "gates": GATES,
    "parts": PARTS,
}
UNSET = "parts"  # lanes that go nowhere are added to sums that nothing began


def naive(text: str) -> Kernel:
    return schedule_program(analyse(text)["f"], Options(), {}).kernel


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("target", [AVX2, AVX512])
def test_results(name: str, target: object) -> None:
    kernel = naive(TEXTS[name])
    mapped = map_cpu(kernel, target, Options()).kernel  # type: ignore[arg-type]
    for m, n in itertools.product((1, 9, 19), (1, 7, 16, 17, 33)):
        assert_same(kernel, mapped, {"M": m, "N": n, "D": (3, 9)[n < 9]}, name != UNSET)
