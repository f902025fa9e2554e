# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of sizes alone: its exact value fits int32, or the call is refused (LANGUAGE E4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import SizeError
from tests.frontend.test_infer_ranges import checks, inferred

SCALED = """def scaled(float(N) X, size H, size W) -> (Y) {
  Y(i) = X(i) * scale where scale = 1.0/(H*W)
}"""
X = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1.0/(H*W)", ["1:56 2147483647 >= H*W"]),
        ("1.0/(H + W - 3)", []),
        ("1.0/(float(H)*W)", []),
        ("1.0/(1 - H*W)", ["1:60 2147483647 >= H*W", "1:56 2147483649 >= H*W"]),
        ("H*W < 1000 ? 1.0/(H*W) : 0.0", []),
        ("H < 9 && W < 9 ? X(i) : 1.0", []),
        ("X(i)*(i*W + H)", []),
        ("X(i)*(H*W + i)", ["1:57 2147483647 >= H*W"]),
        ("X(i)*(65536*65536)", []),
        ("X(H*W*i)", []),
    ],
)
def test_products_of_sizes_are_checked(value: str, expected: list[str]) -> None:
    text = f"def f(float(N) X, size H, size W) -> (Y) {{ Y(i) = {value} where i in 0:1 }}"
    found = [c for c in checks(inferred(text)) if "21474836" in c]
    assert found == [f"size {c}" for c in expected]


def test_sizes_of_a_callee_are_those_of_its_caller() -> None:
    mean = "def mean(float(N) X) -> (y) { y +=! X(i) / N }\n"
    text = (
        f"{mean}def f(float(H,W) X) -> (y) {{ T(i) = X(i/W, i%W) where i in 0:H*W  y = mean(T) }}"
    )
    assert "size 1:31 2147483647 >= H*W" in checks(inferred(text))


def test_inner_products_are_checked_first() -> None:
    text = "def f(size A, size B, size C) -> (y) { y = 1.0/(1 + A*B*C) }"
    assert [c.split(" ", 2)[2] for c in checks(inferred(text))] == [
        "2147483647 >= A*B",
        "2147483647 >= A*B*C",
        "2147483646 >= A*B*C",
    ]


def _loaded(tmp_path: Path) -> Any:
    return tcsym.load(tcsym.define(SCALED).export(tmp_path / "scaled", targets=["cpu:avx2"]))


@pytest.mark.parametrize(
    "called",
    [
        lambda _: tcsym.define(SCALED),
        lambda _: tcsym.define(SCALED).reference,
        lambda _: tcsym.define(SCALED, strategy="specialize"),
        lambda _: tcsym.define(SCALED, sizes={"N": range(9)}, strategy="bucket"),
        _loaded,
    ],
    ids=["kernel", "reference", "specialize", "bucket", "artifact"],
)
def test_calls_are_refused(called: Callable[[Path], Any], tmp_path: Path) -> None:
    kernel = called(tmp_path)
    for _ in range(2):  # by Python, then by native code
        np.testing.assert_allclose(kernel(X, 3, 4), X / 12, rtol=1e-6)
        with pytest.raises(SizeError, match=r"`H\*W` does not fit int32"):
            kernel(X, 50000, 50000)
    with pytest.raises(SizeError, match="int32"):
        kernel(X, 2**31 - 1, 2**31 - 1)


def test_the_error_says_where_and_what_to_write() -> None:
    with pytest.raises(SizeError) as caught:
        tcsym.define(SCALED)(X, 50000, 50000)
    assert str(caught.value).splitlines() == [
        "<tc>:2:42: scaled: `H*W` does not fit int32, the type of sizes (H = 50000, W = 50000)",
        "      Y(i) = X(i) * scale where scale = 1.0/(H*W)",
        " " * 45 + "^",
        "hint: convert sizes before they are multiplied, as `float(H)*float(W)` or "
        "`int64(H)*int64(W)`",
    ]


def test_what_is_made_of_a_kernel_refuses_too() -> None:
    kernel = tcsym.define(SCALED)
    with pytest.raises(SizeError, match="int32"):
        kernel.batched("X")(X[None], 50000, 50000)
    with pytest.raises(SizeError, match="int32"):
        kernel.grad()(X, 50000, 50000)
