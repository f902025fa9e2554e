# SPDX-License-Identifier: Apache-2.0
"""Bands given to each of their nodes: what passes between these, and how much of it is kept."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.ir.loops import Kernel, Loop
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.analysis.sliding import slides
from tcsym.schedule.map_cpu import map_cpu
from tests.schedule.naive import par, st, v
from tests.schedule.targets import AVX2

ATTENTION = """def f(float(L,D) Q, float(S,D) K, float(S,E) V) -> (O) {
  A(l,s) +=! Q(l,d) * K(s,d)
  m(l) max=! A(l,s)
  A(l,s) = exp(A(l,s) - m(l))
  O(l,e) +=! A(l,s) * V(s,e)
}"""
HEADS = """def f(float(G,L,D) Q, float(G,S,D) K, float(G,S,E) V) -> (O) {
  A(g,l,s) +=! Q(g,l,d) * K(g,s,d)
  m(g,l) max=! A(g,l,s)
  A(g,l,s) = exp(A(g,l,s) - m(g,l))
  O(g,l,e) +=! A(g,l,s) * V(g,s,e)
}"""
LAYER = """def f(float(N,K) X, float(M,K) W) -> (Y) {
  Y(n,m) +=! X(n,k) * W(m,k)
  Y(n,m) = tanh(Y(n,m))
}"""


def mapped(text: str) -> Kernel:
    program = analyse(text)["f"]
    return map_cpu(schedule_program(program, Options(), {}).kernel, AVX2, Options()).kernel


@pytest.mark.parametrize("text", [ATTENTION, HEADS])
def test_what_rows_keep_does_not_grow_with_many(text: str) -> None:
    scores = [b for b in mapped(text).buffers if b.name.startswith("A") and b.space == "arena"]
    assert scores and not any("L" in e.variables() for b in scores for e in b.shape)


def test_dimensions_behind_each_other_do_not_slide() -> None:
    loop = par("k", "K", st("C", v("k"), 0.0))
    window = par("k", 3, st("C", v("k"), 0.0))
    assert isinstance(loop, Loop) and isinstance(window, Loop)
    n, k, size = v("n k K")
    assert not slides(n * size + k, "n", (loop,))
    assert slides(n * size + 2 * k, "n", (loop,))
    assert slides(n + k, "n", (loop,))
    assert slides(2 * n + k, "n", (window,))
    assert slides(4 * n + k, "n", (window,))
    assert not slides(k, "n", (loop,)) and not slides(n, "n", (loop,))
