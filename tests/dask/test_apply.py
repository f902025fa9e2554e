# SPDX-License-Identifier: Apache-2.0
"""Kernels on chunks: which blocks come of a text, and that they are right."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import tcsym as tc

da = pytest.importorskip("dask.array", reason="dask is not installed")
import cloudpickle  # noqa: E402  # comes with Dask
import dask  # noqa: E402

from tcsym.dask import apply, task  # noqa: E402
from tests.fuzz.chunks import interpreted, tried  # noqa: E402
from tests.fuzz.generate import random_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tcsym.TCWarning")


@pytest.fixture(autouse=True)
def in_order() -> Any:
    with dask.config.set(scheduler="sync"):
        yield


def drawn(kernel: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Inputs of small integers, so that sums are exact in any order."""
    rng = np.random.default_rng(0)
    shapes = {
        t.name: tuple(sizes.get(str(e), e.constant) for e in t.shape) for t in kernel.program.inputs
    }
    types = {t.name: t.dtype.numpy for t in kernel.program.inputs}
    return {n: rng.integers(0, 5, shape).astype(types[n]) for n, shape in shapes.items()}


def same_by_blocks(
    text: str, sizes: Mapping[str, int], chunks: Mapping[str, Any], *, exact: bool = True
) -> list[Any]:
    """The chunks of all results, which are those of the whole."""
    kernel = tc.define(text)
    kernel = kernel[list(kernel)[-1]]
    given = drawn(kernel, sizes)
    free = {n: sizes[n] for n in kernel.program.free_sizes} or None
    lazy = apply(
        kernel,
        **{n: da.from_array(x, chunks=chunks[n]) if n in chunks else x for n, x in given.items()},
        sizes=free,
    )
    want = kernel.reference(**given, sizes=free)
    each = [(lazy, want)] if len(kernel.program.outputs) == 1 else list(zip(lazy, want))
    for x, y in each:
        got = x.compute()
        assert (got.shape, got.dtype) == (x.shape, x.dtype) == (y.shape, y.dtype)
        if exact:
            assert np.array_equal(got, y)
        else:
            assert np.allclose(got, y, atol=1e-5)
    return [x.chunks for x, _ in each]


