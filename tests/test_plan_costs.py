# SPDX-License-Identifier: Apache-2.0
"""What users are told of plans' costs: what runs first, others by what they take, in its terms."""

from __future__ import annotations

import re

import pytest

import tcsym
from tcsym.errors import OptionError

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
LINE = re.compile(r" *([\d.e+]+ [num]s)  (chosen by cost|asked for|nest \w+ by [\w:]+): (.+)")
CHOSEN = re.compile(r" +with plan.1 = (\d), ([^:]+): [\d.e+]+ [num]s: .+")


def told(kernel: tcsym.Kernel, **sizes: int) -> list[tuple[str, ...]]:
    lines = str(kernel.explain("costs", **sizes)).splitlines()
    assert lines[0].startswith("# ") and lines[1].startswith("M=")
    chosen = [x.groups() for line in lines[3:] if (x := CHOSEN.fullmatch(line))]
    assert [int(k) for k, _ in chosen] == list(range(len(chosen)))
    assert len({name for _, name in chosen}) == len(chosen) != 1
    found = [LINE.fullmatch(x) for x in (lines[2], *lines[3 + len(chosen) :])]
    assert all(found), lines
    return [x.groups() for x in found if x]


def test_plans_are_told_by_what_they_take() -> None:
    kernel = tcsym.define(MM, target="cpu:avx2").mm
    (first, *others) = told(kernel, M=3, K=256, N=64)
    assert first[1] == "chosen by cost" and "fma" in first[2]
    assert len({x[1] for x in others}) == len(others) > 1
    nanoseconds = [float(t[:-3]) * {"ns": 1, "us": 1e3, "ms": 1e6}[t[-2:]] for t, *_ in others]
    assert nanoseconds == sorted(nanoseconds)


def test_a_plan_that_is_told_can_be_asked_for() -> None:
    sizes = {"M": 3, "K": 256, "N": 64}
    *_, last = told(tcsym.define(MM, target="cpu:avx2").mm, **sizes)
    _, nest, _, plan = last[1].split()
    options = tcsym.Options(plan=f"{nest}: {plan}")
    first, *_ = told(tcsym.define(MM, target="cpu:avx2", options=options).mm, **sizes)
    assert first[:2] == (last[0], "asked for")


def test_all_sizes_are_needed() -> None:
    kernel = tcsym.define(MM).mm
    with pytest.raises(OptionError, match="lack a value: K, N") as caught:
        kernel.explain("costs", M=3)
    assert 'explain("costs", M=37, K=37, N=37)' in str(caught.value)
