# SPDX-License-Identifier: Apache-2.0
"""`pow` with exponents that need no logarithm."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.types import DType
from tests.codegen.scalar.test_functions import errors_in_ulp, inputs

EXPONENTS = (1.0, 2.0, 3.0, -1.0, 0.5, -0.5)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64], ids=str)
@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("base", ["X(i)", "fabs(X(i))"])
def test_within_an_ulp_and_a_half(base: str, exponent: float, dtype: DType) -> None:
    """Special values, too; no function of a library is called."""
    kernel = tcsym.define(f"def f({dtype}(N) X) -> (Y) {{ Y(i) = pow({base}, {exponent}) }}")
    assert "pow" not in kernel.explain("asm").replace("powers", "")
    (x,) = inputs(1, dtype)
    found = kernel(x)
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble)
        want = np.power(np.abs(wide) if "fabs" in base else wide, np.longdouble(exponent))
        worst = errors_in_ulp(found, want.astype(np.float64))
    assert np.nanmax(worst) <= 1.5
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(want[known]))


def test_a_sum_of_squares_is_a_contraction() -> None:
    text = "def f(float(M,K) A, float(K,N) B) -> (C) {{ C(i,j) +=! {} }}"
    power, product = (
        tcsym.define(text.format(term)).f.explain("mapped").splitlines()[1:]
        for term in ("pow(A(i,k) - B(k,j), 2)", "(A(i,k) - B(k,j)) * (A(i,k) - B(k,j))")
    )
    assert power == product
