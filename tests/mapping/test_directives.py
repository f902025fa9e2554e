# SPDX-License-Identifier: Apache-2.0
"""Directives on random nests: whatever a plan is, it is refused, or results stay."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

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
