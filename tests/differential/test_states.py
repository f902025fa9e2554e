# SPDX-License-Identifier: Apache-2.0
"""Temporaries that a loop in order reads before it writes them, or at places that may be one."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.options import Options

STATES = {
    # each step reads what the one before has left, and only then stores its own
    "read_before_written": """def f(float(T,N) X) -> (float(T,N) Y) {
  for t in T {
    if t == 0 {
      s(i) = X(t,i)
    }
    Y(t,i) = s(i) * 0.5 + X(t,i)
    s(i) = X(t,i) - 1
  }
}""",
    # the two places are one where N is 1
    "first_and_last": """def f(float(T) X, float(N) A) -> (s) {
  s(i) = A(i)
  for t in T {
    s(0) = 0.5 * s(N - 1) + X(t)
  }
}""",
    # the second loop may join the first only where it does not read what stands between
    "read_behind_one_place": """def f(float(T) X, float(N) A) -> (Y, Z, s) {
  s(i) = A(i)
  Z(t) = 2 * X(t)
  s(0) = 7
  Y(t) = X(t) + s(N - 1)
}""",
    # a reader of neighbours follows all of what makes them
    "neighbours": """def f(float(T) X, float(N) A) -> (Y, Z) {
  s(i) = A(i) * 2
  Y(i) = i + 1 < N ? s(i + 1) : s(i) where i in 0:N
  Z(t) = X(t)
}""",
}


@pytest.mark.parametrize("fusion", ["max", "min"])
@pytest.mark.parametrize("name", STATES)
def test_states_agree_with_the_reference(name: str, fusion: str) -> None:
    options = Options(fusion=fusion, min_work_per_thread=0)  # type: ignore[arg-type]
    kernel = tcsym.define(STATES[name], options=options)
    rng = np.random.default_rng(1)
    for t, n in ((1, 1), (5, 1), (4, 3), (40, 1), (3, 40)):
        x = rng.integers(-4, 5, (t, n) if name == "read_before_written" else t).astype("f4")
        given = [x] if name == "read_before_written" else [x, np.arange(1, n + 1, dtype="f4")]
        want, got = kernel.reference(*given), kernel(*given, threads=3)
        pairs = zip(got, want) if isinstance(got, tuple) else [(got, want)]
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-6)
