# SPDX-License-Identifier: Apache-2.0
"""Several nests over shared rows: in blocks of rows, or each nest over all of few rows."""

from __future__ import annotations

import pytest

import tcsym
from tests.differential.test_few import check

# B: rows around a few of what a row, a register tile and the least number of blocks have
FEW = (0, 1, 3, 4, 7, 18, 19, 25)
PROGRAMS = {
    "cell": (
        """def f(float(B,I) X, float(B,H) c, float(4,H,I) W) -> (C, S) {
  G(n,q,h) +=! X(n,i) * W(q,h,i)
  C(n,h) = c(n,h) * G(n,1,h) + tanh(G(n,0,h))
  S(n,h) = tanh(C(n,h)) / (1.0 + exp(-G(n,3,h)))
}""",
        (*FEW, 114, 115),
    ),
    "attention": (
        """def f(float(2,B,H) Q, float(2,I,H) K, float(2,I,H) V) -> (O) {
  A(g,l,s) +=! Q(g,l,d) * K(g,s,d)
  m(g,l) max=! A(g,l,s)
  A(g,l,s) = exp(A(g,l,s) - m(g,l))
  z(g,l) +=! A(g,l,s)
  O(g,l,e) +=! A(g,l,s) * V(g,s,e)
  O(g,l,e) = O(g,l,e) / z(g,l)
}""",
        (*FEW, 54, 55),
    ),
    "recurrent": (
        """def f(float(B,H) X, float(4,H,H) U, float(I,B) Y) -> (float(I+1,B,H) S) {
  S(0,n,h) = X(n,h)
  for t in I {
    G(n,q,h) +=! S(t,n,k) * U(q,h,k)
    G(n,q,h) = G(n,q,h) + Y(t,n)
    S(t+1,n,h) = tanh(G(n,0,h)) * G(n,1,h) + G(n,2,h)
  }
}""",
        FEW,
    ),
    "maps": (
        """def f(float(B,I) X, float(H,I) W, float(H) b) -> (Y, Z) {
  Y(n,h) +=! X(n,i) * W(h,i)
  Y(n,h) = exp(-Y(n,h)) + b(h)
  Z(n,h) = Y(n,h) * b(h)
}""",
        FEW,
    ),
    "gated_rows": (
        """def f(float(B,H) X, float(I,H) W, float(B,I,H) Y) -> (Z) {
  g(n,c) +=! X(n,h) * W(c,h)
  Z(n,c,h) = Y(n,c,h) / (1.0 + exp(-g(n,c)))
}""",
        FEW,
    ),
    "bilinear": (  # rows b, which stand first
        """def f(float(B,I) X, float(H,I,3) W, float(B,3) Y) -> (Z) {
  t(b,o,j) +=! X(b,i) * W(o,i,j)
  Z(b,o) +=! t(b,o,j) * Y(b,j)
}""",
        FEW,
    ),
    "weighted_sums": (
        """def f(float(B,I) X, float(B,I,H) Y) -> (Z) {
  m(b) max=! X(b,i)
  e(b,i) = exp(X(b,i) - m(b))
  s(b) +=! e(b,i)
  Z(b,h) +=! e(b,i) * Y(b,i,h)
  Z(b,h) = Z(b,h) / s(b)
}""",
        FEW,
    ),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_versions_agree_with_the_reference(name: str) -> None:
    text, rows = PROGRAMS[name]
    kernel = tcsym.define(text, strategy="symbolic").f
    for k, b in enumerate(rows):
        for h, i in ((17, 5), (3, 70)) if k % 2 else ((16, 33),):
            check(kernel, {"B": b, "H": h, "I": min(i, 3) if name == "recurrent" else i}, "dense")


@pytest.mark.parametrize("name", ("cell", "attention"))
def test_versions_of_substituted_sizes(name: str) -> None:
    text, _ = PROGRAMS[name]
    for b in (2, 20):
        sizes = {"B": b, "H": 9, "I": 12}
        kernel = tcsym.define(text, sizes=sizes, options=tcsym.Options(bind="before")).f
        check(kernel, sizes, "dense")
