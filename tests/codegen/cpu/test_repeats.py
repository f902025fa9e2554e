# SPDX-License-Identifier: Apache-2.0
"""Reads that give an element to several lanes, `X(i/3)`: no gather, and the same results."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcsym

NEAREST = "def f({t}(N,W) X) -> (Y) {{ Y(n,j) = X(n, {place}) where j in 0:{d}*W{more} }}"
PLACES = ("j/{d}", "({d}*W-1-j)/{d}", "(j+{d}-1)/{d} - (j+{d}-1)/({d}*W)", "j/{d}/2")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:novector"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("d", [2, 3, 4, 5, 6, 8, 9, 16])
def test_repeated_elements_are_those_of_the_reference(target: str, place: str, d: int) -> None:
    if target == "cpu:novector" and d > 3:
        pytest.skip("without vectors all periods are alike")
    t = ("float", "double", "int8")[(d + PLACES.index(place)) % 3]
    source = NEAREST.format(t=t, place=place.format(d=d), d=d, more="")
    k = tcsym.define(source, target=target).f
    for w in (1, 2, 7, 16, 23, 50):
        x = np.arange(3 * w).reshape(3, w).astype({"float": "f4", "double": "f8"}.get(t, "i1"))
        np.testing.assert_array_equal(k(x), k.reference(x))


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
@pytest.mark.parametrize("condition", ["j > 4", "j % 5 != 1", "X(n, 0) > 0.5"])
def test_only_wanted_elements_of_a_run_are_read(target: str, condition: str) -> None:
    value = f"({condition}) ? X(n, j/3) : 0.0"
    source = f"def f(float(N,W) X) -> (Y) {{ Y(n,j) = {value} where j in 0:3*W }}"
    k = tcsym.define(source, target=target).f
    for w in (1, 5, 17, 40):
        x = np.arange(3 * w, dtype=np.float32).reshape(3, w)
        np.testing.assert_array_equal(k(x), k.reference(x))


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("d", [2, 3, 4])
def test_whole_periods_are_permuted_and_not_gathered(target: str, d: int) -> None:
    """A block whose stores are of vectors that are permuted."""
    source = NEAREST.format(t="float", place=f"j/{d}", d=d, more="")
    text = tcsym.define(source, target=target).f.explain("asm")
    vectors = 3 if d == 3 else 1
    found = [b.splitlines() for b in re.split(r"^\.LBB", text, flags=re.MULTILINE)]

    def count(lines: list[str], pattern: str) -> int:
        return sum(bool(re.search(pattern, x)) for x in lines)

    stores = r"vmov\w+\s+%[yz]mm\d+, .*\("
    moves = r"vperm|vshuf|vunpck|vmovs[lh]dup|vbroadcast"
    blocks = [b for b in found if count(b, stores) >= vectors and count(b, moves) >= vectors]
    assert any(not count(b, "gather|vinsertps|imul|div") for b in blocks)