CUT = {
    "left indices make blocks": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        {"M": 5, "K": 4, "N": 6},
        {"A": (2, -1), "B": (-1, (4, 2))},
        [((2, 2, 1), (4, 2))],
    ),
    "a sum is a tree of parts": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        {"M": 5, "K": 40, "N": 6},
        {"A": (2, 3), "B": (7, -1)},
        [((2, 2, 1), (6,))],
    ),
    "other reductions too": (
        "def f(int8(N) X, bool(N) b) -> (s, p, low, high, both) {"
        " s +=! int8(X(i))  p *=! X(i)  low min=! X(i)  high max=! X(i)  both *=! b(i) }",
        {"N": 11},
        {"X": 4, "b": 3},
        [(), (), (), (), ()],
    ),
    "halves are added as floats": (
        "def f(half(N,K) X) -> (half(N) Y) { Y(i) +=! X(i,k) }",
        {"N": 3, "K": 9},
        {"X": (2, 2)},
        [((2, 1),)],
    ),
    "windows overlap": (
        "def f(float(N) X, float(K) W) -> (Y) { Y(i) +=! X(i+k) * W(k) }",
        {"N": 12, "K": 3},
        {"X": 4},
        [((4, 4, 2),)],
    ),
    "windows with strides": (
        "def f(float(N) X) -> (Y) { Y(i) max=! X(2*i+k) where k in 0:3 }",
        {"N": 21},
        {"X": 7},
        [((4, 3, 3),)],
    ),
    "windows of windows": (
        "def f(float(N) X) -> (Z) { Y(i) = X(i) + X(i+1)  Z(i) = Y(i) * Y(i+2) }",
        {"N": 12},
        {"X": 5},
        [((5, 4),)],
    ),
    "padding is at the ends only": (
        "def f(float(N) X, float(K) W) -> (Y) {"
        " Y(i) +=! (i+k-K/2 >= 0 && i+k-K/2 < N ? X(i+k-K/2) : 0.0) * W(k) where i in 0:N }",
        {"N": 10, "K": 5},
        {"X": 3},
        [((3, 3, 3, 1),)],
    ),
    "indices have their values": (
        "def f(float(N) X, float(3) w) -> (Y) { Y(i) = X(i) * i + N * w(i % 3) }",
        {"N": 10},
        {"X": 4},
        [((4, 4, 2),)],
    ),
    "results of different lengths": (
        "def f(float(N) X) -> (P, Q) { P(i) = X(i)  Q(i) = X(i+2) - X(i) }",
        {"N": 9},
        {"X": 4},
        [((4, 4, 1),), ((4, 3, 0),)],
    ),
    "both dimensions of a square": (
        "def f(float(N,N) X) -> (Y) { Y(i,j) = 2 * X(i,j) }",
        {"N": 5},
        {"X": (2, 3)},
        [((2, 2, 1), (3, 2))],
    ),
    "what needs a whole sum waits for it": (
        "def f(float(N,D) X) -> (Y) { s(n) +=! X(n,d)  Y(n,d) = X(n,d) - s(n) }",
        {"N": 3, "D": 9},
        {"X": (2, 4)},
        [((2, 1), (4, 4, 1))],
    ),
    "sums that go on": (
        "def f(float(N,K) X, float(N) b) -> (Y) { Y(n) = b(n)  Y(n) += X(n,k) }",
        {"N": 4, "K": 9},
        {"X": (3, 4)},
        [((3, 1),)],
    ),
    "recurrences keep what does not move": (
        "def f(float(T,B) X) -> (float(T+1,B) h) {"
        " h(0,b) = 0.0 where b in 0:B  for t in T { h(t+1,b) = h(t,b) + X(t,b) } }",
        {"T": 3, "B": 5},
        {"X": (2, 2)},
        [((4,), (2, 2, 1))],
    ),
    "tables are whole": (
        "def f(float(E,D) table, int32(N) at) -> (Y) { Y(n,d) = table(at(n), d) }",
        {"E": 5, "D": 4, "N": 6},
        {"table": (2, 3), "at": 4},
        [((4, 2), (3, 1))],
    ),
    "scatter adds parts": (
        "def f(int32(N) bin, float(N) w) -> (float(P) H) { H(bin(i)) +=! w(i) }",
        {"N": 20, "P": 6},
        {"bin": 7, "w": 7},
        [((6,),)],
    ),
    "triangles": (
        "def f(float(N) X) -> (Y) { Y(i) +=! X(k) where k in 0:i+1 }",
        {"N": 9},
        {"X": 4},
        [((9,),)],
    ),
    "neighbours over time are whole": (
        "def f(float(N) X) -> (Y) { Y(i) = X(i)"
        " for t in 0:2 { Y(i) = i > 0 ? Y(i-1) + Y(i) : Y(i) } }",
        {"N": 9},
        {"X": 4},
        [((9,),)],
    ),
    "free sizes": (
        "def f(float(N) X) -> (float(P,N) Y) { Y(p,i) = X(i) * p }",
        {"N": 9, "P": 2},
        {"X": 4},
        [((2,), (4, 4, 1))],
    ),
    "nothing": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        {"M": 0, "K": 4, "N": 3},
        {"A": (2, 2), "B": (2, 2)},
        [((0,), (2, 1))],
    ),
}


@pytest.mark.parametrize("case", CUT.values(), ids=CUT.keys())
def test_blocks(case: tuple[str, Any, Any, Any]) -> None:
    text, sizes, chunks, expected = case
    with interpreted():
        assert same_by_blocks(text, sizes, chunks) == expected


@pytest.mark.parametrize("name", ["softmax", "conv2d_same"])
def test_blocks_of_machine_code(name: str) -> None:
    sizes = dict.fromkeys(getattr(tc.library, name).program.sizes, 6) | {"KH": 3, "KW": 3}
    first = getattr(tc.library, name).program.inputs[0]
    chunks = {first.name: (4,) * len(first.shape)}
    (found, *_) = same_by_blocks(tc.library.source(name), sizes, chunks, exact=False)
    assert (4, 2) in found


def test_gradients() -> None:
    """Chunks of rows that are summed over, in both directions."""
    backward = tc.library.softmax.grad()
    given = {n: x + 0.5 for n, x in drawn(backward, {"N": 3, "D": 6}).items()}
    chunked = {n: da.from_array(x, chunks=(2, 4)) for n, x in given.items()}
    with interpreted():
        found = apply(backward, **chunked)
        assert found.chunks == ((2, 1), (4, 2))
        assert np.allclose(found.compute(), backward.reference(**given), atol=1e-4)


