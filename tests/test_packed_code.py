# SPDX-License-Identifier: Apache-2.0
"""Products of short numbers as users run them: integers are exact, instructions as expected."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tcsym
from tcsym.target.host import runs_here
from tcsym.target.names import resolve_target

TARGETS = [t for t in ("cpu", "cpu:avx2", "cpu:avx512bf16") if runs_here(resolve_target(t))]
PRODUCT = (
    "def f({a}(M,K) A, {b}({shape}) B) -> (C) {{ C(m,n) +=! {wide}(A(m,k)) * {wide}(B({at})) }}"
)
NUMPY = {"half": "float16", "float": "float32", "bfloat16": ml_dtypes.bfloat16}
ROWS, COLUMNS = ("K,N", "k,n"), ("N,K", "n,k")
SIZES = [(1, 1, 1), (8, 32, 2), (9, 33, 3), (64, 64, 4), (33, 70, 65), (130, 40, 259), (5, 200, 0)]

# What `./dev arm` runs, too.
AARCH64 = [
    ("bfloat16", "bfloat16", "float", "bfdot"),
    ("int8", "int8", "int32", "sdot"),
    ("uint8", "int8", "int32", "usdot"),
    ("uint8", "uint8", "int32", "usdot"),
]


def text(a: str, b: str, wide: str, layout: tuple[str, str] = ROWS) -> str:
    return PRODUCT.format(a=a, b=b, wide=wide, shape=layout[0], at=layout[1])


def integers(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Of the whole range, its ends more often."""
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    values = rng.integers(info.min, info.max + 1, shape)
    return np.where(rng.random(shape) < 0.3, info.min, values).astype(dtype)


@pytest.mark.thinned(5)
@pytest.mark.parametrize(
    ("target", "layout"),
    [("cpu", ROWS), ("cpu", COLUMNS), *zip(TARGETS[1:], (ROWS, COLUMNS))],
    ids=lambda x: x if isinstance(x, str) else x[0],
)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("int8", "int8"),
        ("uint8", "int8"),
        ("int8", "uint8"),
        ("uint8", "uint8"),
        ("int16", "int16"),
        ("int16", "uint8"),
        ("uint16", "int8"),
    ],
)
def test_integers_are_exact(a: str, b: str, layout: tuple[str, str], target: str) -> None:
    f = tcsym.define(text(a, b, "int32", layout), target=target).f
    for m, n, k in SIZES:
        shape = (k, n) if layout is ROWS else (n, k)
        x, y = integers(a, (m, k), 0), integers(b, shape, 1)
        wide = (x.astype(np.int64) @ (y if layout is ROWS else y.T).astype(np.int64)) % (1 << 32)
        np.testing.assert_array_equal(f(x, y), wide.astype(np.uint32).view(np.int32))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layout", [ROWS, COLUMNS], ids=["rows", "columns"])
def test_bfloats_are_summed_in_float(layout: tuple[str, str], target: str) -> None:
    f = tcsym.define(text("bfloat16", "bfloat16", "float", layout), target=target).f
    rng = np.random.default_rng(0)
    for m, n, k in SIZES:
        shape = (k, n) if layout is ROWS else (n, k)
        x, y = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), shape))
        a, b = x.astype(np.float64), (y if layout is ROWS else y.T).astype(np.float64)
        np.testing.assert_array_less(
            np.abs(f(x, y) - a @ b), 1e-6 * (np.abs(a) @ np.abs(b)) + 1e-30
        )


KINDS = ("bool", "uint8", "int8", "uint16", "int16", "int32", "int64", "half", "bfloat16", "float")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("wide", "short"),
    [("float", "bfloat16"), ("int32", "int8"), ("int32", "uint8"), ("int32", "int16")],
)
def test_factors_are_cast_to_short_types_from_all_others(
    wide: str, short: str, target: str
) -> None:
    given = ", ".join(f"{t}(N,K) W{k}" for k, t in enumerate(KINDS))
    sums = "\n".join(
        f"Y{k}(m,n) +=! {wide}(X(m,k)) * {wide}({short}(W{k}(n,k)))" for k in range(len(KINDS))
    )
    results = ", ".join(f"Y{k}" for k in range(len(KINDS)))
    kernel = tcsym.define(
        f"def f({short}(M,K) X, {given}) -> ({results}) {{ {sums} }}", target=target
    ).f
    rng = np.random.default_rng(0)
    for m, n, k in ((5, 7, 33), (40, 64, 8)):
        shapes = [(m, k), *[(n, k)] * len(KINDS)]
        arrays = [
            rng.integers(0, 2 if t == "bool" else 5, s).astype(NUMPY.get(t, t))
            for t, s in zip((short, *KINDS), shapes)
        ]
        for y, r in zip(kernel(*arrays), kernel.reference(*arrays), strict=True):
            np.testing.assert_array_equal(y, r)


