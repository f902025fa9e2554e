# SPDX-License-Identifier: Apache-2.0
"""Matrix products and tensor contractions, with what is fused to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Case, Input, normal


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def by_einsum(spec: str) -> Any:
    return lambda *arrays: np.einsum(spec, *arrays, optimize=True)


_PRODUCT_RANGES = {"M": (1, 512), "N": (1, 1500), "K": (1, 1500)}

TMM = Case(
    "tmm",
    "contractions",
    "def tmm(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
    (normal("M K"), normal("N K")),
    lambda A, B: A @ B.T,
    "2*M*N*K",
    {
        "tmm_128x256x32": {"M": 128, "N": 256, "K": 32},
        "tmm_128x1024x1024": {"M": 128, "N": 1024, "K": 1024},
        "tmm_128x4096x4096": {"M": 128, "N": 4096, "K": 4096},
        "c3_128x1000x1024": {"M": 128, "N": 1000, "K": 1024},
    },
    _PRODUCT_RANGES,
    einsum="mk,nk->mn",
)

TBMM = Case(
    "tbmm",
    "contractions",
    "def tbmm(float(B,N,M) X, float(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }",
    (normal("B N M"), normal("B K M")),
    lambda X, Y: X @ Y.transpose(0, 2, 1),
    "2*B*N*M*K",
    {"tbmm_500x26x72x26": {"B": 500, "N": 26, "M": 72, "K": 26}},
    {"B": (1, 600), "N": (1, 100), "M": (1, 100), "K": (1, 100)},
    einsum="bnm,bkm->bnk",
)


def tensor_contraction(spec: str, n: int, largest: int) -> Case:
    """`spec`: output-left-right, index letters of each, all of extent `n` in the suite."""
    out, left, right = spec.split("-")
    dims = [" ".join(part.upper()) for part in (left, right)]
    header = [",".join(part.upper()) for part in (left, right)]
    reads = [",".join(part) for part in (out, left, right)]
    letters = sorted(set(left + right))
    return Case(
        f"tccg_{spec}",
        "contractions",
        f"def tc(float({header[0]}) X, float({header[1]}) Y) -> (Z) "
        f"{{ Z({reads[0]}) +=! X({reads[1]}) * Y({reads[2]}) }}",
        (normal(dims[0]), normal(dims[1])),
        by_einsum(f"{left},{right}->{out}"),
        "2*" + "*".join(x.upper() for x in letters),
        {f"tccg_{spec}_{n}": {x.upper(): n for x in letters}},
        {x.upper(): (1, largest) for x in letters},
        einsum=f"{left},{right}->{out}",
    )


def _kron(W0: Any, W1: Any, W2: Any, X: Any) -> Any:
    t = np.einsum("mabc,zc->mabz", X, W2, optimize=True)
    t = np.einsum("mabz,yb->mayz", t, W1, optimize=True)
    return np.einsum("mayz,xa->mxyz", t, W0, optimize=True)


KRON = Case(
    "kron3",
    "contractions",
    """def kron3(float(D0,N0) W0, float(D1,N1) W1, float(D2,N2) W2, float(M,N0,N1,N2) X) -> (Y) {
  XW2(m,n0,n1,d2) +=! X(m,n0,n1,r) * W2(d2,r)
  XW1(m,n0,d1,d2) +=! XW2(m,n0,r,d2) * W1(d1,r)
  Y(m,d0,d1,d2)   +=! XW1(m,r,d1,d2) * W0(d0,r)
}""",
    (normal("D0 N0"), normal("D1 N1"), normal("D2 N2"), normal("M N0 N1 N2")),
    _kron,
    "2*M*(N0*N1*N2*D2 + N0*N1*D1*D2 + N0*D0*D1*D2)",
    {"kron3_256x16": {"M": 256, **{f"{x}{k}": 16 for x in "DN" for k in range(3)}}},
    {"M": (1, 300), **{f"{x}{k}": (2, 24) for x in "DN" for k in range(3)}},
    einsum="xa,yb,zc,mabc->mxyz",
)

MLP1 = Case(
    "mlp1",
    "contractions",
    """def mlp1(float(B,M) I, float(N,M) W, float(N) Bi) -> (O) {
  O(b,n) +=! I(b,m) * W(n,m)
  O(b,n) = O(b,n) + Bi(n)
  O(b,n) = fmax(O(b,n), 0)
}""",
    (normal("B M"), normal("N M", 0.02), normal("N")),
    lambda X, W, b: relu(X @ W.T + b),
    "2*B*M*N",
    {"mlp1_128x2000x128": {"B": 128, "M": 2000, "N": 128}},
    {"B": (1, 512), "M": (1, 2500), "N": (1, 1000)},
)

MLP3 = Case(
    "mlp3",
    "contractions",
    """def mlp3(float(B,N) I, float(O,N) W2, float(O) B2, float(P,O) W3, float(P) B3,
         float(Q,P) W4, float(Q) B4) -> (O4) {
  O2(b,o) +=! I(b,n) * W2(o,n)   O2(b,o) = fmax(O2(b,o) + B2(o), 0)
  O3(b,p) +=! O2(b,o) * W3(p,o)  O3(b,p) = fmax(O3(b,p) + B3(p), 0)
  O4(b,q) +=! O3(b,p) * W4(q,p)  O4(b,q) = fmax(O4(b,q) + B4(q), 0)
}""",
    (
        normal("B N"),
        *(normal("O N", 0.1), normal("O")),
        *(normal("P O", 0.1), normal("P")),
        *(normal("Q P", 0.1), normal("Q")),
    ),
    lambda X, W2, B2, W3, B3, W4, B4: relu(relu(relu(X @ W2.T + B2) @ W3.T + B3) @ W4.T + B4),
    "2*B*(N*O + O*P + P*Q)",
    {"mlp3_128x128x64x32x2": {"B": 128, "N": 128, "O": 64, "P": 32, "Q": 2}},
    {"B": (1, 512), "N": (1, 512), "O": (1, 256), "P": (1, 128), "Q": (1, 64)},
)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _attention(Q: Any, K: Any, V: Any) -> Any:
    scale = np.float32(Q.shape[-1] ** -0.5)
    return _softmax(Q @ K.transpose(0, 1, 3, 2) * scale) @ V


def _causal_attention(Q: Any, K: Any, V: Any) -> Any:
    scores = Q @ K.transpose(0, 1, 3, 2) * np.float32(Q.shape[-1] ** -0.5)
    keep = np.tril(np.ones(scores.shape[-2:], bool))
    return _softmax(np.where(keep, scores, np.float32(-np.inf))) @ V


_ATTENTION_RANGES = {"B": (1, 8), "H": (1, 12), "L": (1, 400), "S": (1, 400), "D": (8, 128)}

ATTENTION = Case(
    "attention",
    "contractions",
    """def attention(float(B,H,L,D) Q, float(B,H,S,D) K, float(B,H,S,D) V) -> (O) {
  A(b,h,l,t) +=! Q(b,h,l,d) * K(b,h,t,d)
  mx(b,h,l) max=! A(b,h,l,t)
  A(b,h,l,t) = exp((A(b,h,l,t) - mx(b,h,l)) * rsqrt(float(D)))
  s(b,h,l) +=! A(b,h,l,t)
  O(b,h,l,d) +=! A(b,h,l,t) * V(b,h,t,d)
  O(b,h,l,d) = O(b,h,l,d) / s(b,h,l)
}""",
    (normal("B H L D"), normal("B H S D"), normal("B H S D")),
    _attention,
    "B*H*(4*L*S*D + 5*L*S)",
    {"attention_b8h8l128d64": {"B": 8, "H": 8, "L": 128, "S": 128, "D": 64}},
    _ATTENTION_RANGES,
)

# ---- kernels that nobody tunes for


def transposed_product(name: str, left: str, right: str) -> Case:
    """C(m,n) of A and B stored as `left` and `right` say."""
    dims = [" ".join(part.upper()) for part in (left, right)]
    a, b = (",".join(part) for part in (left, right))
    return Case(
        name,
        "contractions",
        f"def {name}(float({a.upper()}) A, float({b.upper()}) B) -> (C) "
        f"{{ C(m,n) +=! A({a}) * B({b}) }}",
        (normal(dims[0]), normal(dims[1])),
        by_einsum(f"{left},{right}->mn"),
        "2*M*N*K",
        {f"{name}_384x500x640": {"M": 384, "N": 500, "K": 640}},
        _PRODUCT_RANGES,
        part="other",
        einsum=f"{left},{right}->mn",
    )


MATVEC = Case(
    "matvec",
    "contractions",
    "def matvec(float(M,K) A, float(K) x) -> (y) { y(m) +=! A(m,k) * x(k) }",
    (normal("M K"), normal("K")),
    lambda A, x: A @ x,
    "2*M*K",
    {"matvec_3000x1111": {"M": 3000, "K": 1111}},
    {"M": (1, 4000), "K": (1, 2000)},
    part="other",
    einsum="mk,k->m",
)

CAUSAL_ATTENTION = Case(
    "causal_attention",
    "contractions",
    """def causal_attention(float(B,H,L,D) Q, float(B,H,L,D) K, float(B,H,L,D) V) -> (O) {
  A(b,h,l,t) +=! Q(b,h,l,d) * K(b,h,t,d)
  mx(b,h,l) max=! t <= l ? A(b,h,l,t) : -INFINITY
  P(b,h,l,t) = t <= l ? exp((A(b,h,l,t) - mx(b,h,l)) * rsqrt(float(D))) : 0.0
  s(b,h,l) +=! P(b,h,l,t)
  O(b,h,l,d) +=! P(b,h,l,t) * V(b,h,t,d)
  O(b,h,l,d) = O(b,h,l,d) / s(b,h,l)
}""",
    (normal("B H L D"), normal("B H L D"), normal("B H L D")),
    _causal_attention,
    "B*H*(2*L*L*D + 3*L*L)",
    {"causal_attention_b4h6l200d64": {"B": 4, "H": 6, "L": 200, "D": 64}},
    {k: v for k, v in _ATTENTION_RANGES.items() if k != "S"},
    part="other",
)

INT8_PRODUCT = Case(
    "int8_matmul",
    "contractions",
    """def int8_matmul(float(M,K) X, int8(N,K) W, float(N) S) -> (Y) {
  Y(m,n) +=! X(m,k) * float(W(n,k))
  Y(m,n) = Y(m,n) * S(n)
}""",
    (normal("M K"), Input("N K", dtype="int8"), normal("N", 0.01)),
    lambda X, W, S: X @ W.astype(np.float32).T * S,
    "2*M*N*K",
    {"int8_matmul_100x700x900": {"M": 100, "N": 700, "K": 900}},
    _PRODUCT_RANGES,
    part="other",
)

HALF_PRODUCT = Case(
    "half_matmul",
    "contractions",
    "def half_matmul(half(M,K) A, half(N,K) B) -> (float(M,N) C) "
    "{ C(m,n) +=! float(A(m,k)) * float(B(n,k)) }",
    (normal("M K", dtype="float16"), normal("N K", dtype="float16")),
    lambda A, B: A.astype(np.float32) @ B.astype(np.float32).T,
    "2*M*N*K",
    {"half_matmul_200x600x500": {"M": 200, "N": 600, "K": 500}},
    _PRODUCT_RANGES,
    part="other",
)

BFLOAT_LINEAR = Case(
    "bfloat_linear",
    "contractions",
    """def bfloat_linear(bfloat16(M,K) X, bfloat16(N,K) W, bfloat16(N) b) -> (Y) {
  Y(m,n) +=! X(m,k) * W(n,k)
  Y(m,n) = Y(m,n) + b(n)
}""",
    (
        normal("M K", dtype="bfloat16"),
        normal("N K", dtype="bfloat16"),
        normal("N", dtype="bfloat16"),
    ),
    lambda X, W, b: X.astype(np.float32) @ W.astype(np.float32).T + b.astype(np.float32),
    "2*M*N*K",
    {
        "bfloat_linear_200x600x500": {"M": 200, "N": 600, "K": 500},
        "bfloat_linear_512": {"M": 512, "N": 512, "K": 512},
    },
    _PRODUCT_RANGES,
    part="other",
    tolerance=1e-2,
)

BYTE_PRODUCT = Case(
    "byte_matmul",
    "contractions",
    "def byte_matmul(int8(M,K) A, int8(N,K) B) -> (C) { C(m,n) +=! int32(A(m,k)) * int32(B(n,k)) }",
    (Input("M K", dtype="int8"), Input("N K", dtype="int8")),
    lambda A, B: A.astype(np.float64) @ B.astype(np.float64).T,
    "2*M*N*K",
    {
        "byte_matmul_200x600x500": {"M": 200, "N": 600, "K": 500},
        "byte_matmul_512": {"M": 512, "N": 512, "K": 512},
    },
    _PRODUCT_RANGES,
    part="other",
)

CASES = (
    TMM,
    TBMM,
    tensor_contraction("abcdef-dega-gfbc", 16, 20),
    tensor_contraction("abcd-aebf-dfce", 24, 32),
    tensor_contraction("abc-bda-dc", 96, 160),
    KRON,
    MLP1,
    MLP3,
    ATTENTION,
    transposed_product("mm", "mk", "kn"),
    transposed_product("mm_tn", "km", "kn"),
    transposed_product("mm_tt", "km", "nk"),
    MATVEC,
    CAUSAL_ATTENTION,
    INT8_PRODUCT,
    HALF_PRODUCT,
    BFLOAT_LINEAR,
    BYTE_PRODUCT,
)
