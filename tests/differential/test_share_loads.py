# SPDX-License-Identifier: Apache-2.0
"""Stencils and windows without weights: pairs of rows and whole blocks, at their borders."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tcsym

PROGRAMS = {
    "cross": """def f({0}(N,M) A) -> (O) {{
  O(i,j) = A(i,j+1) + A(i+2,j+1) + A(i+1,j) + A(i+1,j+2) - A(i+1,j+1)
}}""",
    "planes": """def f({0}(2,N,M) A) -> (O) {{
  O(c,i,j) = A(c,i,j) - A(c,i+1,j) + A(1-c,i+2,j+2) - A(1-c,i+1,j+2)
}}""",
    "maxima": """def f({0}(N,M) A) -> (O) {{
  O(h,w) max=! A(2*h+p,2*w+q) where p in 0:3, q in 0:3
}}""",
    "sums": "def f({0}(2,N,M) A) -> (O) {{ O(c,h,w) +=! A(c,h+p,w+q) where p in 0:3, q in 0:3 }}",
    "blocks": """def f({0}(N,M) A) -> (T, O) {{
  T(h,w) min=! A(h+p,3*w+q) where p in 0:2, q in 0:5
  O(h,w) = T(h,w) + T(h,w)
}}""",
    "means": """def f(uint8(N,M) A) -> (T, O) {{
  T(h,w) max=! A(h+p,w+q) where p in 0:3, q in 0:3
  O(h,w) = double(T(h,w)) / 2.0
}}""",
    "cubes": """def f({0}(3,N,M) A) -> (O) {{
  O(d,h,w) +=! A(d+r,h+p,w+q) where r in 0:2, p in 0:3, q in 0:3
}}""",
}
ROWS = (3, 4, 5, 6, 7, 9, 10, 15)
COLUMNS = (5, 9, 10, 11, 17, 18, 19, 34, 70)
DTYPES = {"float": "f4", "double": "f8", "half": "f2", "int32": "i4", "uint8": "u1"}


def check(kernel: tcsym.Module, dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(shape))
    a = rng.integers(0, 7, shape).astype(dtype)
    got, expected = kernel(a), kernel.reference(a)
    pairs = zip(got, expected) if isinstance(got, tuple) else [(got, expected)]
    for x, y in pairs:
        np.testing.assert_array_equal(x, y, err_msg=str(shape))


def shapes(name: str) -> list[tuple[int, ...]]:
    planes = {"planes": (2,), "sums": (2,), "cubes": (3,)}.get(name, ())
    return [(*planes, n, m) for n, m in itertools.product(ROWS, COLUMNS)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:novector"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_border(name: str, target: str) -> None:
    kernel = tcsym.define(PROGRAMS[name].format("float"), target=target)
    for shape in shapes(name):
        check(kernel, "u1" if name == "means" else "f4", shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cross", "maxima", "sums"])
def test_every_type(name: str, dtype: str) -> None:
    kernel = tcsym.define(PROGRAMS[name].format(dtype))
    for shape in shapes(name)[::5]:
        check(kernel, DTYPES[dtype], shape)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("bind", ["before", "after"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_binding(name: str, bind: str) -> None:
    for shape in shapes(name)[::24]:
        sizes = {"N": shape[-2], "M": shape[-1]}
        kernel = tcsym.define(
            PROGRAMS[name].format("float"), sizes=sizes, options=tcsym.Options(bind=bind)
        )
        check(kernel, "u1" if name == "means" else "f4", shape)


@pytest.mark.parametrize("shape", [(0, 0), (2, 9), (2, 40), (0, 30), (30, 2), (2, 2)])
@pytest.mark.parametrize("name", ["cross", "maxima", "sums"])
def test_no_rows(name: str, shape: tuple[int, ...]) -> None:
    """Programs that define nothing at a size say so in both ways of running them."""
    kernel = tcsym.define(PROGRAMS[name].format("float"))
    a = np.ones((2, *shape) if name == "sums" else shape, "f4")
    try:
        expected = kernel.reference(a)
    except tcsym.TCError as e:
        with pytest.raises(type(e)):
            kernel(a)
    else:
        np.testing.assert_array_equal(kernel(a), expected)


def test_threads_share_blocks_that_overlap() -> None:
    kernel = tcsym.define(PROGRAMS["maxima"].format("float"))
    a = np.random.default_rng(0).random((1999, 2001), "f4")
    expected = kernel(a, threads=1)
    for threads in (2, 3):
        np.testing.assert_array_equal(kernel(a, threads=threads), expected)


def test_nans_stay() -> None:
    kernel = tcsym.define(PROGRAMS["maxima"].format("float"))
    a = np.random.default_rng(0).random((23, 41), "f4")
    for at in itertools.product((0, 1, 8, 22), (0, 7, 15, 16, 40)):
        b = a.copy()
        b[at] = np.nan
        np.testing.assert_array_equal(kernel(b), kernel.reference(b), err_msg=str(at))
