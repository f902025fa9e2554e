# SPDX-License-Identifier: Apache-2.0
"""Sums of a loop in order that need no step of it: one contraction over all steps before it."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.frontend.program import For
from tcsym.rewrite.hoist_sums import hoist_sums

RNN = """def rnn(float(T,B,I) X, float(B,H) h0, float(H,I) W, float(H,H) U) -> (S) {
  State(n,h) = h0(n,h)
  for t in T {
    G(n,h) +=! X(t,n,i) * W(h,i)
    G(n,h) += State(n,k) * U(h,k)
    State(n,h) = tanh(G(n,h))
    S(t,n,h) = State(n,h)
  }
}"""


def hoisted(text: str) -> list[str]:
    program = hoist_sums(analyse(text)["rnn"])
    return [x.name for x in program.body if not isinstance(x, For) and ".steps" in x.name]


def test_products_with_weights_are_hoisted() -> None:
    assert hoisted(RNN) == ["S1.steps"]
    kernel = tcsym.define(RNN, target="cpu:avx2").rnn
    schedule = kernel.explain("schedule")
    assert schedule.index("S1.steps") < schedule.index("sequential t")
    for t, b, i, h in ((3, 4, 5, 6), (5, 17, 3, 9), (0, 2, 3, 4), (3, 2, 0, 4)):
        rng = np.random.default_rng(t)
        shapes = (t, b, i), (b, h), (h, i), (h, h)
        given = [(0.3 * rng.standard_normal(s)).astype(np.float32) for s in shapes]
        np.testing.assert_allclose(kernel(*given), kernel.reference(*given), 1e-5, 1e-5)


@pytest.mark.parametrize(
    "change",
    [
        ("X(t,n,i)", "X(0,n,i)"),  # nothing moves with the step
        ("* W(h,i)", "* X(t,n,i) where h in 0:H"),  # all does
        ("X(t,n,i) * W(h,i)", "State(n,i) * W(h,i) * X(t,n,0)"),  # of the step before
        ("X(t,n,i) * W(h,i)", "X(t,n,i) * W(h,i) where i in 0:t+1"),
        ("+=!", "max=!"),
    ],
)
def test_other_sums_stay(change: tuple[str, str]) -> None:
    assert hoisted(RNN.replace(*change, 1)) == []


def test_a_plan_keeps_what_is_hoisted_in_its_step() -> None:
    plan = tcsym.define(RNN).plan()
    assert [t.name for t in plan.tensors if t.role == "temporary"] in ([], ["State"])
    session = plan.session()
    given = [np.full(s, 0.1, np.float32) for s in ((3, 2, 4), (2, 5), (5, 4), (5, 5))]
    want = tcsym.define(RNN).rnn.reference(*given)
    np.testing.assert_allclose(session(*given), want, 1e-5)
