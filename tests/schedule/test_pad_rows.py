# SPDX-License-Identifier: Apache-2.0
"""Rows of temporaries with room for whole vectors: which ones, and that results stay."""

from __future__ import annotations

import itertools

import pytest

from tcsym.compiler import analyse
from tcsym.ir.loops import Kernel, Loop, Store
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
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


def naive(text: str) -> Kernel:
    return schedule_program(analyse(text)["f"], Options(), {}).kernel


def ragged_stores(kernel: Kernel, buffer: str) -> list[Store]:
    """Stores to it by lanes under a mask."""
    return [
        x
        for x, around in walk(kernel.body)
        if isinstance(x, Store) and x.buffer == buffer
        if any(y.kind == "vector" and y.mask is not None for y in around if isinstance(y, Loop))
    ]


def test_a_vector_that_ends_inside_a_row_keeps_its_mask() -> None:
    mapped = map_cpu(naive(GATES), AVX2, Options()).kernel
    for b in mapped.buffers:
        if b.name.startswith("G") and b.space == "arena" and ragged_stores(mapped, b.name):
            assert not b.padded


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("target", [AVX2, AVX512])
def test_results(name: str, target: object) -> None:
    kernel = naive(TEXTS[name])
    mapped = map_cpu(kernel, target, Options()).kernel  # type: ignore[arg-type]
    for m, n in itertools.product((1, 9, 19), (1, 7, 16, 17, 33)):
        assert_same(kernel, mapped, {"M": m, "N": n, "D": (3, 9)[n < 9]})
