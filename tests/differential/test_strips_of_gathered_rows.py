# SPDX-License-Identifier: Apache-2.0
"""Sums of gathered rows in strips of columns: the ends of rows, element types, checks, passes."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.errors import BoundsError

BAG = "def f({0}(E,D) T, int32(B,L) I) -> (O) {{ O(b,d) +=! T(I(b,l),d) }}"
WIDTHS = (1, 4, 8, 9, 16, 17, 24, 31, 32, 33, 48, 49, 61, 63, 64, 65, 97, 100, 128, 130, 200)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu"])
@pytest.mark.parametrize("kind", ["float", "double", "half", "int8"])
def test_rows_of_every_width(kind: str, target: str) -> None:
    kernel = tcsym.define(BAG.format(kind), target=target, strategy="symbolic")
    dtype = {"float": "f4", "double": "f8", "half": "f2", "int8": "i1"}[kind]
    rng = np.random.default_rng(1)
    for width in WIDTHS:
        table = rng.integers(-3, 4, (7, width)).astype(dtype)
        at = rng.integers(0, 7, (3, 19)).astype("i4")
        np.testing.assert_array_equal(kernel(table, at), kernel.reference(table, at), f"{width}")


@pytest.mark.parametrize("width", [20, 61, 130])
@pytest.mark.parametrize("wrong", [-1, 5, 2**31 - 1])
def test_a_row_outside_of_the_table_is_an_error(wrong: int, width: int) -> None:
    table, at = np.ones((5, width), "f4"), np.zeros((2, 19), "i4")
    at[1, 18] = wrong
    with pytest.raises(BoundsError, match="out of range in `T`"):
        tcsym.define(BAG.format("float"))(table, at)


@pytest.mark.parametrize("width", [20, 61, 64])
def test_an_empty_table_has_no_rows_to_read(width: int) -> None:
    with pytest.raises(BoundsError, match="out of range in `T`"):
        tcsym.define(BAG.format("float"))(np.ones((0, width), "f4"), np.zeros((1, 19), "i4"))


def test_the_place_of_a_row_is_checked_once_for_its_vectors() -> None:
    text = BAG.format("float").replace("D", "61")
    plan = "split d tile reg:4 lane:16 end=half; order b d.tile"
    listing = tcsym.define(text, target="cpu:avx512", plan=plan).f.explain("asm")
    blocks = [x for x in listing.split("\n.LBB") if "vaddps" in x]
    assert blocks and not any("ktest" in x or "kand" in x or "kmov" in x for x in blocks)
