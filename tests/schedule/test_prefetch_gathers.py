# SPDX-License-Identifier: Apache-2.0
"""Rows that are gathered and summed are fetched ahead."""

from __future__ import annotations

import pytest

from tcsym import define
from tcsym.index.expr import Index
from tcsym.ir.loops import Branch, Kernel, Loop, Prefetch
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.ahead.prefetch_gathers import STEPS_AHEAD
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tcsym.target.names import resolve_target

BAG = "def f(float(E,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l),d) }"
WEIGHTED = """def f(float(E,D) T, int32(B,L) I, float(B,L) W) -> (O) {
    O(b,d) +=! W(b,l) * T(I(b,l),d)
}"""
NEAR = "def f(float(E,D) T, float(B,L) X) -> (O) { O(b,d) +=! X(b,l) * T(l,d) }"
TWICE = """def f(float(E,D) T, int32(N) P, int32(B,L) I) -> (O) { O(b,d) +=! T(P(I(b,l)),d) }"""


GUARDED = """def f(float(E,D) T, int32(B,K) I, float(B,L) W) -> (O) {
    O(b,d) +=! W(b,l) > 0.0 ? (l < K ? T(I(b,l),d) : 0.0) : 0.0
}"""


def mapped(source: str, target: str = "cpu:avx2") -> Kernel:
    from tcsym.compiler import analyse

    kernel = schedule_program(analyse(source)["f"], Options(), {}).kernel
    return map_cpu(kernel, resolve_target(target).machine, Options()).kernel


def fetches(kernel: Kernel) -> list[tuple[Prefetch, Loop]]:
    """Prefetches at an index that is read, and the loop around each whose steps all run."""
    return [
        (x, next(y for y in reversed(around) if y.kind == "serial" and y.at is None))
        for x, around in walk(kernel.body)
        if isinstance(x, Prefetch) and not isinstance(x.read.subscripts[0], Index)
    ]


@pytest.mark.parametrize("source", [BAG, WEIGHTED])
def test_gathered_rows_are_fetched_some_steps_ahead(source: str) -> None:
    found = fetches(mapped(source))
    assert found
    for x, loop in found:
        text = str(x.read.subscripts[0])
        assert loop.variable in text and str(STEPS_AHEAD) in text and not any(x.read.checked)


def test_every_line_of_a_strip_is_fetched() -> None:
    for target, lines in (("cpu:avx2", 4), ("cpu:avx512", 4)):
        bodies = [x.body for x, _ in walk(mapped(BAG, target).body) if isinstance(x, Loop)]
        counts = [
            sum(isinstance(y, Prefetch) for y, _ in walk(b.then))
            for body in bodies
            for b, _ in walk(body)
            if isinstance(b, Branch)
        ]
        assert lines in counts


@pytest.mark.parametrize("source", [NEAR, TWICE, GUARDED])
def test_other_rows_are_not(source: str) -> None:
    """Rows in order are what prefetchers are for; an index that is gathered may lie anywhere, and
    one under a condition nowhere."""
    assert not fetches(mapped(source))


def test_small_tables_are_not_worth_it() -> None:
    text = define(BAG).f.explain("mapped")
    assert ">= " in next(line for line in text.splitlines() if "if 4*" in line and "E" in line)
