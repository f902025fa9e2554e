# SPDX-License-Identifier: Apache-2.0
"""Nests that are mapped by directives inside of loops that run in order."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

SIZES = [(1, 2, 3), (2, 11, 2), (3, 5, 7), (16, 33, 20), (70, 9, 40)]
PROGRAMS = {
    # T0 is written in each step, by a map: what a product reads of it is not filled before
    "product": "for t in 3 { T(k,j) = 0.25 - T(k,j)  Y(i,j) += X(i,k) * T(k,j) }",
    "sum": "for t in 3 { T(k,j) = 0.25 * T(k,j)  s(k) +=! T(k,j)  T(k,j) = T(k,j) - s(k) }",
    "once": "T(k,j) = 0.25 * T(k,j)  s(k) +=! T(k,j)  T(k,j) = T(k,j) - s(k)",
    "added": "Y(i,j) += X(i,k) * T(k,j)",
    "halved": "Y(i,j) = 0.5 * Y(i,j)  Y(i,j) += X(i,k) * T(k,j)",
    "longer": "for t in 2 { s(j) = T(0,j)  s(j) += Y(i,j)  s(j) += T(k,j)  Y(i,j) = 0.1 * s(j) }",
    "columns": "for t in 3 { s(j) max=! T(k,j)  T(k,j) = T(k,j) - s(j) }",
    "rnn": """for t in 4 { P(i,j) +=! Y(i,l) * W(l,j)  Q(i,j) +=! X(i,k) * T(k,j)
      Y(i,j) = 0.3 * tanh(P(i,j) + Q(i,j)) }""",
    "guarded": """for t in 3 { if t == 0 { Y(i,j) = 0.5 * Y(i,j) } else {
      P(i,j) +=! Y(i,l) * W(l,j)  Y(i,j) = tanh(P(i,j)) } }""",
    "few": """for t in 3 { if M > 2 { P(i,j) +=! Y(i,l) * W(l,j)  Y(i,j) = tanh(P(i,j)) } }""",
}
HEAD = "def f({0}(M,K) X, inout {0}(K,N) T, inout {0}(M,N) Y, {0}(N,N) W) -> () {{ {1} }}"


@pytest.mark.parametrize("dtype", ["float16", "float"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_steps(name: str, dtype: str) -> None:
    source = HEAD.format(dtype, PROGRAMS[name])
    f = tcsym.define(source, target="cpu:avx2").f
    assert "runs inside of" not in str(f.explain("mapped"))
    numbers = np.random.default_rng(0)
    for m, k, n in SIZES:
        kind = np.float16 if dtype == "float16" else np.float32
        shapes = (m, k), (k, n), (m, n), (n, n)
        given = [numbers.uniform(-0.5, 0.5, s).astype(kind) for s in shapes]
        mine, wanted = ([x.copy() for x in given] for _ in range(2))
        f(*mine)
        f.reference(*wanted)
        near = 1e-2 if dtype == "float16" else 1e-5
        for x, y in zip(mine, wanted, strict=True):
            np.testing.assert_allclose(x, y, near, near * k)


def test_copies_of_what_stays_are_made_before() -> None:
    """Those of W, which no step changes; P of a step has its own."""
    source = HEAD.format("float", PROGRAMS["rnn"])
    f = tcsym.define(source, target="cpu:avx2").f
    lines = [x.strip() for x in f.explain("mapped").splitlines()]
    loop = lines.index("serial t in 0:4")
    filled = [k for k, x in enumerate(lines) if x.startswith("W.copy") and "= W[" in x]
    read = [k for k, x in enumerate(lines) if "* W.copy" in x]
    assert filled and max(filled) < loop < min(read)


@pytest.mark.parametrize("size", [1, 7, 40, 700])
def test_sums_are_added_to_what_was_there(size: int) -> None:
    """Those of threads that scatter, each into elements of its own."""
    source = """def f(float(N,D) X, int16(N) q, float(M) z) -> (float(M,D) T) {
      T(q(x),j) +=! X(x,j) }"""
    f = tcsym.define(source, target="cpu:avx2").f
    parts = [x for x in str(f.explain("plan")).splitlines() if x.startswith("T.")]
    assert len(parts) == 2 and "not mapped by directives" not in str(f.explain("mapped"))
    numbers = np.random.default_rng(0)
    x, q = numbers.uniform(-1, 1, (size, 9)).astype("f4"), numbers.integers(0, 5, size)
    wanted = np.zeros((5, 9))
    np.add.at(wanted, q, x)
    got = f(x, q.astype(np.int16), np.zeros(5, np.float32), threads=2)
    np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)
