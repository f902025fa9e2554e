# SPDX-License-Identifier: Apache-2.0
"""Results of kernels on DataArrays: which names and coordinates their dimensions have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tests.hosts import host

xarray = host("xarray")

from tcsym.xarray import apply  # noqa: E402

DAYS, PLACES = np.arange(6.0), list("abcd")


def measured(dtype: str = "float32") -> Any:
    values = np.arange(24, dtype=dtype).reshape(6, 4)
    coordinates = {"day": DAYS, "place": PLACES}
    return xarray.DataArray(values, dims=("day", "place"), coords=coordinates)


def test_names_and_coordinates_come_from_inputs() -> None:
    X = measured()
    W = xarray.DataArray(np.ones((4, 3), "float32"), dims=("place", "unit"))
    C = apply(tc.library.matmul, X, W)
    assert C.dims == ("day", "unit") and C.name == "C" and list(C.coords) == ["day"]
    assert np.array_equal(C, X.data @ W.data)
    moments = tc.define("def f(float(N,D) X) -> (s, Y) { s(n) +=! X(n,d)  Y(n,d) = X(n,d) - s(n) }")
    found = apply(moments, X=X)
    assert found.s.dims == ("day",) and found.Y.coords.equals(X.coords)


def test_what_is_not_point_by_point_has_no_coordinates() -> None:
    steps = tc.define(
        "def f(float(N,D) X) -> (Y, Z) { Y(n,d) = X(n+1,d) - X(n,d)  Z(n,d) = X(N-1-n,d) }"
    )
    for result in apply(steps, measured()):
        assert result.dims == ("day", "place") and list(result.coords) == ["place"]


def test_dimensions_without_a_name() -> None:
    outer = tc.define("def outer(float(N) X) -> (float(P,N,N) Y) { Y(p,i,j) = p * X(i) * X(j) }")
    X = measured()[:, 0]
    with pytest.raises(tc.OptionError, match=r"would be \(\?, day, day\)") as error:
        apply(outer, X, sizes={"P": 2})
    assert error.value.hint == 'name them: `dims={"Y": (...)}`'
    Y = apply(outer, X, sizes={"P": 2}, dims={"Y": ("power", "day", "other")})
    assert Y.dims == ("power", "day", "other") and np.array_equal(Y.other, DAYS)


def test_coordinates_must_agree() -> None:
    X = measured()
    with pytest.raises(ValueError, match="day"):
        apply(tc.define("def f(float(N) X, float(N) Y) -> (Z) { Z(i) = X(i) + Y(i) }"),
              X[:, 0], X[:, 0].assign_coords(day=DAYS + 1))  # fmt: skip


def test_chunks() -> None:
    pytest.importorskip("dask.array", reason="dask is not installed")
    X = measured()
    Y = apply(tc.library.softmax, X.chunk(day=4, place=3))
    assert Y.chunks == ((4, 2), (3, 1)) and Y.coords.equals(X.coords)
    assert np.allclose(Y, apply(tc.library.softmax, X), atol=1e-6)
