# SPDX-License-Identifier: Apache-2.0
"""Conditions on sizes around what is done for them alone, and no sum of elements that are unset."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import tcsym
from tcsym.compiler import Lowering, analyse
from tcsym.index.expr import condition_variables
from tcsym.ir.loops import Branch
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.target.names import resolve_target
from tests.fuzz import memory

# the sum is a product of two, asked for where both have terms; the temporary joins one of them
PAIRS = """def f(int8(M,N) C, float(K) D) -> (T) {
  A(i,j) = C(i,j)
  T(j) +=! D(i) * A(j,l)
}"""
GATHERED = """def f(float(N) C, float(K) D, int32(M,N) p) -> (T) {
  A(i,j) = C(p(i,j))
  T(j) +=! D(i) * A(j,l)
}"""
SIZES = [(0, 1, 3), (0, 4, 40), (3, 2, 5), (2, 20, 7), (1, 0, 3), (2, 3, 0)]


@pytest.mark.parametrize("bind", ["never", "before", "after"])
def test_what_nothing_has_set_is_not_added_to(bind: Literal["never", "before", "after"]) -> None:
    program, target = analyse(PAIRS)["f"], resolve_target("cpu")
    for k, m, n in SIZES:
        sizes = {"K": k, "M": m, "N": n}
        stages = Lowering(program, target, Options(bind=bind), sizes, ("dense",) * 3, (), {})
        kernel = stages.mapped(stages.scheduled()).kernel
        c, d = np.arange(m * n).reshape(m, n) % 7, np.arange(k) + 1
        got = memory.run(kernel, {"C": c.astype("i1"), "D": d.astype("f4")}, sizes, 0)
        np.testing.assert_array_equal(got["T"], d.sum() * c.sum(1))


def test_loops_do_not_ask() -> None:
    program, target = analyse(PAIRS)["f"], resolve_target("cpu")
    stages = Lowering(program, target, Options(), {}, ("dense",) * 3, (), {})
    body = stages.mapped(stages.scheduled()).kernel.body
    for x, around in walk(body):
        if isinstance(x, Branch) and around:  # a ragged end
            assert condition_variables(x.condition) & {y.variable for y in around}


def test_positions_are_checked_all_the_same() -> None:
    kernel = tcsym.define(GATHERED)
    c, p = np.ones(3, np.float32), np.zeros((2, 3), np.int32)
    for d in (np.ones(0, np.float32), np.ones(2, np.float32)):
        np.testing.assert_array_equal(kernel(c, d, p), [3 * d.size] * 2)
        p[1, 1] = 3
        with pytest.raises(tcsym.TCError):
            kernel(c, d, p)
        p[1, 1] = 0
