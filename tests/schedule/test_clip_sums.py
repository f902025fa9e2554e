# SPDX-License-Identifier: Apache-2.0
"""Sums of which a guard counts some terms: where their loops run over these alone."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.frontend.program import Select
from tcsym.index.expr import maximum, minimum, var
from tcsym.ir.loops import Kernel, Loop, Update
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.split.clip_sums import clip_in_sizes

TEXT = """def f(float(T,M) a, float(T,N) b) -> (float(M,N) O) {{
  O(i,j) {op} {value} where i in 0:M, j in 0:N, t in 0:T
}}"""
T = var("T")


def clipped(value: str, op: str = "+=!") -> tuple[Kernel, Loop, Update]:
    program = analyse(TEXT.format(op=op, value=value))["f"]
    kernel = clip_in_sizes(schedule_program(program, Options(), {}).kernel)
    (found,) = [(x, a) for x, a in walk(kernel.body) if isinstance(x, Update)]
    return kernel, found[1][-1], found[0]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("guard", "lower", "upper"),
    [
        ("t != 0", 1, maximum(1, T)),
        ("t != T - 1", 0, maximum(0, T - 1)),
        ("t > 1 && t < M", 2, maximum(2, minimum(T, var("M")))),
        ("t >= 3", 3, maximum(3, T)),
    ],
)
def test_sizes_that_say_which_terms_count_are_ends(guard: str, lower: int, upper: object) -> None:
    _, loop, update = clipped(f"{guard} ? a(t,i) * b(t,j) : 0")
    assert (loop.lower, loop.upper) == (lower + var("T") * 0, upper)
    assert not isinstance(update.value, Select)


def test_what_moves_with_the_result_stays_a_guard() -> None:
    _, loop, update = clipped("t != 0 && t <= i ? a(t,i) * b(t,j) : 0")
    assert loop.lower.as_int() == 1 and isinstance(update.value, Select)


@pytest.mark.parametrize(
    ("value", "op"),
    [
        ("t != 1 ? a(t,i) * b(t,j) : 0", "+=!"),
        ("t != 0 ? a(t,i) * b(t,j) : 1", "+=!"),
        ("t != 0 ? a(t,i) * b(t,j) : 0", "max=!"),
        ("t <= i ? a(t,i) * b(t,j) : 0", "+=!"),
    ],
)
def test_other_guards_stay(value: str, op: str) -> None:
    program = analyse(TEXT.format(op=op, value=value))["f"]
    kernel = schedule_program(program, Options(), {}).kernel
    assert clip_in_sizes(kernel) == kernel


def test_results_are_those_of_the_reference() -> None:
    text = TEXT.format(op="+=!", value="t != 0 && t < T - 1 ? a(t-1,i) * b(t+1,j) : 0")
    kernel = tcsym.define(text, target="cpu:avx2").f
    for t, m, n in ((0, 3, 4), (1, 3, 4), (2, 5, 1), (3, 1, 9), (40, 33, 35)):
        rng = np.random.default_rng(t)
        given = [rng.integers(-3, 4, s).astype(np.float32) for s in ((t, m), (t, n))]
        np.testing.assert_array_equal(kernel(*given), kernel.reference(*given))
