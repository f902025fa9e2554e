# SPDX-License-Identifier: Apache-2.0
"""Guarded products, over windows and of matrices: right for weights that are finite and not."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tcsym

GUARD = "x+k >= 1 && x+k <= W"
TEXT = """def f({0}(C,W) I, {0}(M,C,K) F) -> ({0}(M,W) O) {{
  O(m,x) +=! {1} ? I(c,x+k-1) * F(m,c,k) : 0 where c in 0:C, k in 0:K
}}"""
BAD = (np.inf, -np.inf, np.nan)
DTYPES = {"half": "f2", "bfloat16": ml_dtypes.bfloat16, "float": "f4", "double": "f8", "int8": "i1"}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["half", "bfloat16", "float", "double"])
def test_each_weight_in_turn_is_not_finite(kind: str) -> None:
    """Of as many weights as fill vectors of the scan, and more."""
    kernel = tcsym.define(TEXT.format(kind, GUARD))
    dtype = DTYPES[kind]
    rng = np.random.default_rng(0)
    for m, c, k in [(1, 1, 1), (5, 1, 3), (4, 2, 2), (3, 2, 3), (7, 3, 2)]:
        image = rng.integers(-3, 4, (c, 21)).astype(dtype)
        weights = rng.integers(-3, 4, (m, c, k)).astype(dtype)
        np.testing.assert_array_equal(kernel(image, weights), kernel.reference(image, weights))
        for n in range(weights.size):
            bad = weights.copy()
            bad.reshape(-1)[n] = BAD[n % 3]
            found, want = kernel(image, bad), kernel.reference(image, bad)
            np.testing.assert_array_equal(found.astype("f8"), want.astype("f8"))


CONVERTED = """def f({0}(C,W) I, {0}(M,C,K) F) -> (float(M,W) O) {{
  O(m,x) +=! {1} where x in 0:W, c in 0:C, k in 0:K
}}"""
FORMS = {
    "around converted factors": "{0} ? float(I(c,x+k-1)) * float(F(m,c,k)) : 0",
    "around converted elements": "({0} ? float(I(c,x+k-1)) : float(0)) * float(F(m,c,k))",
    "inside a conversion": "float({0} ? I(c,x+k-1) * F(m,c,k) : 0)",
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("form", "kind"),
    [
        *(("around converted factors", k) for k in ("half", "bfloat16", "double", "int8")),
        ("around converted elements", "bfloat16"),
        ("around converted elements", "int8"),
        ("inside a conversion", "half"),
        ("inside a conversion", "double"),
    ],
)
def test_conversions(form: str, kind: str) -> None:
    """Doubles may be beyond the range of what they are converted to."""
    kernel = tcsym.define(CONVERTED.format(kind, FORMS[form].format(GUARD)))

    assert "padded copy" in kernel.explain("plan")
    rng = np.random.default_rng(4)
    image = rng.integers(-3, 4, (20, 45)).astype(DTYPES[kind])
    weights = rng.integers(-3, 4, (9, 20, 3)).astype(DTYPES[kind])
    for bad in (1, *BAD, 1e300):
        if kind != "int8":
            with np.errstate(over="ignore"):
                weights[4, 5, 0] = bad
        np.testing.assert_array_equal(kernel(image, weights), kernel.reference(image, weights))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["half", "bfloat16", "float", "double"])
def test_the_largest_numbers_are_finite(kind: str) -> None:
    kernel = tcsym.define(CONVERTED.format(kind, FORMS["around converted elements"].format(GUARD)))
    dtype = np.dtype(DTYPES[kind])
    limits = ml_dtypes.finfo(dtype)
    image, weights = np.ones((1, 8), dtype), np.zeros((40, 1, 1), dtype)
    for value in (limits.max, limits.min, limits.smallest_normal, -0.0):
        weights[7] = weights[37] = value
        np.testing.assert_array_equal(kernel(image, weights), kernel.reference(image, weights))


def test_weights_of_any_layout_and_in_any_number() -> None:
    kernel = tcsym.define(TEXT.format("float", GUARD))
    rng = np.random.default_rng(1)
    for m, c, w, k in [(0, 2, 5, 3), (2, 0, 5, 3), (3, 2, 0, 3), (3, 2, 5, 0), (9, 17, 40, 3)]:
        image = rng.integers(-3, 4, (c, w)).astype("f4")
        wide = rng.integers(-3, 4, (m, c, 2 * k)).astype("f4")
        for weights in (np.ascontiguousarray(wide[:, :, ::2]), wide[:, :, ::2]):
            want = kernel.reference(image, weights)
            np.testing.assert_array_equal(kernel(image, weights), want)
            if weights.size:
                weights[-1, -1, -1] = np.inf
                want = kernel.reference(image, weights)
                np.testing.assert_array_equal(kernel(image, weights), want)


MATRICES = {
    "triangle": ("k <= i", "A(i,k)"),
    "band": ("k <= i && i - k < 3", "A(i,k) * 0.5"),
    "mask": ("c(i,k)", "A(i,k)"),
    "columns": ("b(k) > 0", "A(i,k) / 4.0"),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", MATRICES)
def test_masked_products_of_matrices(name: str) -> None:
    guard, factor = MATRICES[name]
    kernel = tcsym.define(f"""def f(float(M,K) A, float(K,N) B, bool(M,K) c, int32(K) b) -> (O) {{
      O(i,j) +=! {guard} ? {factor} * B(k,j) : 0.0
    }}""")
    assert "B.finite" in kernel.explain("mapped")
    rng = np.random.default_rng(3)
    for m, k, n in [(1, 1, 1), (4, 5, 2), (20, 9, 33), (33, 17, 16), (19, 0, 3), (0, 3, 3)]:
        a, b = (rng.integers(-3, 4, s).astype("f4") for s in ((m, k), (k, n)))
        masks = rng.integers(0, 2, (m, k)).astype(bool), rng.integers(-1, 2, k).astype("i4")
        for bad in (0.0, *BAD):
            if b.size:
                b[k // 2, n // 2] = bad
            want = kernel.reference(a, b, *masks)
            np.testing.assert_array_equal(kernel(a, b, *masks), want)
            if a.size:  # what the guard keeps out, and what it lets in
                a[m // 2, k // 2] = bad


def test_only_products_with_an_argument_have_a_version() -> None:
    assert "F.finite" in tcsym.define(TEXT.format("float", GUARD)).explain("mapped")
    for text in (
        TEXT.format("float", "x >= 1 && F(m,c,k) > 0"),
        TEXT.format("int32", GUARD),
        "def f(float(N,N) A, float(N,M) B) -> (O) { O(i,j) +=! k <= i ? A(i,k)*exp(B(k,j)) : 0 }",
        "def f(float(N,N) A, float(N) B) -> (O) { O(i) +=! k <= i ? A(i,k)*B(k) : 0 }",
    ):
        assert ".finite" not in tcsym.define(text).explain("mapped"), text


@pytest.mark.parametrize("bind", ["before", "after", "never"])
def test_sizes_may_be_numbers_or_multiples(bind: str) -> None:
    rng = np.random.default_rng(2)
    image = rng.integers(-3, 4, (16, 32)).astype("f4")
    weights = rng.integers(-3, 4, (8, 16, 3)).astype("f4")
    options = tcsym.Options(bind=bind)  # type: ignore[arg-type]
    fixed = {"C": 16, "W": 32, "M": 8, "K": 3}
    multiple = {"W": tcsym.Dim(multiple_of=16), "C": tcsym.Dim(multiple_of=8)}
    for sizes in (fixed, multiple):
        kernel = tcsym.define(TEXT.format("float", GUARD), sizes=sizes, options=options)
        for bad in (1.0, np.inf):
            weights[3, 5, 0] = bad
            np.testing.assert_array_equal(kernel(image, weights), kernel.reference(image, weights))


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("guard", "kind"),
    [
        *(("A(i,k) > 0", kind) for kind in DTYPES),
        ("A(i,k) > 0 && k != i", "float"),
        ("!c(i,k)", "half"),
    ],
)
def test_sums_of_rows_under_a_mask(guard: str, kind: str) -> None:
    """A product with ones where the guard holds."""
    kernel = tcsym.define(f"""def f(float(M,K) A, {kind}(K,N) B, bool(M,K) c) -> (double(M,N) O) {{
      O(i,j) +=! {guard} ? B(k,j) : 0 where i in 0:M
    }}""")
    told = f"{kernel.explain('mapped')}{kernel.explain('plan')}"
    assert "contraction, columns j, rows i" in told or "stage B at j.panel" in told
    rng = np.random.default_rng(5)
    for m, k, n in [(1, 1, 1), (20, 9, 33), (33, 17, 16), (19, 0, 3)]:
        a, b = rng.integers(-3, 4, (m, k)).astype("f4"), rng.integers(-3, 4, (k, n))
        b, c = b.astype(DTYPES[kind]), rng.integers(0, 2, (m, k)).astype(bool)
        for bad in (0, *(BAD if kind != "int8" else ())):
            if b.size:
                b[k // 2, n // 2] = bad
            np.testing.assert_array_equal(kernel(a, b, c), kernel.reference(a, b, c))


@pytest.mark.parametrize("order", ["I * (m * F)", "F * 0.5 * I * m"])
def test_products_of_more_than_two(order: str) -> None:
    parts = {"I": "I(c,x+k-1)", "F": "F(o,c,k)", "m": "m(c)"}
    product = "".join(parts.get(x, x) for x in order)
    kernel = tcsym.define(f"""def f(float(C,W) I, float(M,C,K) F, float(C) m) -> (float(M,W) O) {{
      O(o,x) +=! {GUARD} ? {product} : 0 where x in 0:W, c in 0:C, k in 0:K
    }}""")
    assert "F.finite" in kernel.explain("mapped")
    rng = np.random.default_rng(6)
    shapes = (9, 45), (20, 9, 3), (9,)
    image, weights, scale = (rng.integers(-3, 4, s).astype("f4") for s in shapes)
    for bad in (1, *BAD):
        for x in (weights, scale):
            x.reshape(-1)[4] = bad
            want = kernel.reference(image, weights, scale)
            np.testing.assert_array_equal(kernel(image, weights, scale), want)


@pytest.mark.parametrize(("kind", "copy"), [("half", "float32"), ("bfloat16", "bfloat16")])
def test_a_padded_copy_is_converted_but_for_dot_products(kind: str, copy: str) -> None:
    text = CONVERTED.format(kind, FORMS["around converted elements"].format(GUARD))
    target = "cpu:avx512bf16" if kind == "bfloat16" else "cpu"
    buffers = tcsym.define(text, target=target).explain("mapped").splitlines()
    padded = [x.split()[1] for x in buffers if re.match(r" +I_padded\.\d+ ", x) and "arena" in x]
    assert padded and all(x.startswith(copy) for x in padded)
