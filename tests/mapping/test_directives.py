# SPDX-License-Identifier: Apache-2.0
"""Directives on random nests: whatever a plan is, it is refused, or results stay."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import tcsym
from tcsym.ir.loops import Kernel
from tcsym.ir.verify import verify
from tcsym.mapping.plan import Refused
from tests.mapping import drawn
from tests.schedule.compare import arguments
from tests.schedule.execute import execute
from tests.schedule.targets import AVX2, AVX512

PLANS = 4  # of a nest


def assert_same(naive: Kernel, mapped: Kernel, sizes: dict[str, int], told: str) -> None:
    """In any order in which loops may run."""
    expected, got = arguments(naive, sizes), arguments(naive, sizes)
    execute(naive, sizes, expected)
    execute(mapped, sizes, got, shuffle=sum(sizes.values()))
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array, err_msg=f"{name} {sizes}\n{told}")


def outcomes(seed: int) -> Counter[str]:
    """Of random plans for the nests of a program: the directives of those that were carried out."""
    r, found = random.Random(seed), Counter[str]()
    source = drawn.program(r)
    kernel = drawn.naive(source)
    for nest in drawn.nests(kernel):
        for _ in range(PLANS):
            text = drawn.plan(r, nest)
            try:
                mapped = drawn.applied(kernel, nest, text, r.choice((AVX2, AVX512)))
            except Refused as reason:
                assert str(reason)
                found["refused"] += 1
                continue
            verify(mapped)
            for _ in range(2):
                sizes = drawn.sizes(r, kernel.sizes)
                assert_same(kernel, mapped, sizes, f"{source}\n{text}")
            found.update({line.split()[0] for line in text.splitlines()} | {"done"})
            found["turned"] += "as turned" in text
    return found


@pytest.mark.parametrize("part", range(6))
def test_results_stay(part: int) -> None:
    found = sum((outcomes(seed) for seed in range(part, 60, 6)), Counter[str]())
    assert found["done"] > found["refused"]
    assert all(found[x] for x in ("split", "order", "merge", "combine", "stage")), found


@pytest.mark.parametrize("parts", [("", "reg:2 "), ("reg:4 ", "")])
def test_two_copies_of_an_operand(parts: tuple[str, str]) -> None:
    """Each has its shape, in loops side by side."""
    text = "def f(float(N,D) X) -> (S,Y) { S(n) +=! X(n,d)  Y(n,d) = X(n,d) / S(n) }"
    first, second = parts
    plan = f"""split d tile {first}lane:8; combine d; split d_1 tile {second}lane:8
        stage X at d.tile order {"d.reg " if first else ""}d.lane
        stage X at d_1.tile order {"d_1.reg " if second else ""}d_1.lane"""
    f = tcsym.define(text, plan=plan, target="cpu:avx2").f
    for n, d in ((1, 1), (5, 7), (13, 70)):
        x = np.random.default_rng(0).uniform(1, 2, (n, d)).astype("f4")
        for got, wanted in zip(f(x), f.reference(x), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
