# SPDX-License-Identifier: Apache-2.0
"""Ways to take the steps of a loop in order on a device, in the twin, which looks for races."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.compiler import analyse
from tcsym.index.values import evaluate
from tcsym.ir.races import races
from tcsym.proved import schedule_program
from tcsym.runtime.native import HAS_ENTRIES
from tcsym.schedule.map_gpu import map_gpu
from tcsym.target.cuda import twin_target

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
    pairs = zip(got, want) if isinstance(got, tuple) else [(got, want)]
    for a, b in pairs:
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("name", "way"),  # but of blocks for `states`, which none is offered
    [(n, w) for n in PROGRAMS for w in WAYS if (n, w) != ("states", "BlockSteps")],
)
def test_every_way_agrees_with_the_interpreter(name: str, way: str) -> None:
    kernel = tc.define(PROGRAMS[name], target="cuda:twin", options=tc.Options(plan=way))[name]
    for sizes in SIZES:
        check(kernel, sizes)


FORWARD = """
def forward(float(T,B,H) X, float(B,H) h0) -> (float(T+1,B,H) S) {
  S(0,n,h) = h0(n,h)
  for t in T {
    m(n) max=! S(t,n,h)
    e(n,h) = exp(S(t,n,h) - m(n))
    z(n) +=! e(n,h)
    S(t+1,n,h) = e(n,h) / z(n) * X(t,n,h)
  }
}
"""
MEETING = FORWARD.replace("exp(S(t,n,h)", "exp(S(t,n,H-1-h)").replace("forward", "meeting")
BEHIND = """
def behind(float(T,B,H) X, float(B,H) h0) -> (float(T+1,B,H) S, float(T,B,H) Y) {
  S(0,n,h) = h0(n,h)
  for t in T {
    m(n) max=! S(t,n,h)
    S(t+1,n,h) = X(t,n,h) - m(n)
    Y(t,n,h) = S(t,n,h) * S(t+1,n,h)
  }
}
"""
ROWS = {"rnn": RNN, "forward": FORWARD, "meeting": MEETING, "behind": BEHIND}


def through_steps(plan: str) -> tc.Options:
    """The nest of the first values, then the ways of the steps, then rows through all steps."""
    return tc.Options(plan=f"t: ThreadSteps\nn_1: {plan}")


@pytest.mark.filterwarnings("error::tcsym.TCWarning")  # each is offered what it asks for
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        *((name, plan) for name in ROWS for plan in ("BlockRows:32x8", "BlockRows:128x1")),
        *((name, "BlockRows:32x8x8") for name in ("forward", "meeting")),
    ],
)
def test_threads_share_rows_through_all_steps(name: str, plan: str) -> None:
    kernel = tc.define(ROWS[name], target="cuda:twin", options=through_steps(plan))[name]
    for sizes in SIZES:
        check(kernel, sizes)


@pytest.mark.parametrize("name", ["forward", "meeting"])
def test_threads_that_share_rows_are_proved_not_to_race(name: str) -> None:
    (p,) = analyse(ROWS[name]).values()
    naive = schedule_program(p, tc.Options(), {}).kernel
    kernel = map_gpu(naive, twin_target().machine, through_steps("BlockRows:128x1")).kernel
    assert list(races(kernel)) == []


def test_a_warp_keeps_its_state_through_all_steps() -> None:
    """No thread needs what another one wrote, so none waits for others."""
    options = through_steps("BlockRows:32x8x8")
    text = tc.define(FORWARD, target="cuda:sm_80", options=options).forward.explain("cuda")
    grid = next(x for x in text.split("__global__") if "S_state_held" in x)
    assert "launch_bounds__(256)" in grid and "__syncthreads" not in grid
    assert grid.count(" = S[") == 1  # before the first step


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


@pytest.mark.parametrize("steps", ["S", "1:S", "R:S+1", "min(R,S):S%R+2"])
@pytest.mark.parametrize("rows", ["1:N", "R:N", "0:N-R"])
def test_sizes_that_only_bound_loops_are_known_on_the_device(steps: str, rows: str) -> None:
    text = f"""def f(inout float(N) u, size S, size R) -> () {{
      for s in {steps} {{ u(i) = u(i) + 0.5*u(max(i-1,0)) where i in {rows} }}
    }}"""
    kernel = tc.define(text, target="cuda:twin").f
    for n_steps in (0, 3):
        found, want = (np.arange(10, dtype=np.float32) for _ in range(2))
        kernel(found, n_steps, 2)
        kernel.reference(want, n_steps, 2)
        np.testing.assert_allclose(found, want, 1e-6)
