# SPDX-License-Identifier: Apache-2.0
"""Quotients of loop counters are counted; what only a ragged tile needs is computed there."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tcsym.codegen import emit
from tcsym.frontend.program import Cast, IndexValue, Read
from tcsym.index.expr import ONE, ZERO, Index, floordiv, ge, maximum, mod, var
from tcsym.ir.loops import Branch, Buffer, Kernel, Loop, Node, Store
from tcsym.target.names import resolve_target
from tcsym.types import DType
from tests.codegen.harness import load

F64, I64 = DType.FLOAT64, DType.INT64
I, N, M = var("i"), var("N"), var("M")  # noqa: E741
O = Buffer("O", F64, (N,))  # noqa: E741


def _at(name: str, place: Index, body: Node) -> Loop:
    return Loop(name, place, place + 1, body)


def _places() -> Kernel:
    """O(i) = 1000 * (i / M) + i % M, from i = 3 on, by loops of one iteration."""
    value = Cast(IndexValue(var("q") * 1000 + var("r"), I64), F64)
    inside = _at("q", floordiv(I, M), _at("r", mod(I, M), Store("O", (I,), value)))
    return Kernel("k", ("N", "M"), ("O",), (O,), Loop("i", Index((), 3), N, inside))


@pytest.mark.parametrize("m", [0, 1, 2, 3, 5, 100])
def test_places_in_a_loop_are_quotient_and_remainder(m: int) -> None:
    out = np.zeros(17)
    assert load(_places(), "cpu")({"O": out}, {"N": 17, "M": m}) == 0
    i = np.arange(17)
    want = 1000 * (i // m) + i % m if m else 0 * i
    np.testing.assert_array_equal(out, np.where(i >= 3, want, 0))


def test_no_division_in_the_loop() -> None:
    text = emit(_places(), resolve_target("cpu:avx2"), 1).ir_text
    body = text[re.search(r"^loop\d+:", text, re.MULTILINE).start() :]  # type: ignore[union-attr]
    assert "div" in text
    assert "div" not in body and "rem" not in body


def test_what_the_second_arm_needs_is_computed_there() -> None:
    """M * M * (...) does not move with the loop, but tiles that are full never use it."""
    rare = Read("O", (maximum(ZERO, M * M - N * N - ONE),), F64)
    body = Branch(
        ge(N - I * 4, 4), Store("O", (I,), Read("O", (I + 1,), F64)), Store("O", (I,), rare)
    )
    k = Kernel("k", ("N", "M"), ("O",), (O,), Loop("i", ZERO, floordiv(N + 3, 4), body))
    text = emit(k, resolve_target("cpu:avx2"), 1).ir_text
    assert "mul" in text[text.index("\nelse") :]
    assert "mul i64 %M, %M" not in text[: text.index("\nelse")].replace("nsw ", "")
