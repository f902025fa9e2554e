# SPDX-License-Identifier: Apache-2.0
"""Scalars for 0-d parameters (LANGUAGE E11)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsym as tc
from tcsym.types import DType
from tests.call_errors import F32, failing


def scalar(dtype: str) -> Any:
    return tc.define(f"def f({dtype} a) -> (b) {{ b = a }}")


FITS = [
    (True, "int8", 1),
    (True, "float16", 1),
    (np.True_, "bool", 1),
    (1, "bool", 1),
    (255, "uint8", 255),
    (np.int64(-128), "int8", -128),
    (2**24, "float32", 2**24),
    (3, "bfloat16", 3),
    (0.1, "float32", F32(0.1)),
    (0.1, "bfloat16", ml_dtypes.bfloat16(0.1)),
    (np.float32(0.1), "float64", float(F32(0.1))),
    (np.float64(0.1), "float16", np.float16(0.1)),
    (ml_dtypes.bfloat16(1.5), "float32", 1.5),
    (np.longdouble(0.5), "float64", 0.5),
    (float("inf"), "float16", np.inf),
]
DOES_NOT_FIT = [
    (2, "bool"),
    (256, "uint8"),
    (-1, "uint64"),
    (np.int64(128), "int8"),
    (2**24 + 1, "float32"),
    (257, "bfloat16"),
    (10**400, "float64"),
    (1e39, "float32"),
    (70000.0, "float16"),
    (1.0, "int32"),
    (np.float32(1), "int64"),
    (0.0, "bool"),
    (1j, "float32"),
    (np.complex64(1), "float32"),
    (np.timedelta64(1), "int64"),
    (np.str_("1"), "int32"),
]


@pytest.mark.parametrize(("x", "dtype", "value"), FITS)
def test_scalar_fits(x: Any, dtype: str, value: Any) -> None:
    result = scalar(dtype).reference(x)
    assert result.shape == () and result.dtype == DType(dtype).numpy and result[()] == value


def test_nan_is_a_float() -> None:
    assert np.isnan(scalar("float16").reference(float("nan"))[()])


@pytest.mark.parametrize(("x", "dtype"), DOES_NOT_FIT)
def test_scalar_does_not_fit(x: Any, dtype: str) -> None:
    failing(f"def f({dtype} a) -> (b) {{ b = a }}", f"{dtype} |a", x, kind="type")


@pytest.mark.parametrize("x", ["1", None, [1.0]])
def test_what_is_no_scalar_is_shown(x: Any) -> None:
    text = "def f(float32 a) -> (b) { b = a }"
    error = failing(text, "float32 |a", x, kind="type")
    assert f"`a` is {x!r}, expected a number that fits float32" in str(error)
    assert len(str(failing(text, "float32 |a", 10**400, kind="type"))) < 300


def test_zero_dimensional_arrays_convert_without_narrowing() -> None:
    assert scalar("double").reference(np.array(0.5, F32))[()] == 0.5
    failing("def f(float a) -> (b) { b = a }", "float |a", np.array(0.5), kind="type")
    failing("def f(float a) -> (b) { b = a }", "float |a", np.ones(1, F32), kind="rank")
