# SPDX-License-Identifier: Apache-2.0
"""Bit operations (LANGUAGE F6): precedence, types, counts, and what guards they are."""

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.frontend.interpret_values import arithmetic
from tcsym.frontend.program import Statement, dtype_of
from tcsym.frontend.program_text import expr_text
from tcsym.types import DType

HEAD = "def f(int32(N) A, uint8(N) U, uint64(N) W, bool(N) P, float(N) X) -> (C) { "


def last(text: str) -> Statement:
    item = analyse(f"{HEAD}C(i) = {text} }}", "<tc>")["f"].body[-1]
    assert isinstance(item, Statement)
    return item


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("A(i) | A(i) ^ A(i) & A(i) << 1 + 2", "(A(i) | (A(i) ^ (A(i) & (A(i) << (1 + 2)))))"),
        ("~A(i) * 2", "((A(i) ^ -1) * 2)"),
        ("A(i) & 3 == 1", "((A(i) & 3) == 1)"),
        ("A(i) << 1 >> 2", "((A(i) << 1) >> 2)"),
        ("U(i) << W(i)", "(U(i) << uint8(min(W(i), 8)))"),
        ("W(i) >> A(i)", "(W(i) >> uint64(uint32(A(i))))"),
        ("A(i) >> 99", "(A(i) >> 99)"),
        ("U(i) >> 300", "(U(i) >> 8)"),
    ],
)
def test_groups_and_counts(text: str, grouped: str) -> None:
    assert expr_text(last(text).value) == grouped


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("U(i) & 255", DType.UINT8),
        ("256 | U(i)", DType.INT32),
        ("U(i) ^ A(i)", DType.INT32),
        ("P(i) ^ P(i) | true", DType.BOOL),
        ("U(i) << A(i)", DType.UINT8),
        ("~W(i)", DType.UINT64),
        ("1 << W(i)", DType.INT32),
    ],
)
def test_types(text: str, dtype: DType) -> None:
    assert dtype_of(last(text).value) is dtype


def test_bits_of_bools_are_guards() -> None:
    """Both sides hold in the first arm, so nothing of `X(i - 1)` is left to infer from."""
    s = last("(i >= 1) & (i < N + 1) ? X(i - 1) : 0.0 where i in 0:N")
    assert "!" not in expr_text(s.value)


def test_counts_outside_of_the_width() -> None:
    a = np.array([-5, 5, -5, 5, -5], np.int8)
    counts = np.array([1, 1, 8, 8, -1], np.int8)
    assert arithmetic("shr", a, counts).tolist() == [-3, 2, -1, 0, -1]
    assert arithmetic("shl", a, counts).tolist() == [-10, 10, 0, 0, 0]


def test_large_unsigned_integers_keep_all_bits_when_they_are_shifted() -> None:
    kernel = tcsym.define("def f(uint64(N) A, int8(N) B) -> (Y) { Y(i) = A(i) >> B(i) }").f
    a, b = np.array([2**64 - 1, 2**63 + 3, 7], np.uint64), np.array([0, 1, -1], np.int8)
    for found in (kernel(a, b), kernel.reference(a, b)):
        np.testing.assert_array_equal(found, np.array([2**64 - 1, 2**62 + 1, 0], np.uint64))
