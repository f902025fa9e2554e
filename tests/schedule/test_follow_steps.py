# SPDX-License-Identifier: Apache-2.0
"""Stores of a step that has a branch of its own move with the step, as the other steps' do."""

from __future__ import annotations

import pytest

from tcsym.index.expr import Condition, Index, eq, ge, negate, var
from tcsym.ir.loops import Branch, Kernel, Store
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.order.follow_steps import follow_steps
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, kernel, op, par, rd, seq, st, v
from tests.schedule.targets import AVX2

D, T, ROW, OTHER = v("D t i j")
NEXT = st("O", (OTHER, T), op("add", rd("O", OTHER, T - 1), rd("X", OTHER, T)))


def scan(condition: Condition, first: Index | int, swapped: bool = False) -> Kernel:
    """for t { if `condition` { O(i,first) = X(i,first) } else { O(j,t) = O(j,t-1) + X(j,t) } }."""
    begin = par("i", "N", st("O", (ROW, first), rd("X", ROW, first)))
    other = par("j", "N", NEXT)
    arms = (other, begin) if swapped else (begin, other)
    buffers = [buf("X", "N D"), buf("O", "N D")]
    return kernel("scan", "N D", buffers, seq("t", "D", Branch(condition, *arms)))


def stored(k: Kernel) -> set[str]:
    return {str(x.subscripts[1]) for x, _ in walk(follow_steps(k).body) if isinstance(x, Store)}


@pytest.mark.parametrize(
    "k",
    [
        scan(eq(T, 0), 0),
        scan(ge(0, T), 0),
        scan(ge(T, 1), 0, swapped=True),
        scan(negate(eq(T, 0)), 0, swapped=True),
    ],
)
def test_stores_of_the_only_step_follow_it(k: Kernel) -> None:
    assert stored(k) == {"t"}
    for n, d in ((1, 1), (3, 2), (9, 17), (40, 5)):
        assert_same(k, map_cpu(k, AVX2, Options()).kernel, {"N": n, "D": d})


@pytest.mark.parametrize(
    "k",
    [
        scan(ge(1, T), 0),  # two steps store it
        scan(eq(T, 1), 0),  # another step
        scan(eq(T, 0), D - 1),
        scan(eq(T + var("i"), 0), 0),
    ],
)
def test_other_stores_stay(k: Kernel) -> None:
    assert follow_steps(k) == k


def test_rows_of_such_a_scan_run_outside_of_it() -> None:
    nest = map_cpu(scan(eq(T, 0), 0), AVX2, Options()).kernel.body
    loops = [x.variable[0] for x, _ in walk(nest) if hasattr(x, "variable")]
    assert loops[0] in "ij"