FORMS = {
    "zero points": """def f(uint8(M,K) A, int8(K,N) B, uint8 za, int8(N) zb) -> (C) {
  C(m,n) +=! (int32(A(m,k)) - int32(za)) * (int32(B(k,n)) - int32(zb(n)))
}""",
    "zero points of 32 bits": """def f(int8(M,K) A, int8(N,K) B, int32(M) p, int32 q) -> (C) {
  C(m,n) +=! (int32(A(m,k)) - p(m)) * (q + int32(B(n,k)))
}""",
    "zero points of columns": """def f(uint8(M,K) A, uint8(K,N) B, int32(N) q) -> (C, D) {
  C(m,n) +=! int32(A(m,k)) * (int32(B(k,n)) - q(n))
  D(m,n) = float(C(m,n)) * 0.5
}""",
    "zero points of both": """def f(uint8(M,K) A, int8(K,N) B, int32(M) p, int32(N) q) -> (C) {
  C(m,n) +=! (int32(A(m,k)) - p(m)) * (int32(B(k,n)) - q(n))
}""",
    "zero points in a window": """def f(uint8(H,W,C) I, int8(P,Q,C,F) K, int32 z) -> (O) {
  O(h,w,f) +=! (int32(I(h+p,w+q,c)) - z) * int32(K(p,q,c,f))
}""",
    "two in a window": """def f(uint8(H,W,C) I, int8(P,Q,C,F) K, int32 z, int32(F) y) -> (O) {
  O(h,w,f) +=! (int32(I(h+p,w+q,c)) - z) * (int32(K(p,q,c,f)) - y(f))
}""",
    "zero points of groups": """def f(uint8(M,K) A, int8(K,N) B, int32(K,N) q) -> (C) {
  C(m,n) +=! (int32(A(m,k)) - 128) * (int32(B(k,n)) - q(k,n))
}""",
    "transposed": """def f(int8(K,M) A, int8(K,N) B) -> (C) {
  C(m,n) +=! int32(A(k,m)) * int32(B(k,n))
}""",
    "batched": """def f(int8(Z,M,K) A, int8(Z,N,K) B) -> (C) {
  C(z,m,n) +=! int32(A(z,m,k)) * int32(B(z,n,k))
}""",
    "channels last": """def f(int8(H,W,C) I, int8(P,Q,C,F) K) -> (O) {
  O(h,w,f) +=! int32(I(h+p,w+q,c)) * int32(K(p,q,c,f))
}""",
    "requantised": """def f(int8(M,K) A, int8(N,K) B, float(N) s) -> (C, D) {
  C(m,n) +=! int32(A(m,k)) * int32(B(n,k))
  D(m,n) = int8(fmin(fmax(float(C(m,n)) * s(n), -128), 127))
}""",
    "two sums": """def f(uint8(M,P,K) A, uint8(N,K,P) B) -> (C) {
  C(m,n) +=! int32(A(m,p,k)) * int32(B(n,k,p))
}""",
    "a sum inside": """def f(int8(M,K,P) A, int8(K,P,N) B, int8(N,K) D) -> (C, E) {
  C(m,n) +=! int32(A(m,k,p)) * int32(B(k,p,n))
  E(m,n) +=! int32(A(m,k,p)) * int32(D(n,k))
}""",
    "three factors": """def f(int8(M,K) A, uint8(K) s, int8(K,N) B) -> (C) {
  C(m,n) +=! int32(A(m,k)) * int32(B(k,n)) * int32(s(k))
}""",
    "two terms": """def f(int8(M,K) A, int8(K,N) B, uint8(M,L) D, int8(L,N) E) -> (C) {
  C(m,n) +=! int32(A(m,k)) * int32(B(k,n))
  C(m,n) += int32(D(m,l)) * int32(E(l,n))
}""",
    "halved steps": """def f(int8(M,L) A, int8(K,N) B) -> (C) {
  C(m,n) +=! int32(A(m,k/2)) * int32(B(k,n)) where k in 0:K
}""",
    "layer": """def f(bfloat16(B,M) I, bfloat16(N,M) W, bfloat16(N) b) -> (O) {
  O(b_,n) +=! I(b_,m) * W(n,m)
  O(b_,n) = fmax(O(b_,n) + b(n), 0)
}""",
}


