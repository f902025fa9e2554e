# SPDX-License-Identifier: Apache-2.0
"""What contractions become: full registers, no spilled vector, one compilation, bounded code."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pytest

import tcsym

TEXTS = {
    "nn": "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
    "nt": "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
    "tn": "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }",
    "tt": "def f(float(K,M) A, float(N,K) B) -> (C) { C(m,n) +=! A(k,m) * B(n,k) }",
    "batched": """def f(float(B,N,M) X, float(B,K,M) Y) -> (Z) {
  Z(b,n,k) +=! X(b,n,m) * Y(b,k,m)
}""",
    "abc-bda-dc": "def f(float(B,D,A) X, float(D,C) Y) -> (Z) { Z(a,b,c) +=! X(b,d,a) * Y(d,c) }",
    "abcd-aebf-dfce": """def f(float(A,E,B,F) X, float(D,F,C,E) Y) -> (Z) {
  Z(a,b,c,d) +=! X(a,e,b,f) * Y(d,f,c,e)
}""",
    "layer": """def f(float(B,M) I, float(N,M) W, float(N) Bi) -> (O) {
  O(b,n) +=! I(b,m) * W(n,m)
  O(b,n) = fmax(O(b,n) + Bi(n), 0)
}""",
    "half": "def f(half(M,K) A, half(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
}
TARGETS = {"cpu:avx2": ("ymm", 6 * 2 * 4), "cpu:avx512": ("zmm", 8 * 2 * 4)}
MOST_INSTRUCTIONS = {"cpu:avx2": 7500, "cpu:avx512": 8500}  # a third: blocks of long sums


@lru_cache(None)
def listing_of(name: str, target: str) -> str:
    return tcsym.define(TEXTS[name], target=target).f.explain("asm")


def blocks(listing: str) -> list[str]:
    return re.split(r"^\.LBB", listing, flags=re.MULTILINE)


def count(pattern: str, block: str) -> int:
    return len(re.findall(pattern, block))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [n for n in TEXTS if n != "half"])
def test_inner_loop_multiplies_whole_registers_and_spills_none(name: str, target: str) -> None:
    """The register tile's loop: every product on full registers, one element broadcast a row."""
    register, products = TARGETS[target]
    listing = listing_of(name, target)
    fused = rf"vfmadd\d+ps\s.*%{register}"
    hot = [b for b in blocks(listing) if count(fused, b) >= products]
    assert hot
    for block in hot:
        loop = block[: block.rindex("vfmadd")]
        assert count(fused, loop) + 1 == products
        assert not re.search(rf"\(%rsp\).*%{register}|%{register}.*\(%rsp\)", loop)
        assert not re.search(r"vmaskmov|vgather|\{%k|call", loop)


@pytest.mark.parametrize("name", [n for n in TEXTS if n != "half"])
def test_ragged_tiles_leave_registers_for_the_result_where_masks_are(name: str) -> None:
    """A copy of the tile in the frame costs more than the tile, where few terms are summed."""
    kernel = tcsym.define(TEXTS[name], target="cpu:avx512", strategy="symbolic").f
    tile = r"^  \w+[._]acc[.\d]* \w+\[[\d, ]+\] (\w+) padded"
    spaces = set(re.findall(tile, kernel.explain("mapped"), re.M))
    assert "register" in spaces and "stack" not in spaces


@pytest.mark.parametrize("name", ("nn", "tn", "abc-bda-dc", "abcd-aebf-dfce"))
def test_no_store_of_a_tile_is_masked(name: str) -> None:
    """Without mask registers: full tiles are stored plainly, ragged vectors in plain pieces."""
    listing = listing_of(name, "cpu:avx2")
    plain = [b for b in blocks(listing) if count(r"vmovups\s+%ymm\d+, .*\(%r", b) >= 12]
    assert plain
    assert not re.search(r"vp?maskmov\w+\s+%[xy]mm\d+, %[xy]mm\d+, .*\(", listing)


def arguments(text: str, extents: tuple[int, ...]) -> list[np.ndarray]:
    """Arrays for the declared tensors; sizes get extents in order of appearance."""
    shapes = re.findall(r"(?:float|half)\(([A-Z,]+)\)", text[: text.index("->")])
    sizes = dict(zip(dict.fromkeys(",".join(shapes).split(",")), extents))
    rng = np.random.default_rng(0)
    dtype = np.float16 if "half" in text else np.float32
    return [rng.standard_normal([sizes[n] for n in s.split(",")]).astype(dtype) for s in shapes]


EXTENTS = ((1, 2, 3, 4, 5, 6), (7, 9, 17, 8, 3, 2), (14, 33, 24, 13, 5, 4), (6, 5, 40, 2, 9, 1))


@pytest.mark.parametrize("name", TEXTS)
def test_one_compilation_serves_all_sizes(name: str) -> None:
    kernel = tcsym.define(TEXTS[name]).f
    for extents in EXTENTS:
        arrays = arguments(TEXTS[name], extents)
        tolerance = 2e-2 if name == "half" else 1e-4
        np.testing.assert_allclose(
            kernel(*arrays), kernel.reference(*arrays), rtol=tolerance, atol=tolerance
        )
    assert kernel.stats.compilations + kernel.stats.cache_hits == 1


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TEXTS)
def test_code_is_bounded(name: str, target: str) -> None:
    listing = listing_of(name, target)
    assert count(r"(?m)^\t[a-z]", listing) <= MOST_INSTRUCTIONS[target]
