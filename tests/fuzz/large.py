# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz.large`: the forms of part F at large sizes, every element checked.

Small sizes, which random programs have, take few of the paths that long ranges, many rows and
several threads take. Each form gives tens of thousands of elements or more in a call.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

import tcsym
from benchmarks.case import Input, indices, normal, offsets

EPS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
ROUNDINGS = 64  # of a sum, in units of the last place of the sum of its terms' magnitudes
SETTINGS: Mapping[str, dict[str, Any]] = {
    "symbolic": {"strategy": "symbolic"},
    "avx2": {"strategy": "symbolic", "target": "cpu:avx2"},
    "novector": {"strategy": "symbolic", "target": "cpu:novector"},
    "substituted": {},
}
THREADS = (1, 3)


class Form(Struct, frozen=True):
    """`within`: of the largest result, where terms' magnitudes say nothing, as of a softmax."""

    text: str
    inputs: tuple[Input, ...]
    sizes: Mapping[str, int]
    within: float = 0.0


def _uneven(a: np.ndarray) -> np.ndarray:
    """Offsets of ranges that differ by factors of a thousand."""
    return np.sort(a.astype(np.float64) ** 3 / max(1.0, float(a[-1]) ** 2)).astype(a.dtype)


def _attention(first: str) -> str:
    return f"""def f(float(H,L,D) Q, float(H,L,D) K, float(H,L,D) V) -> (O) {{
  A(h,l,s) +=! Q(h,l,d) * K(h,s,d)
  m(h,l) max=! A(h,l,s) where s in {first}:l+1
  z(h,l) +=! exp(A(h,l,s) - m(h,l)) where s in {first}:l+1
  O(h,l,e) +=! exp(A(h,l,s) - m(h,l)) * V(h,s,e) where s in {first}:l+1
  O(h,l,e) = O(h,l,e) / z(h,l)
}}"""


_HEADS = (normal("H L D", 0.4), normal("H L D", 0.4), normal("H L D"))
FORMS: Mapping[str, Form] = {
    "triangle": Form(
        "def f(float(N,N) A, float(N,M) B) -> (C) { C(i,j) +=! A(i,k)*B(k,j) where k in 0:i+1 }",
        (normal("N N"), normal("N M")),
        {"N": 401, "M": 251},
    ),
    "band": Form(
        """def f(float(N,N) A, float(N,M) B) -> (C) {
  C(i,j) +=! A(i,k)*B(k,j) where i in 0:N, k in max(i-40,0):min(i+9,N)
}""",
        (normal("N N"), normal("N M")),
        {"N": 700, "M": 150},
    ),
    "causal attention": Form(_attention("0"), _HEADS, {"H": 3, "L": 509, "D": 67}, 1e-4),
    "windowed attention": Form(
        _attention("max(l-63,0)"), _HEADS, {"H": 3, "L": 509, "D": 67}, 1e-4
    ),
    "bags": Form(
        """def f(float(V,D) E, int32(M) id, int32(P) off) -> (Y) {
  Y(b,d) +=! E(id(j), d) where j in off(b):off(b+1)
}""",
        (normal("V D"), indices("M", "V"), offsets("P", "M")),
        {"V": 3000, "D": 100, "M": 20000, "P": 1500},
    ),
    "sparse by vector": Form(
        """def f(float(M) value, int32(M) column, int32(P) off, float(K) X) -> (Y) {
  Y(r) +=! value(j) * X(column(j)) where j in off(r):off(r+1)
}""",
        (normal("M"), indices("M", "K"), offsets("P", "M"), normal("K")),
        {"M": 300000, "P": 60000, "K": 5000},
    ),
    "greatest of segments": Form(
        """def f(float(M,D) X, int32(P) off) -> (Y) {
  Y(s,d) max=! X(j,d) where j in off(s):off(s+1)
}""",
        (normal("M D"), offsets("P", "M")),
        {"D": 37, "M": 30000, "P": 2500},
    ),
    "histogram": Form(
        "def f(int32(N) bin) -> (int32(K) H) { H(bin(i)) +=! 1 }",
        (indices("N", "K"),),
        {"N": 400000, "K": 50000},
    ),
    "rows added": Form(
        """def f(float(V,D) Base, float(M,D) X, int32(M) id) -> (Y) {
  Y(v,d) = Base(v,d)
  Y(id(j),d) += X(j,d)
}""",
        (normal("V D"), normal("M D"), indices("M", "V")),
        {"V": 1500, "D": 75, "M": 9000},
    ),
    "least at positions": Form(
        "def f(double(M,D) X, int32(M) id) -> (double(V,D) Y) { Y(id(j),d) min=! X(j,d) }",
        (normal("M D", dtype="float64"), indices("M", "V")),
        {"V": 900, "D": 121, "M": 7000},
    ),
    "transposed convolution": Form(
        """def f(float(B,N) X, float(W) F) -> (float(B,3*N+W) O) {
  O(b,3*i+k) +=! X(b,i) * F(k)
}""",
        (normal("B N"), normal("W")),
        {"B": 40, "N": 900, "W": 7},
    ),
    "experts": Form(
        """def f(float(N,K) X, float(E,M,K) W, int32(N,2) chosen, float(N,2) gate) -> (Y) {
  Y(n,m) +=! gate(n,j) * X(n,k) * W(chosen(n,j),m,k)
}""",
        (normal("N K"), normal("E M K"), indices("N 2", "E"), normal("N 2")),
        {"N": 300, "K": 40, "E": 6, "M": 160},
    ),
    "halves": Form(
        """def f(half(N,M) X) -> (half(N,M) Y) {
  s(i) +=! X(i,j) * X(i,j) * 1e3
  Y(i,j) = half(X(i,j) * rsqrt(s(i) * 1e-3 / float(M) + 1e-8))
}""",
        (normal("N M", dtype="float16"),),
        {"N": 300, "M": 333},
        2e-3,
    ),
}


