# SPDX-License-Identifier: Apache-2.0
"""Operands that are made once in front of a nest, and what computes the index of rows: results at
all sizes, what is proposed, and that plans print what can be given back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym

TARGETS = ["cpu", "cpu:avx2", "cpu:novector"]
PRODUCT = "def f(float(M,K) A, float(M,K) G, float(K,N) B) -> (C) {{ C(i,j) +=! {} * B(k,j) {} }}"
BYTES = """def f(float(M,K) X, uint8(N,H) W) -> (C) {
  C(m,n) +=! X(m,k) * float((W(n,k/2) >> uint8(4*(k%2))) & 15) where k in 0:min(K, 2*H) }"""
ACROSS = """def f(float(N,H,W,C) X, float(C,KH,KW) D) -> (O) {
  O(n,h,w,c) +=! X(n,h+i,w+j,c) * D(c,i,j) }"""
EXPERTS = """def f(float(N,K) X, float(K,E) R, float(E,M,K) W) -> (Y) {
  g(n,e) +=! X(n,k) * R(k,e)
  best(n) max=! g(n,e)
  chosen(n) min=! (g(n,e) == best(n) ? int32(e) : 2147483647)
  Y(n,m) +=! X(n,k) * W(chosen(n),m,k) }"""
TEXTS = {
    "function": PRODUCT.format("exp(A(i,k))", ""),
    "functions": PRODUCT.format("exp(A(i,k)) * tanh(G(i,k))", ""),
    "triangle": PRODUCT.format("exp(A(i,k))", "where k in 0:min(K, i+1)"),
    "bytes": BYTES,
    "across": ACROSS,
    "experts": EXPERTS,
}
M_K_N = [(0, 3, 4), (1, 1, 1), (5, 0, 3), (3, 7, 70), (9, 33, 18), (34, 20, 130)]
SIZES: dict[str, list[tuple[int, ...]]] = {
    **dict.fromkeys(("function", "functions", "triangle", "bytes"), M_K_N),
    "across": [
        (1, 3, 3, 5, 3),
        (2, 6, 9, 17, 3),
        (3, 5, 4, 33, 2),
        (1, 4, 4, 0, 1),
        (2, 7, 8, 130, 5),
    ],
    "experts": [(3, 4, 2, 5), (1, 1, 1, 1), (40, 17, 3, 33), (200, 16, 4, 20), (600, 40, 2, 64)],
}


def arrays(name: str, sizes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    r = np.random.default_rng(len(sizes) + sum(sizes))

    def numbers(*shape: int) -> np.ndarray[Any, Any]:
        return r.standard_normal(shape).astype(np.float32)

    if name == "across":
        n, h, w, c, k = sizes
        return [numbers(n, h, w, c), numbers(c, k, k)]
    if name == "experts":
        n, k, e, m = sizes
        return [numbers(n, k), numbers(k, e), numbers(e, m, k)]
    m, k, n = sizes
    if name == "bytes":
        return [numbers(m, k), r.integers(0, 256, (n, (k + 1) // 2)).astype(np.uint8)]
    return [numbers(m, k), numbers(m, k), numbers(k, n)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TEXTS)
def test_results_are_those_of_the_reference(name: str, target: str) -> None:
    kernel = tcsym.define(TEXTS[name], target=target, strategy="symbolic").f
    for sizes in SIZES[name]:
        given = arrays(name, sizes)
        want = kernel.reference(*given)
        for threads in (1, 2):
            got = kernel(*given, threads=threads)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [x for x in TEXTS if x != "experts"])
def test_each_proposal_is_right(name: str) -> None:
    """Of those that make operands first, given as a user would."""
    kernel = tcsym.define(TEXTS[name], target="cpu:avx2").f
    named = plans(str(kernel.explain("plan")))
    first = {k: text for k, text in named.items() if "operands first" in k}
    assert first
    for text in first.values():
        assert " once order " in text
        given = tcsym.define(TEXTS[name], target="cpu:avx2", plan=text).f
        for sizes in SIZES[name]:
            x = arrays(name, sizes)
            np.testing.assert_allclose(given(*x), kernel.reference(*x), rtol=1e-4, atol=1e-4)


def plans(text: str) -> dict[str, str]:
    """By name, as texts for all sizes."""
    found, name, top = dict[str, list[str]](), "", ""
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            top = line
        elif "  # " in line:
            name = f"{line.partition('  # ')[2]} {len(found)}"
            found[name] = [top]
        elif name and line.strip():
            found[name].append(line)
    return {k: "\n".join(x) for k, x in found.items()}


def test_functions_of_factors_are_called_in_front_of_the_nest() -> None:
    mapped = str(tcsym.define(TEXTS["triangle"], target="cpu:avx2").f.explain("mapped"))
    called = [x.strip() for x in mapped.splitlines() if "exp(" in x]
    assert any(x.startswith("A.copy") for x in called)


@pytest.mark.parametrize("target", TARGETS)
def test_results_that_lie_apart_are_those_of_a_contraction(target: str) -> None:
    """Products of complex numbers, of which each part is every other element."""
    text = """def f(float(M,K,2) A, float(K,N,2) B) -> (float(M,N,2) C) {
      C(i,j,c) +=! c == 0 ? A(i,k,0)*B(k,j,0) - A(i,k,1)*B(k,j,1)
                          : A(i,k,0)*B(k,j,1) + A(i,k,1)*B(k,j,0) }"""
    kernel = tcsym.define(text, target=target).f
    if target == "cpu:avx2":
        assert "stage B at j.panel" in str(kernel.explain("plan"))
    r = np.random.default_rng(0)
    for m, k, n in M_K_N:
        shapes = (m, k, 2), (k, n, 2)
        a, b = (r.standard_normal(s).astype(np.float32) for s in shapes)
        x, y = (v[..., 0] + 1j * v[..., 1] for v in (a, b))
        got = kernel(a, b)
        np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], x @ y, rtol=1e-4, atol=1e-4)


def test_rows_are_grouped_behind_what_finds_their_index() -> None:
    plan = tcsym.define(EXPERTS, target="cpu:avx2").f.explain("plan")
    assert "that read the same of W grouped" in plan


def test_an_index_that_is_given_needs_no_other_nest() -> None:
    text = (
        "def f(float(N,K) X, float(E,M,K) W, int32(N) c) -> (Y) { Y(n,m) +=! X(n,k) * W(c(n),m,k) }"
    )
    assert str(tcsym.define(text, target="cpu:avx2").f.explain("plan")).count("inspector") == 1


def test_windows_are_not_copied() -> None:
    """All terms of long windows are more memory than operand and result together."""
    text = """def f(float(N) X, float(M,K) W) -> (float(P,M) Y) {
      Y(i,m) +=! X((i+k)/2) * W(m,k) where i in 0:P, k in 0:K, m in 0:M }"""
    kernel = tcsym.define(text, target="cpu:avx2").f
    assert "stage X once" not in str(kernel.explain("plan"))
    r = np.random.default_rng(0)
    for n, k, p in ((100, 9, 40), (100, 9, 190), (100, 0, 3), (3, 5, 0)):
        x, w = r.standard_normal(n).astype("f4"), r.standard_normal((7, k)).astype("f4")
        want = kernel.reference(x, w, sizes={"P": p})
        np.testing.assert_allclose(kernel(x, w, sizes={"P": p}), want, rtol=1e-4, atol=1e-4)
