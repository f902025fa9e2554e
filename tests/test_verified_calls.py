# SPDX-License-Identifier: Apache-2.0
"""Verifying refuses no sound kernel, also where numbers for sizes leave odd values."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

CHOSEN = """def f(float A, int16(B,K) D, size N) -> (float(N,N) T) {
  T(i,j) = ((B > 0 && K > 0 ? D(0,K-1) : 0) > j) ? A : j where i in 0:N, j in 0:N
}"""


@pytest.mark.parametrize("verify", ["0", "1"])
@pytest.mark.parametrize("bind", ["before", "after"])
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
def test_a_choice_that_a_number_decides(
    target: str, bind: str, verify: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCSYM_VERIFY", verify)
    options = tcsym.Options(bind=bind)  # type: ignore[arg-type]
    kernel = tcsym.define(CHOSEN, target=target, sizes={"B": 0}, options=options).f
    given = np.float32(3), np.zeros((0, 4), "i2")
    np.testing.assert_array_equal(kernel(*given, N=20), kernel.reference(*given, N=20))
