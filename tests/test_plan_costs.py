# SPDX-License-Identifier: Apache-2.0
"""What users are told of plans' costs: what runs first, others by what they take, in its terms."""

from __future__ import annotations

import re

import pytest

import tcsym
from tcsym.errors import OptionError

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
CHOSEN = """def f(float(N,K) X, float(E,M,K) W, int32(N) c) -> (Y) {
  Y(n,m) +=! X(n,k) * W(c(n),m,k)
}"""
LINE = re.compile(r" *([\d.e+]+ [num]s)  (chosen by cost|asked for|nest \w+ by [\w:]+): (.+)")
VERSION = re.compile(r" +with plan.1 = (\d), ([^:]+): [\d.e+]+ [num]s: .+")


def told(kernel: tcsym.Kernel, **sizes: int) -> list[tuple[str, ...]]:
    lines = str(kernel.explain("costs", **sizes)).splitlines()
    assert lines[0].startswith("# ") and lines[1].startswith("M=")
    chosen = [x.groups() for line in lines[3:] if (x := VERSION.fullmatch(line))]
    assert [int(k) for k, _ in chosen] == list(range(len(chosen)))
    assert len({name for _, name in chosen}) == len(chosen) != 1
    found = [LINE.fullmatch(x) for x in (lines[2], *lines[3 + len(chosen) :])]
    assert all(found), lines
    return [x.groups() for x in found if x]


def test_plans_are_told_by_what_they_take() -> None:
    kernel = tcsym.define(MM, target="cpu:avx2").mm
    ((time, how, terms),) = told(kernel, M=3, K=256, N=64)
    assert how == "chosen by cost" and "fma" in terms and time.endswith(" us")


def test_a_plan_that_is_asked_for_is_told() -> None:
    """Rows that are few are not grouped, if nobody asks for it."""
    lines = []
    for plan in ("", "RowsInOrder", "GroupedRows"):
        kernel = tcsym.define(CHOSEN, target="cpu:avx2", options=tcsym.Options(plan=plan)).f
        lines.append(str(kernel.explain("costs", M=3, N=6, K=64, E=2)).splitlines()[2])
    assert "asked for" not in lines[0] and all("asked for: " in x for x in lines[1:])
    alone, apart, grouped = (float(x.split()[0]) for x in lines)
    assert abs(alone - apart) < 0.05 * alone < abs(alone - grouped)


def test_all_sizes_are_needed() -> None:
    kernel = tcsym.define(MM).mm
    with pytest.raises(OptionError, match="lack a value: K, N") as caught:
        kernel.explain("costs", M=3)
    assert 'explain("costs", M=37, K=37, N=37)' in str(caught.value)
