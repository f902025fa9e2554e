# SPDX-License-Identifier: Apache-2.0
"""Sums under a guard on a residue, compiled: strided transposed convolutions in all writings."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import tcsym

HEAD = "def f({0}(C,W) I, {0}(C,K) F) -> ({0}({1}) O) {{ O(x) {2} where c in 0:C, k in 0:K }}"
TERM = "I(c,(x-k)/2) * F(c,k)"
INSIDE = "x - k >= 0 && x - k < 2*W"
WRITINGS = {
    "remainder": f"+=! (x-k) % 2 == 0 && {INSIDE} ? {TERM} : 0",
    "quotient": f"+=! {INSIDE} && (x-k)/2*2 == x-k ? {TERM} : 0",
    "other arm": f"+=! (x-k) % 2 != 0 ? 0 : {INSIDE} ? {TERM} : 0",
    "odd": f"+=! (x-k) % 2 == 1 || x < k || x-k >= 2*W ? 0 : {TERM}",
    "below one": f"+=! (x-k) % 2 < 1 && {INSIDE} ? {TERM} : 0",
    "mirrored": f"+=! (k-x) % 2 == 0 && {INSIDE} ? {TERM} : 0",
    "negated": f"+=! !((x+k) % 2 > 0) && {INSIDE} ? {TERM} : 0",
    "element": f"+=! ((x-k) % 2 == 0 && {INSIDE} ? I(c,(x-k)/2) : 0) * F(c,k)",
    "maximum": "max=! (x-k) % 2 == 0 && x >= k && x-k < 2*W ? I(c,(x-k)/2)*F(c,k) : {low}",
}
SIZES = [(1, 1, 1), (2, 5, 2), (3, 9, 3), (1, 40, 5), (4, 17, 4), (2, 3, 7), (2, 0, 3), (3, 8, 0)]
LOW = {"float": "-INFINITY", "int32": "-2147483648", "half": "-INFINITY"}


@lru_cache(maxsize=1)
def compiled(text: str) -> Any:
    return tcsym.define(text)


def agree(text: str, *arrays: np.ndarray) -> None:
    kernel = compiled(text)
    got, want = kernel(*arrays), kernel.reference(*arrays)
    np.testing.assert_array_equal(got, want, err_msg=f"{text} {[a.shape for a in arrays]}")


def random(*shape: int, dtype: str = "f4", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize(
    ("writing", "kind"),
    [
        *((writing, "float") for writing in WRITINGS),
        *((w, kind) for w in ("remainder", "maximum") for kind in ("int32", "half")),
    ],
)
def test_writings(writing: str, kind: str) -> None:
    text = HEAD.format(kind, "2*W+K", WRITINGS[writing].format(low=LOW[kind]))
    dtype = {"float": "f4", "int32": "i4", "half": "f2"}[kind]
    for c, w, k in SIZES:
        agree(text, random(c, w, dtype=dtype), random(c, k, dtype=dtype, seed=1))


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("stride", "padding"),
    [(2, "1"), (2, "P"), (3, "0"), (7, "P")],
)
def test_planes_with_strides_and_padding(stride: int, padding: str) -> None:
    """Padding may be a size: what the window leaves as a remainder is known at the call."""
    s, y, x = stride, f"(y+{padding}-kh)", f"(x+{padding}-kw)"
    aligned = f"{y} % {s} == 0 && {x} % {s} == 0"
    inside = f"{y} >= 0 && {y} < {s}*H && {x} >= 0 && {x} < {s}*W"
    text = f"""def f(float(N,C,H,W) I, float(C,M,KH,KW) F, float(P) z)
    -> (float(N,M,{s}*H,{s}*W) O) {{
  O(n,m,y,x) +=! {aligned} && {inside} ? I(n,c,{y}/{s},{x}/{s}) * F(c,m,kh,kw) : 0
    where kh in 0:KH, kw in 0:KW
  O(n,m,y,x) = fmax(O(n,m,y,x), 0)
}}"""
    for n, c, h, w, m, kh, kw, p in [
        (1, 2, 3, 4, 7, 3, 4, 1),
        (2, 9, 5, 18, 8, 4, 2, 0),
        (1, 1, 1, 1, 1, 1, 1, 2),
        (1, 3, 4, 33, 13, 5, 3, 3),
    ]:
        agree(text, random(n, c, h, w), random(c, m, kh, kw, seed=1), random(p))


def test_what_is_not_added_does_not_meet_an_infinite_weight() -> None:
    """0 times an infinity is no 0; a guard around the element lets it in, one around both not."""
    image, weights = random(2, 9), random(2, 4, seed=1)
    weights[1, 2] = np.inf
    weights[0, 1] = np.nan
    for writing in ("remainder", "element"):
        agree(HEAD.format("float", "2*W+K", WRITINGS[writing]), image, weights)


def test_other_moduli_and_coefficients() -> None:
    for guard, at in {
        "(2*x-k) % 4 == 0": "(2*x-k)/4",
        "(x+3*k) % 5 == 2": "(x+3*k)/5",
        "(3*x-5*k+1) % 4 == 3": "min(max(x-k, 0), W-1)",
        "k % 3 == 1": "min(x/3 + k/3, W-1)",
        "(k+W) % 3 == 0": "min(x/3 + k/3, W-1)",
        "x % 2 == 0": "min(x/2, W-1)",
        "(x-k) % 6 == 0 && (x+k) % 4 == 0": "min(max((x-k)/6, 0), W-1)",
    }.items():
        value = f"+=! {guard} && {at} >= 0 && {at} < W ? I(c,{at}) * F(c,k) : 0"
        for c, w, k in SIZES[:5]:
            agree(HEAD.format("float", "3*W+K", value), random(c, w), random(c, k, seed=1))


def test_values_between_statements_stay_with_their_points() -> None:
    text = f"""def f(float(C,W) I, float(C,K) F, float(W,W) R) -> (O) {{
  T(x) +=! (x-k) % 2 == 0 && {INSIDE} ? {TERM} : 0 where x in 0:2*W, c in 0:C, k in 0:K
  O(x) +=! T(x) * R(x/2,j)
  O(x) = O(x) + T(x)
}}"""
    for c, w, k in SIZES[:5]:
        agree(text, random(c, w), random(c, k, seed=1), random(w, w, seed=2))


def test_a_check_of_a_guard_is_not_lost() -> None:
    """A data-dependent guard in front of the residue is asked for at every point."""
    text = """def f(float(W) I, int32(K) P, float(K) F) -> (float(2*W) O) {
  O(x) +=! I(P(k)) > 0 && (x-k) % 2 == 0 ? F(k) : 0 where k in 0:K
}"""
    kernel = tcsym.define(text)
    with pytest.raises(tcsym.TCError):
        kernel(random(1), np.array([0, 9], "i4"), random(2))
