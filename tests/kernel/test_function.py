# SPDX-License-Identifier: Apache-2.0
"""Kernels pass for functions: in `functools.wraps`, in Dask, in xarray."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tcsym as tc

TEXT = """
# rows that sum to one
def unit(float(N,K) X) -> (Y) { s(n) +=! X(n,k)  Y(n,k) = X(n,k) / s(n) }
"""
TWO = tc.define("""
def f(float(N) X) -> (Y) { Y(i) = X(i) }
def g(float(N) X) -> (Y) { Y(i) = X(i) }
""")
X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
EXPECTED = X / X.sum(1, keepdims=True)
MODULE = tc.define(TEXT)
CALLED = {
    "kernel": MODULE.unit,
    "module": MODULE,
    "executable": MODULE.compile(N=3, K=4),
    "of two defs": tc.define(TEXT + "def g(float(N) X) -> (Y) { Y(i) = X(i) }").unit,
}
called = pytest.mark.parametrize("unit", CALLED.values(), ids=CALLED)


@called
def test_name_and_docstring_are_the_defs(unit: Any) -> None:
    assert unit.__name__ == unit.__qualname__ == "unit"
    head, _, text = unit.__doc__.partition("\n\n")
    assert head == "unit(float32(N, K) X) -> (float32(N, K) Y)"
    assert text.startswith("# rows that sum to one\ndef unit(")

    @functools.wraps(unit)
    def checked(x: Any) -> Any:
        return unit(x)

    assert checked.__name__ == "unit" and checked.__doc__ == unit.__doc__
    assert np.allclose(checked(X), EXPECTED)


def test_classes_keep_their_docstrings() -> None:
    assert tc.Kernel.__doc__ is not None and tc.Kernel.__doc__.startswith("One def, ready")
    assert tc.Module.__doc__ is not None and TWO.__doc__ == tc.Module.__doc__
    assert not hasattr(TWO, "__name__")


@called
def test_dask(unit: Any) -> None:
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    x = da.from_array(X[:2], chunks=(2, 4))
    for settings in ({}, {"output_dtypes": np.float32}):
        if settings or unit is not CALLED["executable"]:  # which refuses the sizes of a trial
            y = da.apply_gufunc(unit, "(n,k)->(n,k)", da.from_array(X, chunks=(3, 4)), **settings)
            assert np.allclose(y, EXPECTED)
    if unit is not CALLED["executable"]:
        assert np.allclose(x.map_blocks(unit), EXPECTED[:2])


@called
def test_xarray(unit: Any, xarray: Any) -> None:
    x = xarray.DataArray(X, dims=("n", "k"))
    assert np.allclose(xarray.apply_ufunc(unit, x), EXPECTED)
    core = {"input_core_dims": [["n", "k"]], "output_core_dims": [["n", "k"]]}
    lazy = {"dask": "parallelized", "output_dtypes": [np.float32]}
    y = xarray.apply_ufunc(unit, x.chunk(n=3), **core, **lazy)
    assert y.dims == ("n", "k") and np.allclose(y, EXPECTED)


def test_stats_of_a_module_are_those_of_its_defs() -> None:
    text = "def f(float(N) X) -> (Y) { Y(i) = 3 * X(i) }  def g(float(N) X) -> (Y) { Y(i) = -X(i) }"
    module = tc.define(text, target="cpu:novector", strategy="symbolic")
    assert "stats" in dir(module)
    module.f(X[0])
    module.g(X[0])
    module.g(X[1])
    stats = module.stats
    both = module.f.stats, module.g.stats
    assert stats.compilations + stats.cache_hits == 2
    assert list(stats.dispatch.values()) == [3] and len(stats.variants) == 2
    assert "3 calls of symbolic, " in str(stats)
    module.f(X[0])  # they go on counting
    assert sum(stats.dispatch.values()) == 4 == sum(sum(s.dispatch.values()) for s in both)
