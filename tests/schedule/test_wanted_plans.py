# SPDX-License-Identifier: Apache-2.0
"""Any plan that is offered may be asked for, at any sizes: results are those of the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.compiler import Lowering, analyse
from tcsym.frontend.sample import random_inputs
from tcsym.options import Options
from tcsym.schedule.map_cpu import Mapped, map_cpu
from tcsym.schedule.wanted import offered_in
from tcsym.target.names import resolve_target
from tests.mapping.proposals import proposed
from tests.processors import require

Array = np.ndarray[Any, Any]
TEXTS = {
    "matrices": "def f(float(M,K) X, float(K,N) Y) -> (Z) { Z(m,n) +=! X(m,k) * Y(k,n) }",
    "both turned": "def f(float(K,M) X, float(N,K) Y) -> (Z) { Z(m,n) +=! X(k,m) * Y(n,k) }",
    "a batch": "def f(float(M,K,B) X, float(N,B,K) Y) -> (Z) { Z(n,m,b) +=! X(m,k,b) * Y(n,b,k) }",
    "small products": """def f(float(B,M,K) X, float(B,K,N) Y) -> (Z) {
      Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }""",
    "moved result": "def f(float(B,M,K) X, float(N,K) Y) -> (Z) { Z(n,b,m) +=! X(b,m,k) * Y(n,k) }",
    "sums of columns": "def f(float(N,M) X) -> (S) { S(m) +=! X(n,m) * X(n,m) }",
    "softmax": """def f(float(N,M) X) -> (Y) {
      s(n) max=! X(n,m)  t(n) +=! exp(X(n,m) - s(n))  Y(n,m) = exp(X(n,m) - s(n)) / t(n) }""",
    "turned rows": """def f(float(B,M,N) X) -> (Y) {
      s(m,b) +=! X(b,m,n)  Y(m,b,n) = X(b,m,n) - s(m,b) }""",
    "a map": "def f(float(B,M,N) X) -> (Y) { Y(n,m,b) = 0.5 * X(b,m,n) }",
    "windows": """def f(float(N,H,W) X, float(M,N,KH,KW) F) -> (Y) {
      Y(m,h,w) +=! X(n,h+a,w+b) * F(m,n,a,b) }""",
    "own windows": """def f(float(N,H,W) X, float(N,KH,KW) F) -> (Y) {
      Y(n,h,w) +=! X(n,h+a,w+b) * F(n,a,b) }""",
    "two products": """def f(float(N,K) X, float(K,M) U, float(M,P) V) -> (Z) {
      y(n,m) +=! X(n,k) * U(k,m)  y(n,m) = fmax(y(n,m), 0)  Z(n,p) +=! y(n,m) * V(m,p) }""",
    "a triangle": """def f(float(N,M) X, float(M,P) Y) -> (Z) {
      Z(n,p) +=! X(n,m) * Y(m,p) where n in 0:N, m in 0:min(n+1,M) }""",
    "bags": """def f(int32(N,K) I, float(V,D) T) -> (Y) { Y(n,d) +=! T(I(n,k),d) }""",
    "chosen matrices": """def f(float(N,K) X, float(V,M,K) W, int32(N) C) -> (Y) {
      Y(n,m) +=! X(n,k) * W(C(n),m,k) }""",
    "a scan": """def f(float(T,B,H) X) -> (float(T+1,B,H) S) {
      S(0,b,h) = 0.0  for t in T { S(t+1,b,h) = 0.5 * S(t,b,h) + X(t,b,h) } }""",
    "a histogram": "def f(float(N,D) W, int32(N) I) -> (float(17,D) H) { H(I(n),d) +=! W(n,d) }",
}
SMALL = (1, 2, 3, 5, 9, 17)
N_SIZES = 4


def offered(source: str, target: str) -> Iterator[str]:
    """Plans with names, and the directives that are proposed, as far as these can be carried out:
    the last ones are for all sizes."""
    program, found = analyse(source)["f"], resolve_target(target)
    dense = ("dense",) * (len(program.inputs) + len(program.outputs))
    kernel = Lowering(program, found, Options(), {}, dense, (), {}).scheduled().kernel

    def mapped(plan: str = "") -> Mapped:
        return map_cpu(kernel, found.machine, Options(plan=plan), tells_all=not plan)

    named = [name for names in offered_in(mapped().choices).values() for name in names]
    *some, last = proposed(source, target)
    for plan in dict.fromkeys((*named, *some, last)):
        told = mapped(plan).warnings
        assert not told or plan in some
        if not told:
            yield plan


def drawn_inputs(source: str, rng: np.random.Generator) -> list[Array]:
    program = analyse(source)["f"]
    sizes = {n: int(rng.choice(SMALL)) for n in program.sizes}
    for window, around in (("KH", "H"), ("KW", "W")):
        if window in sizes:
            sizes[around] = max(sizes[around], sizes[window])
    tensors = [(t.dtype, t.shape) for t in program.inputs]
    return random_inputs(tensors, sizes, int(rng.integers(1000)))


@pytest.mark.thinned(8)
@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("name", TEXTS)
def test_every_plan_is_right_at_any_sizes(name: str, target: str) -> None:
    require(target)
    source, rng = TEXTS[name], np.random.default_rng(0)
    for plan in offered(source, target):
        options = Options(plan=plan)
        kernel = tcsym.define(source, target=target, options=options, strategy="symbolic").f
        for _ in range(N_SIZES):
            inputs = drawn_inputs(source, rng)
            told = f"{plan} {[x.shape for x in inputs]}"
            np.testing.assert_allclose(
                kernel(*inputs), kernel.reference(*inputs), 1e-4, 1e-4, err_msg=told
            )
