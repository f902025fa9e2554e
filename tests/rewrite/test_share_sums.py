# SPDX-License-Identifier: Apache-2.0
"""What sums have in common: which do, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.frontend.program import Program, statements
from tcsym.rewrite.share_sums import share_sums

TEXT = """def f(float(N,D,W) Y, float(N,D,W) X, float(N) m, float(D) g) -> (R, S, T) {{
  R(n) +=! {0}
  S(d) +=! {1}
  T(n,d,w) = R(n) * X(n,d,w) + S(d)
}}"""
SHARED = [
    ("-(Y(n,d,w) * g(d) * (X(n,d,w) - m(n)))", "Y(n,d,w) * m(n) * (X(n,d,w) - m(n))"),
    ("Y(n,d,w) / g(d)", "Y(n,d,w)"),
    ("Y(n,d,w) * X(n,d,w)", "m(n) * Y(n,d,w) * X(n,d,w) * m(n)"),
]
KEPT = [
    ("Y(n,d,w) * g(d)", "X(n,d,w) * m(n)"),  # other parts
    ("Y(n,d,w)", "Y(n,d,w+1) where w in 0:W-1, n in 0:N"),  # other points
    ("Y(n,d,w) + g(d)", "Y(n,d,w) + m(n)"),  # no products
    ("g(d) where w in 0:W, d in 0:D, n in 0:N", "g(d) * m(n) where w in 0:W, d in 0:D"),  # short
]
MATRICES = """def f(float(M,N) dC, float(M,K) A, float(K,N) B) -> (dA, dB) {
  dA(m,k) +=! dC(m,n) * B(k,n)
  dB(k,n) +=! dC(m,n) * A(m,k)
}"""


def names(program: Program) -> list[str]:
    return [s.target for s in statements(program.body)]


@pytest.mark.parametrize(("first", "second"), SHARED)
def test_common_parts_are_summed_once(first: str, second: str) -> None:
    kernel = tcsym.define(TEXT.format(first, second), target="cpu:avx2").f
    assert names(share_sums(kernel.program)) == ["R.sum0", "R", "S", "T"]
    rng = np.random.default_rng(1)
    for n, d, w in ((3, 5, 40), (1, 1, 1), (4, 2, 0), (0, 3, 2), (17, 1, 3)):
        shapes = (n, d, w), (n, d, w), (n,), (d,)
        given = [rng.uniform(0.5, 2, s).astype(np.float32) for s in shapes]
        if not w:
            given[2][:] = np.nan  # no term has it
        for got, want in zip(kernel(*given), kernel.reference(*given)):
            np.testing.assert_allclose(got, want, 1e-4)


@pytest.mark.parametrize(("first", "second"), KEPT)
def test_others_stay(first: str, second: str) -> None:
    program = tcsym.define(TEXT.format(first, second)).f.program
    assert share_sums(program) == program


def test_products_of_matrices_stay() -> None:
    program = tcsym.define(MATRICES).f.program
    assert share_sums(program) == program


def test_nothing_is_shared_across_a_write() -> None:
    text = TEXT.format(*SHARED[1]).replace("float(N,D,W) Y", "inout float(N,D,W) Y")
    text = text.replace("  S(d)", "  Y(n,d,w) = 2.0 * Y(n,d,w)\n  S(d)")
    program = tcsym.define(text).f.program
    assert share_sums(program) == program