@pytest.mark.thinned(5)
@pytest.mark.parametrize(
    ("name", "target"),
    [
        (name, target)
        for k, name in enumerate(FORMS)
        for target in ("cpu", *TARGETS[1:][k % 2 : k % 2 + 1])
    ],
)
def test_forms_agree_with_the_reference(name: str, target: str) -> None:
    kernel = tcsym.define(FORMS[name], target=target).f
    rng = np.random.default_rng(0)
    for scale in (1, 3):
        sizes = {"M": 11, "N": 33, "K": 21, "L": 11, "Z": 3, "H": 7, "W": 9, "C": 7, "F": 34}
        sizes = {n: e * scale for n, e in sizes.items()} | {"P": 3, "Q": 2, "B": 9 * scale}
        arrays = []
        for dtype, shape in re.findall(
            r"(\w+)(?:\(([A-Z,]+)\))? \w+(?=[,)])", FORMS[name].split("->")[0]
        ):
            extents = tuple(sizes[s] for s in shape.split(",")) if shape else ()
            if "int" in dtype:
                arrays.append(integers(dtype, extents, len(arrays))[()])
            else:
                kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32
                arrays.append((rng.standard_normal(extents) / 8).astype(kind))
        got, expected = kernel(*arrays), kernel.reference(*arrays)
        for x, y in zip(
            got if isinstance(got, tuple) else [got],
            expected if isinstance(expected, tuple) else [expected],
        ):
            if name == "layer":
                np.testing.assert_allclose(x.astype(float), y.astype(float), rtol=2e-2, atol=2e-2)
            else:
                np.testing.assert_array_equal(x, y)


def blocks(listing: str) -> list[str]:
    return re.split(r"^\.LBB", listing, flags=re.MULTILINE)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("layout", [ROWS, COLUMNS], ids=["rows", "columns"])
@pytest.mark.parametrize(
    ("a", "b", "wide", "target", "instruction", "register", "tile"),
    [
        ("bfloat16", "bfloat16", "float", "cpu:avx512bf16", "vdpbf16ps", "zmm", 16),
        ("int8", "int8", "int32", "cpu:avx512bf16", "vpdpbusd", "zmm", 16),
        ("uint8", "int8", "int32", "cpu:avx512bf16", "vpdpbusd", "zmm", 16),
        ("int16", "int16", "int32", "cpu:avx512bf16", "vp(?:maddwd|dpwssd)", "zmm", 12),
        ("int8", "int8", "int32", "cpu:avx512", "vpmaddwd", "zmm", 12),
        ("int8", "int8", "int32", "cpu:avx2", "vpmaddwd", "ymm", 6),
    ],
)
def test_the_inner_loop_is_dot_products_of_whole_registers(
    a: str,
    b: str,
    wide: str,
    target: str,
    instruction: str,
    register: str,
    tile: int,
    layout: tuple[str, str],
) -> None:
    listing = tcsym.define(text(a, b, wide, layout), target=target).f.explain("asm")
    product = rf"{instruction}\s.*%{register}"
    hot = [x for x in blocks(listing) if len(re.findall(product, x)) == 4 * tile]
    assert hot  # four steps of a tile
    for block in hot:
        loop = block[: [m.start() for m in re.finditer(instruction, block)][-1]]
        assert not re.search(rf"\(%rsp\).*%{register}|%{register}.*\(%rsp\)", loop)
        assert not re.search(r"vpmul|vcvt|vpmovsx|vpmovzx|vgather|call", loop)


@pytest.mark.parametrize("layout", [ROWS, COLUMNS], ids=["rows", "columns"])
@pytest.mark.parametrize(("a", "b", "wide", "instruction"), AARCH64)
def test_the_inner_loop_on_aarch64(
    a: str, b: str, wide: str, instruction: str, layout: tuple[str, str]
) -> None:
    listing = tcsym.define(text(a, b, wide, layout), target="cpu:neonbf16").f.explain("asm")
    hot = [x for x in blocks(listing) if len(re.findall(rf"\b{instruction}\b", x)) == 64]
    assert hot  # four steps of a tile of eight rows
    for block in hot:
        loop = block[: [m.start() for m in re.finditer(instruction, block)][-1]]
        assert not re.search(r"\bq\d+.*\[sp|\b(f?mul|f?mla|smull|scvtf)\tv|\bbl\b", loop)