def checked(form: Form, settings: Mapping[str, Any]) -> int:
    """Elements compared. Errors: AssertionError at the first that differs."""
    kernel = tcsym.define(form.text, **settings).f
    rng = np.random.default_rng(0)
    arrays = tuple(i.draw(rng, form.sizes) for i in form.inputs)
    arrays = tuple(_uneven(a) if i.kind == "offsets" else a for i, a in zip(form.inputs, arrays))
    free = {n: v for n, v in form.sizes.items() if n in kernel.sizes}
    want = kernel.reference(*arrays, sizes=free)
    allowed = _allowed(form, kernel.reference, arrays, free, want)
    for threads in THREADS:
        got = kernel(*arrays, sizes=free, threads=threads)
        with np.errstate(invalid="ignore"):
            near = np.abs(got.astype(np.float64) - want.astype(np.float64)) <= allowed
        wrong = ~near & (got != want)
        if np.any(wrong):
            place = tuple(int(p[0]) for p in np.nonzero(wrong))
            raise AssertionError(
                f"{threads} threads: {int(wrong.sum())} of {wrong.size} elements differ, "
                f"first at {place}: got {got[place]}, want {want[place]}"
            )
    return want.size * len(THREADS)


def _allowed(
    form: Form,
    reference: Callable[..., Any],
    arrays: tuple[np.ndarray, ...],
    free: Mapping[str, int],
    want: np.ndarray,
) -> Any:
    if form.within:
        return form.within * float(np.abs(want).max())
    if want.dtype.kind != "f":
        return 0
    magnitudes = reference(*(np.abs(a) for a in arrays), sizes=free)
    return ROUNDINGS * EPS[want.dtype.name] * np.abs(magnitudes.astype(np.float64))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.large", description=__doc__)
    parser.add_argument("--only", default="", help="forms whose name has this")
    only, total, failed = parser.parse_args().only, 0, 0
    for name, form in FORMS.items():
        for way, settings in SETTINGS.items() if only in name else ():
            try:
                total += checked(form, settings)
            except AssertionError as e:
                failed += 1
                print(f"{name}, {way}: {e}", flush=True)
    print(f"{total} elements compared; {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
