# SPDX-License-Identifier: Apache-2.0
"""What programs with sliding windows become: the instructions of their hot loops."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pytest

import tcsym

DEPTHWISE = """def f(float(N,C,H,W) I, float(C,KH,KW) F) -> (O) {
  O(n,c,h,w) +=! I(n,c,h+kh,w+kw) * F(c,kh,kw)
}"""


@lru_cache(None)
def blocks(source: str, target: str, plan: str = "") -> list[list[str]]:
    """The basic blocks of a program's code."""
    text = tcsym.define(source, target=target, options=tcsym.Options(plan=plan)).f.explain("asm")
    return [b.splitlines() for b in re.split(r"^\.LBB", text, flags=re.MULTILINE)]


def hot_block(source: str, target: str, instruction: str) -> list[str]:
    """The basic block with the most of an instruction."""
    return max(blocks(source, target), key=lambda b: count(b, instruction))


def count(lines: list[str], pattern: str) -> int:
    return sum(bool(re.search(pattern, x)) for x in lines)


def beside_the_bound(lines: list[str]) -> list[str]:
    """Without the comparison with the loop's bound, which may be in memory: it costs nothing."""
    return [x for x in lines if not re.search(r"cmpq\s.*\(%rsp\)", x)]


@pytest.mark.parametrize(("target", "register"), [("cpu:avx2", "ymm"), ("cpu:avx512", "zmm")])
def test_depthwise_convolution_adds_from_memory(target: str, register: str) -> None:
    """A point of the window: one weight, eight fused multiply-adds, the loop, and nothing else."""
    tile = f"split w tile reg:2 lane:{8 if register == 'ymm' else 16} end=overlap"
    plan = f"split h tile reg:4 end=overlap; {tile}; order n c h.tile w.tile"
    block = next(b for b in blocks(DEPTHWISE, target, plan) if count(b, "vfmadd") == 8)
    assert count(block, rf"vfmadd231ps.*\(%r.*%{register}") == 8
    assert count(block, "vbroadcastss") == 1
    assert count(beside_the_bound(block), r"rsp|vmaskmov|gather") == 0
    assert len(block) <= 16


GROUPED = """def f(float(N,G,C,H,W) I, float(G,F,C,KH,KW) W1) -> (O) {
  O(n,g,o,h,w) +=! I(n,g,i,h+kh,w+kw) * W1(g,o,i,kh,kw)
}"""
OF_3 = GROUPED.replace("KH,KW", "3,3").replace("\n}", " where kh in 0:3, kw in 0:3\n}")


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("c", "f"), [(1, 3), (4, 4), (5, 7)])
@pytest.mark.parametrize("w", [2, 3, 17, 18, 19, 34, 66, 67])
def test_known_windows_are_right_at_every_edge(c: int, f: int, w: int) -> None:
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, 2, c, 5, w)).astype(np.float32)
    weights = rng.standard_normal((2, f, c, 3, 3)).astype(np.float32)
    expected = tcsym.define(GROUPED).f.reference(image, weights)
    np.testing.assert_allclose(tcsym.define(OF_3).f(image, weights), expected, atol=1e-4)


CONVOLUTION = """def f(float(N,C,H,W) I, float(O,C,KH,KW) F) -> (Out) {
  Out(n,o,h,w) +=! I(n,c,2*h+kh,2*w+kw) * F(o,c,kh,kw)
}"""


def test_convolution_is_one_long_product() -> None:
    """Four steps of the fused reduction: 6 x 2 vectors, from one panel and six rows of weights."""
    block = hot_block(CONVOLUTION, "cpu:avx2", "vfmadd")
    assert count(block, r"vfmadd\d+ps.*%ymm") == 4 * 6 * 2
    assert count(block, r"vmovaps\s+\d*\(%r.*ymm|vmovups\s+\d*\(%r.*ymm") <= 4 * 2
    assert count(block, "vbroadcastss") == 4 * 6
    assert count(beside_the_bound(block), r"rsp|vmaskmov|imul|idiv") == 0


NEAR = """def f(float(H,S,D) Q, float(H,S,D) K, float(H,S,E) V) -> (O) {
  L(h,i,w) +=! i+w-2 >= 0 && i+w-2 < S ? Q(h,i,d) * K(h,i+w-2,d) : 0 where w in 0:5
  M(h,i) max=! i+w-2 >= 0 && i+w-2 < S ? L(h,i,w) : -INFINITY
  P(h,i,w) = exp(L(h,i,w) - M(h,i))
  O(h,i,e) +=! i+w-2 >= 0 && i+w-2 < S ? P(h,i,w) * V(h,i+w-2,e) : 0
}"""


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_attention_to_neighbours_has_columns_in_lanes(target: str) -> None:
    """Each nest inside a row has lanes of its own: along rows every read would be gathered."""
    lines = tcsym.define(NEAR, target=target).f.explain("mapped").splitlines()
    vectors = {x.split()[1].split(".")[0] for x in lines if x.lstrip().startswith("vector ")}
    assert {"d", "e"} <= vectors and not vectors & {"i", "h"}


@pytest.mark.parametrize("sizes", [(2, 7, 5, 19), (1, 1, 1, 1), (17, 1, 4, 3), (3, 40, 33, 16)])
def test_attention_to_neighbours_is_right(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    h, s, d, e = sizes
    arrays = [rng.standard_normal((h, s, n), dtype=np.float32) for n in (d, d, e)]
    expected = tcsym.define(NEAR).f.reference(*arrays)
    np.testing.assert_allclose(tcsym.define(NEAR).f(*arrays), expected, 1e-4, 1e-5)