def test_a_call_says_what_to_do_instead() -> None:
    kernel = tc.define("def f(float(N) X) -> (Y) { Y(i) = 2 * X(i) }").f
    with pytest.raises(tc.TCTypeError, match="an Array of dask") as caught:
        kernel(da.ones(3, dtype="float32", chunks=2))
    assert "tcsym.dask.apply" in caught.value.hint


def test_a_block_is_a_call_of_the_kernel_where_that_can_be() -> None:
    """The same program at other sizes: what was compiled and tuned for it serves blocks."""
    for name in ("matmul", "conv2d", "max_pool_3x3s2"):
        seen = []
        kernel = getattr(tc.library, name)
        sizes = dict.fromkeys(kernel.program.sizes, 12) | {"KH": 3, "KW": 3}
        given = [
            da.from_array(x, chunks=(5,) + (-1,) * (x.ndim - 1))
            for x in drawn(kernel, sizes).values()
        ][:1]
        given += [*drawn(kernel, sizes).values()][1:]
        with patch("tcsym.dask.apply.made", lambda program, _, seen=seen: seen.append(program)):
            apply(kernel, *given)
        assert [p.canonical for p in seen] == [kernel.program.canonical]


def test_a_kernel_is_made_once_and_travels() -> None:
    relu = tc.define("def relu(float(N) X) -> (Y) { Y(i) = max(X(i), 0.0) }")
    lazy = apply(relu, da.arange(-8, 8, dtype="float32", chunks=4))
    task._kernel_of.cache_clear()
    again = cloudpickle.loads(cloudpickle.dumps(lazy))
    with dask.config.set(scheduler="threads"):
        assert np.array_equal(again.compute(), np.maximum(np.arange(-8, 8), 0))
    assert np.array_equal(lazy.compute(), again.compute(scheduler="sync"))
    assert task._kernel_of.cache_info().misses == 1


@pytest.mark.slow
def test_processes() -> None:
    x = da.random.default_rng(0).random((9, 8), chunks=(3, 4)).astype("float32")
    y = apply(tc.library.softmax, x)
    assert np.allclose(y.compute(scheduler="processes"), y.compute(), atol=1e-6)


def test_errors_of_calls_come_at_once() -> None:
    mm = tc.library.matmul
    a = da.ones((4, 6), chunks=2, dtype="float32")
    with pytest.raises(tc.TCTypeError, match="`B` has type float64"):
        apply(mm, a, da.ones((6, 4), chunks=2))
    with pytest.raises(tc.SizeError, match="`B` has size 5 on axis 0 but `K` is 6"):
        apply(mm, a, da.ones((5, 4), chunks=2, dtype="float32"))
    with pytest.raises(tc.SizeError, match=r"not known before it is computed[^$]*compute_chunk"):
        apply(mm, a[a[:, 0] > 0], a.T)
    with pytest.raises(tc.SizeError, match="free size `P` is missing"):
        apply(tc.define("def f(float(N) X) -> (float(P) Y) { Y(p) +=! X(i) }"), a[0])


def test_what_is_updated_is_a_result() -> None:
    step = tc.define("def step(inout float(N) X, float(N) g) -> () { X(i) = X(i) - g(i) }")
    x = da.ones(5, chunks=2, dtype="float32")
    with interpreted():
        assert (apply(step, x, 2 * x).compute() == -1).all() and (x.compute() == 1).all()


def test_errors_of_data_come_when_it_is_computed() -> None:
    take = tc.define("def take(float(N) X, int32(M) at) -> (Y) { Y(m) = X(at(m)) }")
    lazy = apply(take, np.ones(3, np.float32), da.from_array(np.array([0, 1, 2, 3], "i4"), 2))
    assert (lazy.blocks[0].compute() == 1).all()
    with pytest.raises(tc.BoundsError, match="index out of range in `X`"):
        lazy.compute()


def test_random_programs() -> None:
    for seed in range(5):
        case = random_program(random.Random(seed), seed % 3)
        wrong = [s for s in tried(case, compiles=False) if s.startswith("wrong")]
        assert not wrong, case.source + wrong[0]
