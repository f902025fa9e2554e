# SPDX-License-Identifier: Apache-2.0
"""Tiny loops that choose: no choice is left, and results stay."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.frontend.program import Select
from tcsym.ir.loops import Kernel, Store
from tcsym.ir.traverse import subvalues, walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.map_cpu import map_cpu
from tests.schedule.compare import assert_same
from tests.schedule.targets import TARGETS, some_sizes

TEXTS = {
    "adjugate": """def f(float(B,2,2) X) -> (Z) {
  d(b) = X(b,0,0) * X(b,1,1) - X(b,0,1) * X(b,1,0)
  Z(b,i,j) = (i == j ? X(b,1-i,1-j) : -X(b,i,j)) * d(b) where i in 0:2, j in 0:2
}""",
    "neighbours": """def f(float(B,3) X) -> (Z) {
  Z(b,c) = (c > 0 ? X(b,c-1) : 0.0) + (c < 2 ? X(b,c+1) : 1.0) where c in 0:3
}""",
    "nested": """def f(float(B,3,3) X) -> (Z) {
  Z(b,i,j) = i == j ? (i > 0 ? X(b,i-1,j) : 2.0) : X(b,j,i) where i in 0:3, j in 0:3
}""",
}
OTHERS = {
    "rows": "def f(float(B,3) X) -> (Z) { Z(b,c) = b > c ? X(b,c) : 0.0 where c in 0:3 }",
    "many": "def f(float(B,4,4) X) -> (Z) { Z(b,i,j) = i > j ? X(b,i,j) : X(b,j,i) }",
}


def naive(text: str) -> Kernel:
    return schedule_program(analyse(text)["f"], Options(), {}).kernel


def choices(kernel: Kernel) -> int:
    stores = (x for x, _ in walk(kernel.body) if isinstance(x, Store))
    return sum(isinstance(v, Select) for x in stores for v in subvalues(x.value))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("target", TARGETS)
def test_each_iteration_has_what_it_chose(name: str, target: str) -> None:
    kernel = naive(TEXTS[name])
    mapped = map_cpu(kernel, TARGETS[target], Options()).kernel
    assert choices(kernel) and not choices(mapped)
    for sizes in some_sizes(kernel):
        assert_same(kernel, mapped, sizes)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_decided_or_not_tiny_stays(name: str) -> None:
    kernel = naive(OTHERS[name])
    mapped = map_cpu(kernel, TARGETS["avx512"], Options()).kernel
    for sizes in some_sizes(kernel):
        assert_same(kernel, mapped, sizes)
