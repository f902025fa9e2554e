# SPDX-License-Identifier: Apache-2.0
"""Contractions of few rows, few columns and short sums: every version, at its borders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tests.differential.inputs import LAYOUTS, arguments
from tests.fuzz.compare import difference, outcome, tolerances
from tests.guarded import guarded

# M, N, K: rows, columns and terms around what the conditions of the versions compare with
EXTENTS = (
    *((0, 3, 5), (3, 0, 5), (4, 5, 0), (1, 1, 1), (1, 1, 70), (2, 1, 130), (1, 40, 70)),
    *((40, 1, 70), (40, 2, 33), (40, 3, 300), (40, 4, 31), (5, 33, 100), (3, 17, 40), (7, 49, 65)),
    *((17, 4, 64), (13, 12, 31), (14, 13, 65), (12, 11, 3), (6, 16, 64), (19, 6, 1)),
)
PRODUCTS = {
    "nn": "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
    "nt": "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
    "tn": "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }",
    "tt": "def f(float(K,M) A, float(N,K) B) -> (C) { C(m,n) +=! A(k,m) * B(n,k) }",
    "double_nn": "def f(double(M,K) A, double(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
    "half_tt": "def f(half(K,M) A, half(N,K) B) -> (C) { C(m,n) +=! A(k,m) * B(n,k) }",
    "int_tn": """def f(int8(K,M) A, int8(K,N) B) -> (C) {
  C(m,n) +=! int32(A(k,m)) * int32(B(k,n))
}""",
    "mean_nt": "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) / K }",
    "squares_nn": """def f(float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) +=! A(m,k) * B(k,n) * B(k,n) * A(m,k)
}""",
    "scaled_tn": """def f(float(K,M) A, half(K,N) B, float(M) s, float(N) z) -> (C) {
  C(m,n) +=! -(A(k,m) * float(B(k,n))) / z(n) * s(m)
}""",
    "layer_tn": """def f(float(K,M) A, float(K,N) B, float(N) b) -> (C) {
  C(m,n) +=! A(k,m) * B(k,n)
  C(m,n) = fmax(C(m,n) + b(n), 0)
}""",
    "layer_nn": """def f(float(M,K) A, float(K,N) B, float(N) b) -> (C) {
  C(m,n) +=! A(m,k) * B(k,n)
  C(m,n) = fmax(C(m,n) + b(n), 0)
}""",
    "many_tt": "def f(float(2,K,M) A, float(2,N,K) B) -> (C) { C(b,m,n) +=! A(b,k,m) * B(b,n,k) }",
    "many_nn": "def f(float(M,2,K) A, float(K,2,N) B) -> (C) { C(b,m,n) +=! A(m,b,k) * B(k,b,n) }",
    "last_tt": "def f(float(M,K,2) A, float(K,N,2) B) -> (C) { C(b,m,n) +=! A(m,k,b) * B(k,n,b) }",
    "complex_nn": """def f(float(M,K) A, float(M,K) E, float(K,N) B, float(K,N) F) -> (C, D) {
  C(m,n) +=! A(m,k) * B(k,n) - E(m,k) * F(k,n)
  D(m,n) +=! 0 - (A(m,k) * F(k,n) - (m > k ? E(m,k) * B(k,n) : 0.0))
}""",
    "from_one": """def f(float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) +=! A(m,k) * B(k,n) where k in 1:K
}""",
    "scaled": """def f(float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) +=! A(m,k) * (B(k,n) * 2 + 1)
}""",
    "distances_nt": """def f(float(M,K) A, float(N,K) B) -> (C) {
  C(m,n) +=! fabs(A(m,k) - B(n,k))
}""",
    "nearest_nt": """def f(float(M,K) A, float(N,K) B) -> (C) {
  D(m,n) +=! (A(m,k) - B(n,k)) * (A(m,k) - B(n,k))
  C(m) min=! D(m,n)
}""",
    "longest_nn": "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) max=! A(m,k) + B(k,n) }",
    "shortest_tn": "def f(double(K,M) A, double(K,N) B) -> (C) { C(m,n) min=! A(k,m) + B(k,n) }",
    "largest_nt": "def f(half(M,K) A, half(N,K) B) -> (C) { C(m,n) max=! A(m,k) * B(n,k) }",
    "clipped_nn": """def f(float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) +=! fmax(A(m,k) + B(k,n), 0)
}""",
    "chosen_nn": """def f(float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) +=! A(m,k) > 0 ? A(m,k) * B(k,n) : B(k,n)
}""",
    "equal_nt": """def f(int8(M,K) A, int8(N,K) B) -> (int32(M,N) C) {
  C(m,n) +=! int32(A(m,k) == B(n,k))
}""",
    "reachable_nn": """def f(bool(M,K) A, bool(K,N) B) -> (C) { C(m,n) max=! A(m,k) && B(k,n) }""",
    "chances_tn": """def f(float(K,M) A, float(K,N) B) -> (C) {
  C(m,n) *=! 1 - A(k,m) * B(k,n) * 0.02
}""",
    "steps": """def f(float(3,M,K) A, float(K,N) B) -> (float(3,M,N) C) {
  for t in 0:3 { C(t,m,n) +=! A(t,m,k) * B(k,n) }
}""",
}
# rows a, b; columns c, d; sums e, f (or g)
TENSORS = {
    "abcd-aebf-dfce": """def f(float(A,E,B,F) X, float(D,F,C,E) Y) -> (Z) {
  Z(a,b,c,d) +=! X(a,e,b,f) * Y(d,f,c,e)
}""",
    "abcde-dega-gebc": """def f(float(D,E,F,A) X, float(F,E,B,C) Y) -> (Z) {
  Z(a,b,c,d,e) +=! X(d,e,g,a) * Y(g,e,b,c)
}""",
    "abcdef-dega-gfbc": """def f(float(D,E,G,A) X, float(G,F,B,C) Y) -> (Z) {
  Z(a,b,c,d,e,f) +=! X(d,e,g,a) * Y(g,f,b,c)
}""",
    "abcde-efbad-cf": """def f(float(E,F,B,A,D) X, float(C,F) Y) -> (Z) {
  Z(a,b,c,d,e) +=! X(e,f,b,a,d) * Y(c,f)
}""",
    "abc-bda-dc": "def f(float(B,D,A) X, float(D,C) Y) -> (Z) { Z(a,b,c) +=! X(b,d,a) * Y(d,c) }",
}
SHAPES = (
    *((1, 1, 1, 1, 1, 1, 1), (2, 3, 4, 1, 17, 2, 5), (5, 1, 2, 9, 3, 6, 2), (1, 7, 3, 2, 9, 13, 4)),
    *(
        (13, 2, 1, 2, 8, 1, 33),
        (3, 2, 5, 3, 6, 7, 1),
        (2, 2, 0, 3, 2, 2, 2),
        (7, 3, 2, 1, 40, 5, 3),
    ),
)
CASES = {
    **{n: (text, [dict(zip("MNK", x)) for x in EXTENTS]) for n, text in PRODUCTS.items()},
    **{n: (text, [dict(zip("ABCDEFG", x)) for x in SHAPES]) for n, text in TENSORS.items()},
}


def check(kernel: Any, sizes: dict[str, int], layout: str) -> None:
    inputs = arguments(kernel, sizes, {}, layout)
    names = list(kernel.signature.outputs)
    want = outcome(kernel.reference, names, inputs, sizes)
    assert not isinstance(want, tcsym.TCError), want
    allowed = tolerances(kernel.reference, want, inputs, sizes, 0)
    fenced = {n: guarded(x) for n, x in inputs.items()}
    kind, details = difference(outcome(kernel, names, fenced, sizes), want, allowed)
    assert not kind, f"{sizes} {layout}: {details}"


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", CASES)
def test_all_versions_agree_with_the_reference(name: str) -> None:
    text, all_sizes = CASES[name]
    kernel = tcsym.define(text, strategy="symbolic").f
    for sizes in all_sizes:
        check(kernel, {n: sizes[n] for n in kernel.sizes}, "dense")


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("name", "layout"), list(zip(("nn", "tt", "tn", "abcd-aebf-dfce"), LAYOUTS[1:], strict=True))
)
def test_versions_in_other_layouts(name: str, layout: str) -> None:
    text, all_sizes = CASES[name]
    kernel = tcsym.define(text, strategy="symbolic").f
    for sizes in all_sizes[::3]:
        check(kernel, {n: sizes[n] for n in kernel.sizes}, layout)


def test_few_rows_and_columns_do_not_depend_on_threads() -> None:
    kernel = tcsym.define(PRODUCTS["tt"], strategy="symbolic").f
    rng = np.random.default_rng(0)
    for m, n, k in ((1, 700, 900), (700, 3, 900), (900, 11, 200)):
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((k, m), (n, k)))
        one, two = (np.asarray(kernel(a, b, threads=t)) for t in (1, 2))
        assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("name", ("longest_nn", "shortest_tn", "distances_nt", "clipped_nn"))
def test_nan_and_infinities_in_any_row_and_step(name: str) -> None:
    kernel = tcsym.define(PRODUCTS[name], strategy="symbolic").f
    rng = np.random.default_rng(0)
    for sizes in (
        {"M": 13, "N": 21, "K": 9},
        {"M": 40, "N": 3, "K": 70},
        {"M": 2, "N": 50, "K": 5},
    ):
        inputs = arguments(kernel, sizes, {}, "dense")
        for x in inputs.values():
            flat = x.reshape(-1)
            where = rng.choice(flat.size, 4, replace=False)
            flat[where] = [np.nan, np.inf, -np.inf, np.nan]
        got, want = kernel(**inputs), kernel.reference(**inputs)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
