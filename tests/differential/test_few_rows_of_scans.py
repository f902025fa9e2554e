# SPDX-License-Identifier: Apache-2.0
"""Scans of a few rows that lie side by side: vectors of them through all steps."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

SUM = """def f({0}(T,N) X) -> ({0}(T,N) Y) {{
  Y(0,n) = X(0,n)
  for t in 1:T {{ Y(t,n) = Y(t-1,n) {1} X(t,n) }}
}}"""
KINDS = {"float": "f4", "double": "f8", "half": "f2", "int8": "i1", "int32": "i4"}
STEPS, ROWS = (1, 2, 3, 40), (0, 1, 3, 7, 8, 9, 16, 31, 32, 33)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_down_columns(kind: str) -> None:
    kernel = tcsym.define(SUM.format(kind, "+")).f
    rng = np.random.default_rng(1)
    for t in STEPS:
        for n in ROWS:
            x = rng.integers(-3, 4, (t, n)).astype(KINDS[kind])
            for threads in (1, 2):
                got = kernel(x, threads=threads)
                np.testing.assert_array_equal(got, kernel.reference(x), err_msg=f"{t} {n}")


OTHERS = {
    "two states": """def f(float(T,N) X) -> (float(T+1,N) Y, float(T+1,N) Z) {
      Y(0,n) = 1.0 where n in 0:N
      Z(0,n) = 2.0 where n in 0:N
      for t in 0:T {
        Y(t+1,n) = fmin(Y(t,n) + Z(t,n), 9.0) * 0.5
        Z(t+1,n) = Y(t+1,n) - X(t,n)
      }
    }""",
    "first of pairs": """def f(float(T,N) X) -> (float(T,N) Y) {
      Y(0,n) = X(0,n)
      for t in 1:T {
        if t % 2 == 0 { Y(t,n) = X(t,n) } else { Y(t,n) = Y(t-1,n) - X(t,n) }
      }
    }""",
    "temporary": """def f(float(T,N) X) -> (float(T+1,N) Y) {
      Y(0,n) = 1.0 where n in 0:N
      for t in 0:T {
        g(n) = X(t,n) * 0.25 + Y(t,n) * 0.5
        Y(t+1,n) = g(n) * g(n) + g(n)
      }
    }""",
    "two back": """def f(float(T,N) X) -> (float(T+2,N) Y) {
      Y(0,n) = 1.0 where n in 0:N
      Y(1,n) = 1.0 where n in 0:N
      for t in 0:T { Y(t+2,n) = Y(t,n) - Y(t+1,n) + X(t,n) }
    }""",
    "maps that join": """def f(float(T,N) X) -> (float(T,N) Y, float(T,N) Z) {
      for t in 0:T {
        if t == 0 { C(t,n) = X(t,n) } else { C(t,n) = C(t-1,n) * 0.5 + X(t,n) }
      }
      Y(t,n) = C(t,n) * X(t,n)
      Z(t,n) = Y(t,n) - C(t,n)
    }""",
    "a map of all and of the last step": """def f(float(T,N) X) -> (float(T,N) Y, H) {
      for t in 0:T {
        if t == 0 { C(t,n) = X(t,n) } else { C(t,n) = C(t-1,n) * 0.5 + X(t,n) }
      }
      Y(t,n) = C(t,n) * X(t,n)
      H(n) = C(T-1,n)
    }""",
    "a map that overwrites what the scan reads": """def f(float(T,N) X) -> (float(T,N) Y) {
      Y(t,n) = X(t,n) * 2.0
      for t in 0:T {
        if t == 0 { C(t,n) = Y(t,n) } else { C(t,n) = C(t-1,n) * 0.5 + Y(t-1,n) }
      }
      Y(t,n) = C(t,n) + X(t,n)
    }""",
    "last state": """def f(float(T,N) X, float(N) A) -> (float(T,N) Y, H) {
      Y(0,n) = X(0,n)
      for t in 1:T { Y(t,n) = Y(t-1,n) * A(n) + X(t,n) }
      H(n) = Y(T-1,n)
    }""",
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", OTHERS)
def test_other_states(name: str) -> None:
    kernel = tcsym.define(OTHERS[name]).f
    rng = np.random.default_rng(2)
    for t in STEPS:
        for n in ROWS:
            x = rng.integers(-3, 4, (t, n)).astype("f4")
            inputs = (x, rng.integers(-1, 2, n).astype("f4")) if "A" in OTHERS[name] else (x,)
            for got, want in zip(_all(kernel(*inputs)), _all(kernel.reference(*inputs))):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=f"{t} {n}")


def _all(results: object) -> tuple[object, ...]:
    return results if isinstance(results, tuple) else (results,)
