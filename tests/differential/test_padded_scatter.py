# SPDX-License-Identifier: Apache-2.0
"""Scattered terms that conditions keep from being added: their positions are not looked at."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import TCError

TARGETS = ("cpu", "cpu:avx2", "cpu:novector", "cuda:twin")
ROWS = (
    "def f(int32(J) id, int32(J,D) Y) -> (int32(V,D) G) { G(id(j),d) +=! id(j) >= 0 ? Y(j,d) : 0 }"
)
TEXTS = {
    "a length": "G(id(b,l),d) +=! l < len(b) ? Y(b,d) : 0",
    "the position itself": "G(id(b,l),d) +=! id(b,l) >= 0 && id(b,l) < V ? Y(b,d) : 0",
    "the other arm": "G(id(b,l),d) +=! l >= len(b) ? 0 : Y(b,d)",
    "nested": "G(id(b,l),d) +=! l < len(b) ? (Y(b,d) > 0 ? 0 : Y(b,d)) : 0",
    "a cast": "G(id(b,l),d) +=! int32(l < len(b) ? int8(Y(b,d)) : int8(0))",
    "products": "G(id(b,l),d) *=! l < len(b) ? Y(b,d) : 1",
    "largest": "G(id(b,l),d) max=! l < len(b) ? Y(b,d) : -2147483648",
    "columns": "G(id(b,l),id(b,l) % D) +=! l < len(b) ? Y(b,0) : 0 where l in 0:L",
    "two positions": "G(id(b,l),id(b,l+1) % D) +=! l + 1 < len(b) ? l : 0",
    "a quotient": "G(id(b,l)/2,d) +=! l < len(b) ? Y(b,d) : 0",
    "what follows": "G(id(b,l+1),d) +=! l + 1 < len(b) ? Y(b,d) : 0 where l in 0:L-1",
    "a ragged range": """G(v,d) = 0 where v in 0:V for b in B {
      G(id(b,l),d) += l < len(b) ? Y(b,d) : 0 where l in 0:min(len(b) + 1, L) }""",
    "a state": "G(v,d) = Y(0,d) where v in 0:V  G(id(b,l),d) += l < len(b) ? Y(b,d) : 0",
    "steps": "G(v,d) = 0 where v in 0:V for b in B { G(id(b,l),d) += l < len(b) ? Y(b,d) + b : 0 }",
}
FILLS = (-1, -100, -(2**31), 2**31 - 1)
SHAPES = [(1, 1, 1, 1), (3, 4, 5, 2), (5, 7, 4, 9), (40, 9, 33, 37), (2, 300, 11, 1)]


@lru_cache(maxsize=4)
def compiled(text: str, target: str) -> Any:
    return tcsym.define(text, target=target, strategy="symbolic").f


def text_of(name: str) -> str:
    return f"def f(int32(B,L) id, int32(B) len, int32(B,D) Y) -> (int32(V,D) G) {{ {TEXTS[name]} }}"


def drawn(shape: tuple[int, ...], fill: int) -> tuple[list[np.ndarray], int]:
    b, length, v, d = shape
    rng = np.random.default_rng(sum(shape))
    ids = rng.integers(0, v, (b, length)).astype("i4")
    lengths = rng.integers(0, length + 1, b).astype("i4")
    lengths[0] = length
    ids[np.arange(length) >= lengths[:, None]] = fill
    return [ids, lengths, rng.integers(-3, 4, (b, d)).astype("i4")], v


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TEXTS)
def test_positions_that_nothing_is_added_at(name: str, target: str) -> None:
    kernel = compiled(text_of(name), target)
    for shape, fill in zip(SHAPES, (*FILLS, -1)):
        arrays, v = drawn(shape, fill)
        want = kernel.reference(*arrays, sizes={"V": v})
        for threads in (1, 2) if target == "cpu" else (None,):
            got = kernel(*arrays, sizes={"V": v}, threads=threads)
            np.testing.assert_array_equal(got, want, err_msg=f"{shape}")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("fill", FILLS)
def test_positions_that_something_is_added_at_are_checked(target: str, fill: int) -> None:
    kernel = compiled(text_of("a length"), target)
    (ids, lengths, y), v = drawn((3, 4, 5, 2), -1)
    ids[2], lengths[2] = fill, 4
    for run in (kernel, kernel.reference):
        with pytest.raises(TCError) as e:
            run(ids, lengths, y, sizes={"V": v})
        assert (e.value.kind, e.value.line, e.value.column) == ("bounds", 1, 70)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("j", "v", "d"), [(3000, 9, 40), (20000, 9, 1), (2000, 3000, 300)])
def test_many_terms(target: str, j: int, v: int, d: int) -> None:
    """Copies, columns, and terms that are sorted."""
    kernel, rng = compiled(ROWS, target), np.random.default_rng(j)
    ids = rng.integers(-2, v, j).astype("i4")
    y = rng.integers(-3, 4, (j, d)).astype("i4")
    want = np.zeros((v, d), "i4")
    np.add.at(want, ids[ids >= 0], y[ids >= 0])
    for threads in (1, 2, 3) if target == "cpu" else (None,):
        np.testing.assert_array_equal(kernel(ids, y, sizes={"V": v}, threads=threads), want)


def test_a_fixed_position_that_is_set_is_checked() -> None:
    text = "def f(int32 p, float(N) X) -> (float(N) Y) {{ {} }}"
    added = compiled(text.format("Y(i) = 0.0 Y(p) += p >= 0 ? X(i) : 0.0"), "cpu")
    x = np.arange(4, dtype="f4")
    assert added(-1, x).tolist() == added.reference(-1, x).tolist() == [0, 0, 0, 0]
    assert added(2, x).tolist() == added.reference(2, x).tolist() == [0, 0, 6, 0]
    first = compiled(text.format("Y(i) = 0.0 Y(p) +=! p >= 0 ? X(i) : 0.0"), "cpu")
    for run in (first, first.reference):
        with pytest.raises(TCError, match=r"bounds|range|axis"):
            run(-1, x)


def test_affine_positions_are_checked_where_conditions_on_indices_hold() -> None:
    text = """def f(float(N) X, float(M) C) -> (float(N) Y) {{
      Y(i+1) +=! {} ? X(i) : 0.0 where i in 0:N
    }}"""
    inside = compiled(text.format("i + 1 < N"), "cpu")
    x, c = np.arange(4, dtype="f4"), np.zeros(4, "f4")
    assert inside(x, c).tolist() == inside.reference(x, c).tolist() == [0, 0, 1, 2]
    outside = text.format("C(i) > 0").replace("float(M)", "float(N)")
    for run in (compiled(outside, "cpu"), compiled(outside, "cpu").reference):
        with pytest.raises(TCError, match="out of range"):
            run(x, c)


@pytest.mark.parametrize("name", TEXTS)
def test_in_a_batch(name: str) -> None:
    kernel = compiled(text_of(name), "cpu")
    cases = [drawn((3, 4, 5, 2), fill)[0] for fill in (-1, -100)]
    cases[1][0] = np.roll(cases[1][0], 1, 0)
    cases[1][1] = np.roll(cases[1][1], 1, 0)
    together = [np.stack(x) for x in zip(*cases)]
    got = kernel.batched()(*together, sizes={"V": 5})
    for k, arrays in enumerate(cases):
        np.testing.assert_array_equal(got[k], kernel.reference(*arrays, sizes={"V": 5}))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "statement",
    [
        "H(at(2)) += X(k) where b in 0:B, k in min(2, b):B - 1",
        "for b in B-1 { H(at(b)) += X(k) where k in off(b):off(b+1) }",
        "for b in B-1 { H(at(b)) += X(k) * X(p) where k in off(b):off(b+1), p in k/2:k+1 }",
        "for b in B-1 { H(at(b)) += at(b) > 1 ? X(k) : 0 where k in off(b):off(b+1) }",
    ],
)
def test_positions_behind_ranges_that_use_others(target: str, statement: str) -> None:
    """Whether there are points is said in front of a position, by what is known there."""
    text = f"""def f(int32(B) at, int32(B) off, int32(N) X) -> (int32(4) H) {{
      H(i) = 0 where i in 0:4
      {statement}
    }}"""
    kernel = compiled(text, target)
    x = np.arange(1, 7, dtype="i4")
    for at in ([1, 3, 2, 0], [1, 3, 2, 2]):
        arrays = np.array(at, "i4"), np.array([0, 2, 2, 5], "i4"), x
        np.testing.assert_array_equal(kernel(*arrays), kernel.reference(*arrays))
