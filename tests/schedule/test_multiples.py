# SPDX-License-Identifier: Apache-2.0
"""Sizes declared as multiples: code without what no multiple leaves over, right for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.index.expr import Index, floordiv, minimum, mod, var
from tcsym.ir.loops import Kernel, block
from tcsym.schedule.multiples import in_quotients, in_sizes
from tcsym.sizes.context import Known

MM = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
PANELS = """
    split m tile reg:6 end=half
    split n panel tile:8 reg:2 lane:8 end=half
    order n.panel m.tile n.tile
    stage B at n.panel order n.tile k n.reg n.lane
"""
DOUBLE = "def f(float(M,N) X) -> (Y) { Y(i,j) = 2 * X(i,j) }"
PROGRAMS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "matrix product": (MM, {"M": 4, "K": 8, "N": 16}),
    "inner size": (MM, {"K": 6}),
    "transposed": (
        "def f(float(K,M) A, float(N,K) B) -> (C) { C(i,j) +=! A(k,i) * B(j,k) }",
        {"M": 8, "K": 2},
    ),
    "epilogue": (
        """def f(float(M,K) A, float(N,K) B, float(N) c) -> (C) {
          C(i,j) +=! A(i,k) * B(j,k)
          C(i,j) = max(C(i,j) + c(j), 0.0) }""",
        {"N": 24},
    ),
    "convolution": (
        """def f(float(B,C,H,W) I, float(O,C,3,3) F) -> (R) {
          R(b,o,h,w) +=! I(b,c,h+kh,w+kw) * F(o,c,kh,kw) }""",
        {"C": 4, "O": 8, "W": 8},
    ),
    "unit windows": (
        """def f(float(B,C,H,W) I, float(O,C,KH,KW) F) -> (R) {
          R(b,o,h,w) +=! I(b,c,h+kh,w+kw) * F(o,c,kh,kw) }""",
        {"H": 4, "W": 4, "O": 8},
    ),
    "row sums": (
        "def f(float(M,N) X) -> (S, T) { S(i) +=! X(i,j)  T(j) max=! X(i,j) }",
        {"M": 2, "N": 16},
    ),
    "halves": (
        "def f(float(N) X) -> (Y) { Y(i) = X(i/2) + (i < N/2 ? 1.0 : 0.0) where i in 0:N }",
        {"N": 6},
    ),
    "transposition": ("def f(float(M,N) X) -> (Y) { Y(j,i) = X(i,j) }", {"M": 8, "N": 4}),
    "recurrence": (
        """def f(float(T,N) X, float(N,N) W) -> (H) {
          for t in T { if t == 0 { H(t,n) = X(t,n) } else { H(t,n) +=! W(n,k) * H(t-1,k) } } }""",
        {"N": 4},
    ),
    "gather": ("def f(float(E,D) L, int32(N) I) -> (Y) { Y(n,d) = L(I(n),d) }", {"D": 8, "N": 3}),
    "integers": (
        "def f(int32(B,M,K) X, int32(B,K,N) Y) -> (Z) { Z(b,i,j) +=! X(b,i,k) * Y(b,k,j) }",
        {"M": 3, "N": 5},
    ),
}


def _inputs(kernel: Any, steps: Mapping[str, int], base: int) -> list[Any]:
    """Small integers, of which sums are exact; sizes about `base`, multiples where declared."""
    random = np.random.default_rng(base)
    sizes = {n: base + k for k, n in enumerate(kernel.sizes)}
    sizes |= {n: min(base, 1) for n in ("KH", "KW") if n in sizes}
    sizes |= {n: -(-sizes[n] // step) * step for n, step in steps.items()}
    sizes |= {n: 1 + base % 4 for n in ("B", "T") if n in sizes}

    def array(t: Any) -> Any:
        shape = [sizes.get(str(d)) or int(str(d)) for d in t.shape]
        low, high = (0, max(1, sizes["E"])) if t.name == "I" and "E" in sizes else (-2, 3)
        return random.integers(low, high, shape).astype(t.dtype.numpy)

    return [array(t) for t in kernel.program.inputs]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, "cpu") for name in PROGRAMS),
        *((name, "cpu:novector") for name in ("matrix product", "halves", "recurrence")),
    ],
)
def test_multiples_have_right_results(name: str, target: str) -> None:
    text, steps = PROGRAMS[name]
    declared = {n: tc.Dim(multiple_of=step) for n, step in steps.items()}
    kernel = tc.define(text, sizes=declared, target=target, strategy="symbolic")["f"]
    assert kernel.explain("mapped") != tc.define(text, target=target)["f"].explain("mapped")
    for base in (3, 6) if "I(b,c" in text else (3, 17, 33):
        inputs = _inputs(kernel, steps, base)
        for layout in (np.ascontiguousarray, np.asfortranarray)[: 2 if target == "cpu" else 1]:
            given = [layout(x) for x in inputs]
            for found, wanted in zip(_outputs(kernel(*given)), _outputs(kernel.reference(*given))):
                np.testing.assert_array_equal(found, wanted)


def _outputs(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, tuple) else (found,)


def test_nothing_is_left_over() -> None:
    """No masks where vectors divide the rows, less code for a product of such sizes."""
    assert "mask" in tc.define(DOUBLE).f.explain("mapped")
    even = tc.define(DOUBLE, sizes={"N": tc.Dim(multiple_of=32)}).f.explain("mapped")
    rows = [line for line in even.splitlines() if "if " not in line]  # of threads, not of rows
    assert not any("mask" in line or "min(" in line for line in rows)
    sizes = {"M": tc.Dim(64, multiple_of=24), "K": tc.Dim(64), "N": tc.Dim(64, multiple_of=192)}
    ranges = {n: tc.Dim(d.lo) for n, d in sizes.items()}
    plan = tc.Options(plan=PANELS)
    whole, ragged = (
        tc.define(MM, sizes=s, target="cpu:avx2", options=plan).f.explain("mapped")
        for s in (sizes, ranges)
    )
    assert "mask" in ragged and "mask" not in whole
    assert whole.count("\n") < 0.5 * ragged.count("\n")


@pytest.mark.parametrize("strategy", ["auto", "symbolic", "specialize", "bucket"])
def test_other_sizes_are_errors(strategy: str) -> None:
    sizes = {"N": tc.Dim(0, 64, 16), "M": tc.Dim(0, 64)}
    kernel = tc.define(DOUBLE, sizes=sizes, strategy=strategy).f
    for n in (16, 0, 64, 48):
        for _ in range(3):  # through Python, and through the compiled entry
            x = np.ones((5, n), np.float32)
            np.testing.assert_array_equal(kernel(x), 2 * x)
    for n in (8, 17, 80):
        with pytest.raises(tc.SizeError, match=r"multiple of 16|from 0 to 64"):
            kernel(np.ones((5, n), np.float32))


def test_expressions_come_back() -> None:
    known = (Known("N", 5, 100, 16), Known("M", 0, None, 1))
    n, m, q = var("N"), var("M"), var("N/16")

    def there_and_back(e: Index) -> tuple[Index, Index]:
        from tcsym.ir.loops import Loop

        kernel = Kernel("f", ("N", "M"), (), (), Loop("i", Index((), 0), e, block()), known)
        there = in_quotients(kernel)
        back = in_sizes(there, kernel)
        assert isinstance(there.body, Loop) and isinstance(back.body, Loop)
        assert there.sizes == ("N/16", "M") and back.sizes == kernel.sizes
        assert there.context == (Known("N/16", 1, 6), known[1]) and back.context == known
        return there.body.upper, back.body.upper

    assert there_and_back(n) == (q * 16, n)
    assert there_and_back(floordiv(n + 7, 8)) == (q * 2, floordiv(n, 16) * 2)
    assert there_and_back(mod(n, 4) + m) == (m, m)
    assert there_and_back(n * m) == (q * m * 16, n * m)
    assert there_and_back(minimum(n, 3 * m)) == (minimum(q * 16, m * 3), minimum(n, m * 3))
    plain = Kernel("f", ("N",), (), (), block(), (Known("N", 0, None),))
    assert in_quotients(plain) is plain and in_sizes(plain, plain) is plain
