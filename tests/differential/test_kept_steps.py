# SPDX-License-Identifier: Apache-2.0
"""States of loops in order that are written with a position for each step keep the last ones."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import tcsym

STATES = {
    "of one step": (
        """def f(float(A,T,D) U, float(D,N) W, float(A,T,N) C) -> (float(A,T,D) Y) {
      S(0,a,d,n) = 0.0 where a in 0:A, d in 0:D, n in 0:N
      for t in T {
        S(t+1,a,d,n) = 0.5 * W(d,n) * S(t,a,d,n) + U(a,t,d)
        Y(a,t,d) +=! S(t+1,a,d,n) * C(a,t,n)
      }
    }""",
        1,
    ),
    "along the last dimension": (
        """def f(float(N,T) X) -> (float(N,T) Y, H) {
      S(n,0) = 1.0 where n in 0:N
      for t in T {
        S(n,t+1) = 0.5 * S(n,t) + X(n,t)
        Y(n,t) = 2.0 * S(n,t+1)
      }
      H(n) = S(n,T)
    }""",
        1,
    ),
    "read by the step's results": (
        """def f(float(N,T) X) -> (float(N,T) Y) {
      S(n,0) = 1.0 where n in 0:N
      for t in T {
        S(n,t+1) = 0.5 * S(n,t) + X(n,t)
        Y(n,t) = S(n,t+1) - S(n,t)
      }
    }""",
        2,
    ),
    "of products": (
        """def f(float(T,B,H) X, float(H,H) U, float(B,H) h0) -> (float(T,B,H) Y) {
      S(0,b,i) = h0(b,i)
      for t in T {
        A(b,i) +=! S(t,b,k) * U(i,k)
        S(t+1,b,i) = fmax(0.0, 0.25 * A(b,i) + X(t,b,i))
        Y(t,b,i) = S(t+1,b,i)
      }
    }""",
        2,
    ),
    "of a power": (
        """def f(float(N,N) A, float(T) d, float(N) x) -> (y) {
      S(0,i) = x(i)
      for t in T { S(t+1,i) +=! A(i,k) * S(t,k) * d(t) }
      y(i) = S(T,i)
    }""",
        2,
    ),
    "of a stencil": (
        """def f(float(N) X, float(T) d) -> (Y) {
      S(0,i) = X(i)
      for t in T {
        S(t+1,i) = i > 0 && i < N-1 ? d(t) * (S(t,i-1) + S(t,i+1)) : S(t,i)
      }
      Y(i) = S(T,i)
    }""",
        2,
    ),
    "of two steps": (
        """def f(float(T,N) X) -> (float(T,N) Y, Z) {
      S(0,n) = 0.0 where n in 0:N
      S(1,n) = 1.0 where n in 0:N
      for t in T {
        S(t+2,n) = 0.5 * S(t+1,n) + 0.25 * S(t,n) + X(t,n)
        Y(t,n) = 2.0 * S(t+2,n) + S(t,n)
      }
      Z(n) = S(T,n) - S(T+1,n)
    }""",
        3,
    ),
    "that counts down": (
        """def f(float(T,N) X) -> (float(T,N) Y) {
      S(T,n) = 0.0 where n in 0:N
      for t in T {
        S(T-1-t,n) = X(T-1-t,n) + 0.5 * S(T-t,n)
        Y(T-1-t,n) = S(T-1-t,n)
      }
    }""",
        1,
    ),
    "below another loop": (
        """def f(float(L,T,N) X) -> (float(L,N) Y) {
      for l in L {
        S(0,n) = 0.0 where n in 0:N
        for t in T { S(t+1,n) = 0.5 * S(t,n) + X(l,t,n) }
        Y(l,n) = S(T,n)
      }
    }""",
        1,
    ),
    "set by its first step": (
        """def f(float(T,N) X) -> (float(T) M) {
      for t in T {
        if t == 0 { S(t,i) = X(t,i) } else {
          S(t,i) max=! S(t-1,k) - X(t,k) * X(t,i)
          S(t,i) = 0.5 * S(t,i)
        }
        M(t) max=! S(t,i)
      }
    }""",
        2,
    ),
    "asked for its first step in the end": (
        """def f(float(T,N) X) -> (Y) {
      S(0,n) = 1.0 where n in 0:N
      for t in T { S(t+1,n) = 0.5 * S(t,n) + X(t,n) }
      Y(n) = S(T,n) + S(0,n)
    }""",
        None,
    ),
}
LENGTHS = {"T": (0, 1, 2, 3, 13), "L": (1, 3)}
OTHERS = (0, 1, 2, 3, 17, 33)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", STATES)
def test_results_are_those_of_all_steps(name: str) -> None:
    text, _ = STATES[name]
    kernel = tcsym.define(text).f
    shapes = [s.split(",") for s in re.findall(r"float\(([\w,]+)\) \w", text.split("->")[0])]
    others = sorted({n for s in shapes for n in s} - set(LENGTHS))
    rng = np.random.default_rng(1)
    for t, sides, layers in product(LENGTHS["T"], OTHERS, LENGTHS["L"]):
        sizes = {"T": t, "L": layers, **{n: sides + k for k, n in enumerate(others)}}
        arrays = [rng.integers(-2, 3, [sizes[n] for n in s]).astype("f4") / 4 for s in shapes]
        want = kernel.reference(*arrays)
        for threads in (1, 2):
            got = kernel(*arrays, threads=threads)
            for x, y in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want))):
                np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4, err_msg=f"{sizes}")


@pytest.mark.parametrize("name", STATES)
def test_memory_is_for_the_steps_that_are_read(name: str) -> None:
    text, steps = STATES[name]
    kernel = tcsym.define(text).f
    (shape,) = re.findall(r"^  S float32\[(.*?)\] ", kernel.explain("mapped"), re.MULTILINE)
    assert ("T" in shape) == (steps is None)
    if steps is not None and steps > 1:
        assert shape.startswith(f"{steps}, ")
