# SPDX-License-Identifier: Apache-2.0
"""Code for macOS runs on an emulated AArch64, where what macOS has is made up (`./dev arm`)."""

from __future__ import annotations

import platform

import pytest

from tests.elsewhere import told

pytestmark = pytest.mark.skipif(platform.machine() != "aarch64", reason="no AArch64 (./dev arm)")

# The first has many registers in use, the others ask for functions of the C library.
RUN = """
import tcsym
mm = tcsym.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
a = np.arange(37 * 21).reshape(37, 21) % 7
x, y = a.astype(np.float32), a.T.astype(np.float32)
for threads in (1, 3):
    assert (mm(x, y, threads=threads) == a @ a.T).all()  # OpenBLAS has NaN for x @ x.T here
f = tcsym.define("def f(double(N) X) -> (Y) { Y(i) = sin(X(i)) + cos(X(i)) + tgamma(X(i)) }")
x = np.linspace(0.5, 4, 19)
from math import cos, gamma, sin
assert np.allclose(f(x), [sin(v) + cos(v) + gamma(v) for v in x])
from tcsym.target.cpu import host_triple
assert cleared and host_triple().startswith("aarch64-apple-")
print("ran")
"""


def test_kernels_run() -> None:
    done = told(RUN, "arm64", "darwin")
    assert done.returncode == 0 and done.stdout == "ran\n", done.stderr
