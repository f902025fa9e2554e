# SPDX-License-Identifier: Apache-2.0
"""Nests of short rows, a whole record of them in each lane: values, element types, layouts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tcsym
from tests.differential.inputs import LAYOUTS
from tests.differential.test_few import check

SWAPPED = "def f(float(A,B,C) X) -> (O) { O(a,c,b) = X(a,b,c) }"
TEXTS = {
    "swapped": SWAPPED,
    "double": SWAPPED.replace("float", "double"),
    "int64": SWAPPED.replace("float", "int64"),
    "bytes": SWAPPED.replace("float", "uint8"),
    "cast": "def f(int32(A,B,C) X) -> (O) { O(a,c,b) = float(X(a,b,c)) * 0.5 }",
    "outer": "def f(float(A,B) X, float(A,C) Y) -> (O) { O(a,b,c) = X(a,b) * Y(a,c) }",
    "shared": """def f(float(A,B,C) X, float(C) g, float(A) s) -> (O) {
  O(a,c,b) = X(a,b,c) * g(c) - s(a)
}""",
    "sums": "def f(float(A,B,C) X) -> (O) { O(a,c) +=! X(a,b,c) }",
    "norm": """def f(float(A,B,C) X) -> (O) {
  m(a,c) max=! X(a,b,c)
  s(a,c) +=! X(a,b,c) - m(a,c)
  O(a,b,c) = X(a,b,c) * 2 - s(a,c)
}""",
    "outputs": """def f(float(A,B,C) X) -> (P, Q) {
  P(a,c,b) = X(a,b,c) + 1
  Q(a,b,c) = P(a,c,b) - X(a,b,c)
}""",
    "pool": """def f(float(A,B,C) X) -> (O) {
  O(a,b,c) max=! X(a,2*b+i,c+j) where b in 0:B/2, c in 0:C, i in 0:2, j in 0:1
}""",
    "guarded": """def f(float(A,B,C) X) -> (O) {
  O(a,b,c) = (b > 0 ? X(a,b-1,c) : 0.0) + (c < C-1 ? X(a,b,c+1) : 1.0)
}""",
    "inside": "def f(float(2,A,B,C) X) -> (O) { O(a,t,c,b) = X(t,a,b,c) }",
    "part": "def f(float(A,B,C) X) -> (float(A,C,B+1) O) { O(a,c,b) = b < B ? X(a,b,c) : 7.0 }",
}
MANY = (1, 7, 8, 9, 16, 37)
FEW = ((1, 1), (1, 8), (9, 1), (5, 5), (3, 2), (7, 3), (4, 2), (0, 3), (2, 33), (12, 9))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", TEXTS)
def test_short_rows(name: str) -> None:
    kernel = tcsym.define(TEXTS[name], strategy="symbolic").f
    for a, (b, c) in itertools.product(MANY, FEW):
        check(kernel, {"A": a, "B": b, "C": c}, "dense")


@pytest.mark.parametrize("layout", LAYOUTS[1:3])
def test_short_rows_in_other_layouts(layout: str) -> None:
    kernel = tcsym.define(TEXTS["shared"], strategy="symbolic").f
    for a, (b, c) in itertools.product(MANY, FEW[:6]):
        check(kernel, {"A": a, "B": b, "C": c}, layout)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("bind", ["before", "after"])
@pytest.mark.parametrize("name", ["swapped", "norm", "pool"])
def test_short_rows_of_known_sizes(name: str, bind: str) -> None:
    strategy = tcsym.strategy.Specialize(bind=bind, max_variants=50)
    kernel = tcsym.define(TEXTS[name], strategy=strategy).f
    for a, (b, c) in itertools.product((8, 19), FEW):
        check(kernel, {"A": a, "B": b, "C": c}, "dense")


def test_short_rows_do_not_depend_on_threads() -> None:
    kernel = tcsym.define(TEXTS["norm"], strategy="symbolic").f
    x = np.random.default_rng(0).standard_normal((9001, 7, 3)).astype(np.float32)
    one, two = (np.asarray(kernel(x, threads=t)) for t in (1, 2))
    assert one.tobytes() == two.tobytes()
