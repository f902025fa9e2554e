"""Ways to take the steps of a loop in order on a device, in the twin, which looks for races."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.index.values import evaluate
from tcsym.runtime.native import HAS_ENTRIES

pytestmark = pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")

RNN = """
def rnn(float(T,B,H) X, float(B,H) h0, float(H,H) U) -> (float(T+1,B,H) S) {
  S(0,n,h) = h0(n,h)
  for t in T {
    A(n,h) +=! S(t,n,k) * U(h,k)
    S(t+1,n,h) = tanh(A(n,h) + X(t,n,h))
  }
}
"""
GATED = """
def gated(float(T,B,H) X, float(B,H) h0, float(2,H,H) U) -> (float(T+1,B,H) S) {
  S(0,n,h) = h0(n,h)
  for t in T {
    G(n,q,h) +=! S(t,n,k) * U(q,h,k)
    S(t+1,n,h) = tanh(G(n,1,h) + X(t,n,h)) / (1.0 + exp(-G(n,0,h)))
  }
}
"""
STATES = """
def states(float(T,B) X, float(B,H) A, float(T,H) U) -> (float(T,B) Y) {
  s(n,h) = 0.0 where n in 0:B, h in 0:H
  for t in T {
    s(n,h) = exp(A(n,h)) * s(n,h) + X(t,n)
    Y(t,n) +=! s(n,h) * U(t,h)
  }
}
"""
BEGINS = """
def begins(float(T,B,H) X, float(H,H) U) -> (V) {
  for t in T {
    if t == 0 { V(t,n,h) = X(t,n,h) }
    else { V(t,n,h) max=! V(t-1,n,k) + U(k,h)  V(t,n,h) = V(t,n,h) + X(t,n,h) }
  }
}
"""
SIZES = ((3, 2, 5), (2, 1, 1), (4, 3, 40), (0, 2, 3), (2, 0, 4), (2, 3, 0))
WAYS = "ThreadSteps", "BlockSteps", "GridSteps", "LaunchSteps"


PROGRAMS = {"rnn": RNN, "gated": GATED, "states": STATES, "begins": BEGINS}


def check(kernel: Any, sizes: tuple[int, ...]) -> None:
    known, rng = dict(zip("TBH", sizes, strict=True)), np.random.default_rng(0)
    shapes = [tuple(evaluate(e, known) for e in x.shape) for x in kernel.program.inputs]
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    got, want = kernel(*arrays), kernel.reference(*arrays)
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_way_agrees_with_the_interpreter(name: str, way: str) -> None:
    kernel = tc.define(PROGRAMS[name], target="cuda:twin", options=tc.Options(plan=way))[name]
    for sizes in SIZES:
        check(kernel, sizes)


def test_the_cost_chooses() -> None:
    plan = " ".join(tc.define(GATED, target="cuda:twin").gated.explain("plan").split())
    assert re.search("a block for each of [^ ]* takes all steps of t", plan)
    assert "a launch for each nest of each step of t" in plan


def test_points_of_a_step_may_share_sums_among_threads() -> None:
    """Sums of a step have a dimension for it, too."""
    options = tc.Options(plan="LaunchSteps")
    plan = tc.define(GATED, target="cuda:twin", options=options).gated.explain("plan")
    assert re.search("32 threads for each of n[^,]*, q[^,]*, h", " ".join(plan.split()))


def test_rows_of_points_take_all_steps_in_a_thread() -> None:
    kernel = tc.define(tc.library.source("qrnn"), target="cuda:twin").qrnn
    mapped = kernel.explain("mapped")
    assert mapped.count("  block ") == 0 and "C float32[] register" in mapped
    for sizes in SIZES:
        check(kernel, sizes)


def test_what_threads_hand_to_each_other_is_read_again() -> None:
    """LLVM moves reads of what is `noalias` over barriers."""
    options = tc.Options(plan="BlockSteps")
    text = tc.define(RNN, target="cuda:sm_80", options=options).rnn.explain("llvm")
    (body,) = [x for x in text.splitlines() if x.startswith("define") and "task2.body(" in x]
    assert body.count("ptr noalias %p") == 2 and body.count("ptr %p") == 1


def test_blocks_that_stay_are_shown_to_people() -> None:
    options = tc.Options(plan="GridSteps")
    text = tc.define(GATED, target="cuda:sm_80", options=options).gated.explain("cuda")
    assert "grid_sync(arrived" in text and "+= gridDim.x)" in text and ", cooperative>>>" in text
