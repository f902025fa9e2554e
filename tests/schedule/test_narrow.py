# SPDX-License-Identifier: Apache-2.0
"""Numbers of 32 bits in grids: which sizes they hold, and that others get another kernel."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import numpy as np
import pytest

import tcsym as tc
from tcsym.compiler import analyse
from tcsym.index.expr import ZERO, Index
from tcsym.index.values import evaluate, holds
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Allocate, Block, Branch, Kernel, Loop, Node
from tcsym.ir.traverse import grids
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.runtime.native import HAS_ENTRIES
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.loops import loops_in
from tcsym.schedule.device import narrow
from tcsym.schedule.device.narrow import narrowed
from tcsym.schedule.map_gpu import map_gpu
from tcsym.sizes.context import Interval
from tcsym.target.cuda import twin_target

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
TURNED = "def f(float(N,M,K) X) -> (Y) { Y(k,n,m) = X(n,m,k) + 0.5 }"
SUMS = "def f(float(M,N) X) -> (O, P) { O(j) +=! X(i,j) P(i) max=! X(i,j) }"
BAG = """def f(int32(P) off, int32(J) id, float(V,D) E) -> (Y) {
  Y(b,d) +=! E(id(j), d) where j in off(b):off(b+1) }"""


def mapped(text: str) -> Kernel:
    (p,) = analyse(text).values()
    return map_gpu(schedule_program(p, Options(), {}).kernel, twin_target().machine).kernel


def test_what_is_left_out() -> None:
    kernel = narrowed(mapped(MM))
    for n, is_left in ((1, False), (5000, False), (20000, False), (24000, True), (1 << 20, True)):
        assert holds(kernel.left_out, dict(M=n, N=n, K=n)) == is_left
    assert holds(kernel.left_out, dict(M=1 << 30, N=1, K=64))
    assert holds(kernel.left_out, dict(M=1 << 22, N=1 << 22, K=1 << 22))  # beyond 64 bits


class Walk:
    """Numbers of one thread, drawn: each with its bound."""

    def __init__(self, kernel: Kernel, sizes: dict[str, int], seed: int) -> None:
        self.kernel, self.sizes, self.random = kernel, sizes, random.Random(seed)
        loops = {x.variable: x for x in loops_in(kernel.body)}
        self.bounds = narrow._Bounds(frozenset(), {n: Interval(0) for n in sizes}, loops)

    def exceed(self, n: Node, at: dict[str, int]) -> Iterator[tuple[Index, int]]:
        match n:
            case Block(body):
                for x in body:
                    yield from self.exceed(x, at)
            case Allocate():
                yield from self.exceed(n.body, at)
            case Branch(c, then, orelse):
                arm = then if holds(c, at) else orelse
                if arm is not None:
                    yield from self.exceed(arm, at)
            case Loop():
                yield from self.beyond((n.lower, n.upper), at)
                lower, upper = evaluate(n.lower, at), evaluate(n.upper, at)
                if n.mask is not None:
                    upper = min(upper, evaluate(n.mask, at))
                if lower < upper:
                    last = self.random.choice([upper - 1, self.random.randrange(lower, upper)])
                    yield from self.exceed(n.body, {**at, n.variable: last})
            case _:
                for a in accesses(n):
                    steps = self.kernel.buffer(a.buffer).element_strides()
                    parts = zip(a.subscripts, steps, strict=True)
                    yield from self.beyond((sum((s * k for s, k in parts), ZERO),), at)

    def beyond(self, given: tuple[Index, ...], at: dict[str, int]) -> Iterator[tuple[Index, int]]:
        for e in given:
            if abs(evaluate(e, at)) > evaluate(self.bounds.of(e), self.sizes):
                yield e, evaluate(e, at)


@pytest.mark.parametrize("text", [MM, TURNED, SUMS, tc.library.source("softmax")])
def test_bounds_are_never_exceeded(text: str) -> None:
    kernel, rng = mapped(text), random.Random(1)
    for trial in range(40):
        sizes = {n: rng.choice([1, 3, 17, 64, 200, 1000]) for n in kernel.sizes}
        known = {**dict.fromkeys(kernel.launched, 0), **sizes}
        walk = Walk(kernel, known, trial)
        for region, _ in grids(kernel.body):
            if evaluate(extent(region), known) > 0:
                assert list(walk.exceed(region, known)) == []


@pytest.mark.parametrize("text", [TURNED, SUMS])
def test_a_device_divides_no_64_bits(text: str) -> None:
    ptx = tc.define(text, target="cuda:sm_80").f.explain("ptx")
    assert re.search(r"\b(div|rem)\.[su]32", ptx) or text != TURNED
    assert not re.search(r"\b(div|rem)\.[su]64", ptx)


@pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")
@pytest.mark.parametrize("text", [TURNED, BAG])
def test_sizes_that_do_not_fit_get_another_kernel(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCSYM_CACHE", "0")
    monkeypatch.setattr(narrow, "LIMIT", 4096)
    kernel = tc.define(text, target="cuda:twin", strategy="symbolic").f
    for n in (3, 40, 5):
        if text == TURNED:
            given = [np.arange(n**3, dtype="f4").reshape(n, n, n)]
        else:
            off = np.arange(n + 1, dtype="i4")
            given = [off, off % n, np.arange(n * n, dtype="f4").reshape(n, n)]
        np.testing.assert_array_equal(kernel(*given), kernel.reference(*given))
    assert "left to another" in kernel.explain("mapped")
    assert len(kernel.stats.variants) >= 2
