# SPDX-License-Identifier: Apache-2.0
"""Many small products, one in each lane: values, element types, layouts, threads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tcsym
from tests.differential.inputs import LAYOUTS
from tests.differential.test_few import check

BATCHED = "def f(float(B,N,M) X, float(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }"
TEXTS = {
    "nt": BATCHED,
    "nn": "def f(float(B,N,M) X, float(B,M,K) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,m,k) }",
    "tn": "def f(float(B,M,N) X, float(B,M,K) Y) -> (Z) { Z(b,n,k) +=! X(b,m,n) * Y(b,m,k) }",
    "double": BATCHED.replace("float", "double"),
    "int32": BATCHED.replace("float", "int32"),
    "int64": BATCHED.replace("float", "int64"),
    "half": BATCHED.replace("float", "half"),
    "bytes": """def f(int8(B,N,M) X, int8(B,K,M) Y) -> (Z) {
  Z(b,n,k) +=! int32(X(b,n,m)) * Y(b,k,m)
}""",
    "largest": """def f(float(B,N,M) X, float(B,K,M) Y) -> (Z) {
  Z(b,n,k) max=! X(b,n,m) + Y(b,k,m)
}""",
    "layer": """def f(float(B,N,M) X, float(B,K,M) Y, float(B,K) c) -> (Z) {
  Z(b,n,k) +=! X(b,n,m) * Y(b,k,m)
  Z(b,n,k) = fmax(Z(b,n,k) + c(b,k), 0)
}""",
    "two": """def f(float(2,B,N,M) X, float(B,2,K,M) Y) -> (Z) {
  Z(n,t,b,k) +=! X(t,b,n,m) * Y(b,t,k,m)
}""",
    "slices": """def f(float(2,B,N,M) X, float(B,2,K,M) Y) -> (Z) {
  Z(b,t,n,k) +=! X(t,b,n,m) * Y(b,t,k,m)
}""",
    "permuted": "def f(float(B,M,N) X, float(B,K,M) Y) -> (Z) { Z(b,k,n) +=! X(b,m,n) * Y(b,k,m) }",
}
GROUPED = """def f(float(N,G,C,H,W) I, float(G,F,C,KH,KW) V, float(G,F) B) -> (O) {
  O(n,g,o,h,w) +=! I(n,g,c,h+i,w+j) * V(g,o,c,i,j)
  O(n,g,o,h,w) = O(n,g,o,h,w) + B(g,o)
}"""
MANY = (1, 7, 8, 9, 16, 37)
FEW = ((1, 1, 1), (1, 8, 3), (9, 1, 3), (5, 5, 1), (3, 2, 2), (7, 0, 2), (0, 3, 1), (2, 33, 1))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", TEXTS)
def test_many_small_products(name: str) -> None:
    kernel = tcsym.define(TEXTS[name], strategy="symbolic").f
    many = MANY if name == "nt" else MANY[1::2]
    for b, (n, m, k) in itertools.product(many, FEW):
        check(kernel, {"B": b, "N": n, "M": m, "K": k}, "dense")


PERMUTED = {
    "one": "def f(float(D,G,A) X, float(G,F,B) Y) -> (Z) { Z(a,b,d,f) +=! X(d,g,a) * Y(g,f,b) }",
    "two": """def f(float(D,E,G,A) X, float(G,F,B,C) Y) -> (Z) {
  Z(a,b,c,d,e,f) +=! X(d,e,g,a) * Y(g,f,b,c)
}""",
    "scaled": """def f(float(D,G,A) X, float(G,F,B) Y, float(B) s) -> (Z) {
  Z(a,b,d,f) +=! X(d,g,a) * Y(g,f,b)
  Z(a,b,d,f) = fmax(Z(a,b,d,f) * s(b), 0)
}""",
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", PERMUTED)
def test_products_stored_in_another_order(name: str) -> None:
    kernel = tcsym.define(PERMUTED[name], strategy="symbolic").f
    for b, d, (a, f, g) in itertools.product((7, 16, 19), (1, 9), FEW):
        sizes = {"A": a, "B": b, "C": 1, "D": d, "E": 2, "F": f, "G": g}
        check(kernel, {v: sizes[v] for v in kernel.sizes}, "dense")


@pytest.mark.parametrize("layout", LAYOUTS[3:])
def test_small_products_in_other_layouts(layout: str) -> None:
    kernel = tcsym.define(BATCHED, strategy="symbolic").f
    for b, (n, m, k) in itertools.product(MANY[::2], FEW[:5:2]):
        check(kernel, {"B": b, "N": n, "M": m, "K": k}, layout)


@pytest.mark.parametrize("bind", ["before", "after"])
def test_small_products_of_known_sizes(bind: str) -> None:
    strategy = tcsym.strategy.Specialize(bind=bind, max_variants=50)
    kernel = tcsym.define(BATCHED, strategy=strategy).f
    for b, (n, m, k) in itertools.product((8, 19), FEW):
        check(kernel, {"B": b, "N": n, "M": m, "K": k}, "dense")


def test_groups_of_one_channel() -> None:
    kernel = tcsym.define(GROUPED, strategy="symbolic").f
    for g, c, f, w, size in ((8, 1, 1, 10, 3), (29, 1, 1, 5, 3), (17, 2, 1, 4, 1), (9, 1, 2, 6, 2)):
        sizes = {"N": 2, "G": g, "C": c, "F": f, "H": 7, "W": w, "KH": size, "KW": size}
        check(kernel, sizes, "dense")


def test_small_products_do_not_depend_on_threads() -> None:
    kernel = tcsym.define(BATCHED, strategy="symbolic").f
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((9001, 5, 6), (9001, 3, 6)))
    one, two = (np.asarray(kernel(x, y, threads=t)) for t in (1, 2))
    assert one.tobytes() == two.tobytes()


def test_what_is_not_finite_stays_in_its_product() -> None:
    kernel = tcsym.define(BATCHED, strategy="symbolic").f
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((21, 3, 4), (21, 2, 4)))
    x[5, 1, 2], y[20, 0, 3], x[13] = np.nan, np.inf, 0
    got, want = kernel(x, y), kernel.reference(x, y)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
