# SPDX-License-Identifier: Apache-2.0
"""Size parameters at calls: by position and by name, natively and in Python (LANGUAGE F1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import TCError
from tcsym.runtime.background import settle
from tests.entered import entered

TEXT = "def f(float(N) X, size S, float(K) W) -> (Y) { Y(i) +=! X(S*i + k) * W(k) }"
X, W = np.arange(20, dtype=np.float32), np.array([1, 10], np.float32)


def expected(step: int) -> Any:
    return np.convolve(X, W[::-1], "valid")[::step]


@pytest.fixture(scope="module")
def kernel() -> tcsym.Kernel:
    return tcsym.define(TEXT, strategy="symbolic").f


def test_ways_to_give_a_size(kernel: tcsym.Kernel) -> None:
    out = np.empty(10, np.float32)
    for _ in range(2):  # the second time, natively
        np.testing.assert_array_equal(kernel(X, 3, W), expected(3))
        np.testing.assert_array_equal(kernel(X, np.uint8(2), W), expected(2))
        np.testing.assert_array_equal(kernel(X, W=W, S=np.int64(5)), expected(5))
        np.testing.assert_array_equal(kernel(X, W=W, sizes={"S": 4}), expected(4))
        np.testing.assert_array_equal(kernel(X, 4, W, sizes={"S": 4, "N": 20}), expected(4))
        assert kernel(X, 2, W, out=out) is out and (out == expected(2)).all()
        settle()
    np.testing.assert_array_equal(kernel.reference(X, 3, W), expected(3))
    entered(lambda: kernel(X, 3, W))
    entered(lambda: kernel(X, W=W, S=np.int16(3)))
    entered(lambda: kernel(X, W=W, sizes={"S": 3}))


@pytest.mark.parametrize(
    ("args", "named", "kind", "column", "words"),
    [
        ((X, 2.0, W), {}, "type", 24, "`S` is 2.0, expected an integer"),
        ((X, True, W), {}, "type", 24, "True"),
        ((X, np.array(2), W), {}, "type", 24, "a ndarray"),
        ((X, None, W), {}, "type", 24, "NoneType"),
        ((X, -1, W), {}, "size", 24, "`S` is -1"),
        ((X, 2**63, W), {}, "size", 24, "2**63 - 1"),
        ((X, 0, W), {}, "size", 24, "must be positive"),
        ((X,), {"W": W}, "size", 24, "argument `S` is missing"),
        ((X, W), {}, "type", 24, "a ndarray"),
        ((X, 2, W), {"sizes": {"S": 3}}, "size", 24, "2, but 3 in `sizes=`"),
        ((X, 2, W), {"S": 2}, "call", 5, "given twice"),
        ((X, 2, W, 1), {}, "call", 5, "takes 3 arguments but 4"),
        ((X, W), {"T": 3}, "call", 5, "size S"),
    ],
)
def test_errors(
    kernel: tcsym.Kernel, args: Any, named: Any, kind: str, column: int, words: str
) -> None:
    with pytest.raises(TCError) as e:
        kernel(*args, **named)
    assert (e.value.kind, e.value.line, e.value.column) == (kind, 1, column)
    assert words in str(e.value)


def test_a_fixed_size_keeps_its_position() -> None:
    fixed = tcsym.define(TEXT, sizes={"S": 2}).f
    for _ in range(2):
        for got in (fixed(X, 2, W), fixed(X, W=W), fixed(X, W=W, sizes={"S": 2})):
            np.testing.assert_array_equal(got, expected(2))
        settle()
    entered(lambda: fixed(X, 2, W))
    entered(lambda: fixed(X, W=W))
    with pytest.raises(TCError, match="`S` is 3, but 2 fixed at `define`") as e:
        fixed(X, 3, W)
    assert (e.value.kind, e.value.column) == ("size", 24)
    with pytest.raises(TCError, match="`S` is a ndarray"):
        fixed(X, W)
    bounded = tcsym.define(TEXT, sizes={"S": tcsym.Dim(1, 4)}).f
    with pytest.raises(TCError, match="declared to be from 1 to 4") as e:
        bounded(X, 5, W)
    assert e.value.column == 24


def test_what_is_told_of_it(kernel: tcsym.Kernel) -> None:
    assert repr(kernel.signature).startswith("f(float32(N) X, size S, float32(K) W) -> ")
    assert kernel.signature.sizes == {"S": 1} and "S" in kernel.sizes
    made = kernel.compile((20,), 2, (2,))
    np.testing.assert_array_equal(made(X, 2, W), expected(2))
    assert kernel.output_shapes(N=20, S=3, K=2) == {"Y": (7,)}
    assert kernel.output_shapes((20,), 3, (2,)) == {"Y": (7,)}


def test_a_text_of_sizes_alone() -> None:
    table = tcsym.define("def f(size N, size M) -> (int32(N,M) Y) { Y(i,j) = M*i + j }").f
    np.testing.assert_array_equal(table(3, 5), np.arange(15).reshape(3, 5))
    np.testing.assert_array_equal(table(M=2, N=np.int8(7)), np.arange(14).reshape(7, 2))
    assert table(0, 4).shape == (0, 4)


def test_derived_kernels_take_it(kernel: tcsym.Kernel) -> None:
    gradient = kernel.grad("X")
    assert "float(P) dY, size S)" in gradient.source
    given = {"X": X, "W": W, "dY": np.ones(7, np.float32), "S": 3}
    got = gradient(**{p.name: given[p.name] for p in gradient.program.parameters})
    want = np.zeros(20)
    for i in range(7):
        want[3 * i : 3 * i + 2] += W
    np.testing.assert_array_equal(got, want)
    many = kernel.batched(["X"])
    np.testing.assert_array_equal(many(np.stack([X, 2 * X]), 3, W)[1], 2 * expected(3))


def test_traces_hand_sizes_on(kernel: tcsym.Kernel) -> None:
    twice = tcsym.trace(lambda x, n, w: kernel(kernel(x, n, w), 2, w))
    assert "def traced(float32(x_0) x, size n, float32(w_0) w)" in twice.source
    np.testing.assert_array_equal(twice(X, 3, W), kernel(expected(3), 2, W))
    with pytest.raises(TCError, match="no integer >= 0"):
        tcsym.trace(lambda x, w: kernel(x, 2.5, w))
