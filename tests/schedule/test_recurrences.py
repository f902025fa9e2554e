# SPDX-License-Identifier: Apache-2.0
"""Recurrences on processors: what a step keeps where it is used, and packs only if it is read."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsym

LINEAR_ATTENTION = """
def attend(float(T,B,K) Q, float(T,B,K) Ke, float(T,B,V) Va) -> (Y) {
  for t in T {
    if t == 0 { S(t,b,k,v) = Ke(t,b,k) * Va(t,b,v) }
    else { S(t,b,k,v) = S(t-1,b,k,v) + Ke(t,b,k) * Va(t,b,v) }
    Y(t,b,v) +=! Q(t,b,k) * S(t,b,k,v)
  }
}
"""
RNN = """
def rnn(float(T,B,H) X, float(H,H) U) -> (Y) {
  State(n,h) = 0.0 where n in 0:B, h in 0:H
  for t in T {
    G(n,h) +=! State(n,k) * U(h,k)
    State(n,h) = tanh(G(n,h) + X(t,n,h))
    Y(t,n,h) = State(n,h)
  }
}
"""


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / 4


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:novector"])
def test_results_are_right_with_many_rows_and_few(target: str) -> None:
    attend = tcsym.define(LINEAR_ATTENTION, target=target).attend
    for t, b, k, v in ((3, 2, 5, 70), (1, 17, 3, 1), (4, 1, 1, 33), (0, 2, 2, 2), (2, 18, 4, 8)):
        given = _random(t, b, k), _random(t, b, k), _random(t, b, v)
        np.testing.assert_allclose(attend(*given), attend.reference(*given), 1e-4, 1e-5)
    rnn = tcsym.define(RNN, target=target).rnn
    for t, b, h in ((3, 1, 40), (2, 40, 33), (1, 5, 8), (2, 0, 3), (3, 2, 1)):
        x, u = _random(t, b, h), _random(h, h)
        np.testing.assert_allclose(rnn(x, U=u), rnn.reference(x, u), 1e-4, 1e-5)


def test_the_state_of_a_row_is_its_own_where_rows_are_outside() -> None:
    mapped = tcsym.define(LINEAR_ATTENTION, target="cpu:avx2").attend.explain("mapped")
    assert re.search(r"^  S float32\[K, V\] arena private to b$", mapped, re.MULTILINE)


def test_choices_of_a_step_leave_its_innermost_loops() -> None:
    mapped = tcsym.define(LINEAR_ATTENTION, target="cpu:avx2").attend.explain("mapped")
    lines = mapped.splitlines()
    at = [k for k, x in enumerate(lines) if re.search(r"serial k\S* in 0:K", x)]
    assert at and not any("if t" in lines[k + 1] for k in at)


def test_lanes_that_no_iteration_changes_are_loaded_before_the_loop() -> None:
    asm = tcsym.define(LINEAR_ATTENTION, target="cpu:avx512").attend.explain("asm")
    products = re.findall(r"\tvmulps\t.*zmm.*", asm)
    assert products and not [x for x in products if "(" in x and "{" not in x]


def test_panels_are_packed_at_sizes_that_read_them() -> None:
    mapped = tcsym.define(RNN, target="cpu:avx2").rnn.explain("mapped")
    before = mapped[: mapped.index("serial t in")]
    packing = [x for x in before.splitlines() if "U.copy" in x and " = U[" in x]
    assert packing and all(x.startswith("  ") for x in packing)
    assert re.findall(r"^if plan", before, re.MULTILINE)
