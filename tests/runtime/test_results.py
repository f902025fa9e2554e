# SPDX-License-Identifier: Apache-2.0
"""`out=` and results: every sentence of LANGUAGE E13."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime.arrays import numpy_view
from tcsym.runtime.overlap import overlap, overlaps_itself

F32 = np.float32
ONE = "def f(float(N) A) -> (O) { O(i) = A(i) + 1 }"
TWO = "def g(float(N) A) -> (double S, P) { P(i) = A(i) + 1  S +=! A(i) }"
GRID = "def h(float(M,N) A) -> (O) { O(i,j) = A(i,j) + 1 }"
pytestmark = pytest.mark.usefixtures("interpreted")


def refused(source: str, column: int, kind: str, *args: Any, out: Any) -> tc.TCError:
    with pytest.raises(tc.TCError) as caught:
        tc.define(source)(*args, out=out)
    assert (caught.value.kind, caught.value.column) == (kind, column), str(caught.value)
    return caught.value


A = np.arange(3, dtype=F32)
OUTPUT = ONE.index("O)") + 1
S, P = TWO.index("S,") + 1, TWO.index("P)") + 1


# ---- what is accepted


def test_array_for_one_output_comes_back() -> None:
    out = np.empty(3, F32)
    assert tc.define(ONE)(A, out=out) is out and out.tolist() == [1, 2, 3]


@pytest.mark.parametrize("wrap", [lambda o: (o,), lambda o: {"O": o}])
def test_tuple_and_mapping_for_one_output(wrap: Any) -> None:
    out = np.empty(3, F32)
    assert tc.define(ONE)(A, out=wrap(out)) is out and out.tolist() == [1, 2, 3]


def test_tuple_in_declaration_order() -> None:
    s, p = np.empty(()), np.empty(3, F32)
    results = tc.define(TWO)(A, out=(s, p))
    assert results.S is s and results.P is p and s[()] == 3 and p.tolist() == [1, 2, 3]


def test_none_or_absence_means_allocate() -> None:
    g, p = tc.define(TWO), np.empty(3, F32)
    for out in ((None, p), {"P": p}, {"S": None, "P": p}):
        p[:] = 0
        results = g(A, out=out)
        assert results.P is p and results.S[()] == 3 and p.tolist() == [1, 2, 3]
    assert g(A, out={}).P.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "out",
    [
        np.zeros(9, F32)[::3],
        np.zeros(3, F32)[::-1],
        np.zeros((3, 2), F32)[:, 1],
        np.zeros(3, [("c", "u1"), ("x", "f4")])["x"],
        np.frombuffer(bytearray(13), F32, 3, 1),
        np.zeros(3, F32).view(np.matrix)[0].A1,
    ],
    ids=lambda o: str(o.strides),
)
def test_any_strides(out: Any) -> None:
    assert tc.define(ONE)(A, out=out) is out and out.tolist() == [1, 2, 3]


def test_stride_zero_without_self_overlap() -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(3, F32), (1, 3), (0, 4))
    assert tc.define(GRID)(A[None], out=out).tolist() == [[1, 2, 3]]


def test_interleaved_with_an_input_is_no_overlap() -> None:
    both = np.zeros(6, F32)
    both[::2] = A
    assert tc.define(ONE)(both[::2], out=both[1::2]).tolist() == [1, 2, 3]
    assert both.tolist() == [0, 1, 1, 2, 2, 3]


def test_writable_buffer() -> None:
    out = bytearray(3)
    f = tc.define("def f(uint8(N) A) -> (O) { O(i) = A(i) }")
    assert f(b"abc", out=out) is out and out == b"abc"


# ---- what is refused, and where


def test_wrong_rank() -> None:
    error = refused(ONE, OUTPUT, "rank", A, out=np.empty((3, 1), F32))
    assert "2 dimensions" in error.message


@pytest.mark.parametrize(
    "out", [np.empty(3), np.empty(3, ">f4"), [0.0] * 3, np.empty(3, np.int32), object()]
)
def test_wrong_type(out: Any) -> None:
    refused(ONE, OUTPUT, "type", A, out=out)


def test_scalar_is_no_output() -> None:
    source = "def f(float a) -> (b) { b = a }"
    refused(source, source.index("b)") + 1, "type", 1.0, out=np.float32(0))


def test_wrong_shape() -> None:
    error = refused(ONE, OUTPUT, "size", A, out=np.empty(4, F32))
    assert "(4,)" in error.message and "(3,)" in error.message


def test_read_only() -> None:
    out = np.empty(3, F32)
    out.flags.writeable = False
    assert "read-only" in refused(ONE, OUTPUT, "immutable", A, out=out).message
    refused("def f(uint8(N) A) -> (O) { O(i) = A(i) }", 23, "immutable", b"abc", out=bytes(3))


def test_self_overlap() -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(3, F32), (3,), (0,))
    assert "itself" in refused(ONE, OUTPUT, "immutable", A, out=out).message


def test_overlap_with_input() -> None:
    error = refused(ONE, OUTPUT, "immutable", A, out=A)
    assert "overlaps `A`" in error.message
    base = np.zeros(5, F32)
    refused(ONE, OUTPUT, "immutable", base[:3], out=base[2:])
    refused(ONE, OUTPUT, "immutable", base[:3], out=base[:3][::-1])


def test_overlap_with_an_input_that_is_copied() -> None:
    raw = bytearray(16)
    x = np.frombuffer(raw, F32, 3, 1)
    refused(ONE, OUTPUT, "immutable", x, out=np.frombuffer(raw, F32, 3, 4))


def test_overlap_with_another_output() -> None:
    raw = np.zeros(4)
    s = raw[:1].reshape(())
    error = refused(TWO, P, "immutable", A, out=(s, raw.view(F32)[1:4]))
    assert "overlaps `S`" in error.message
    tc.define(TWO)(A, out=(s, raw.view(F32)[2:5]))


def test_outputs_in_order() -> None:
    refused(TWO, S, "type", A, out=(np.empty((), F32), np.empty(4, F32)))
    refused(TWO, P, "size", A, out=(np.empty(()), np.empty(4, F32)))


@pytest.mark.parametrize("out", [(None,), (None, None, None), {"Q": None}, np.empty(3, F32), 3])
def test_wrong_number_or_name(out: Any) -> None:
    refused(TWO, 5, "call", A, out=out)


def test_inputs_are_checked_first() -> None:
    refused(ONE, ONE.index("A)") + 1, "type", [1.0], out=np.empty(9))


def test_nothing_is_written_when_refused() -> None:
    s = np.full((), 7.0)
    refused(TWO, P, "size", A, out=(s, np.empty(4, F32)))
    assert s[()] == 7


# ---- overlap itself


def brute_self_overlap(x: Any) -> bool:
    offsets = np.zeros(1, int)
    for extent, stride in zip(x.shape, x.strides):
        offsets = (offsets[:, None] + np.arange(extent) * stride).ravel()
    bytes_ = (offsets[:, None] + np.arange(x.itemsize)).ravel()
    return len(np.unique(bytes_)) < len(bytes_)


def test_self_overlap_is_exact() -> None:
    rng = np.random.default_rng(0)
    base = np.zeros(4000, np.int16)
    seen = set()
    for _ in range(400):
        rank = int(rng.integers(0, 4))
        shape = tuple(rng.integers(0, 5, rank).tolist())
        strides = tuple((rng.integers(-9, 10, rank) * 2).tolist())
        x = np.lib.stride_tricks.as_strided(base[2000:], shape, strides)
        seen.add(overlaps_itself(numpy_view(x)))
        assert overlaps_itself(numpy_view(x)) == brute_self_overlap(x), (shape, strides)
    assert seen == {True, False}


def test_overlap_agrees_with_numpy() -> None:
    rng = np.random.default_rng(1)
    base = np.zeros(40, F32)
    for _ in range(400):
        (a, b, s), (c, d, t) = (
            (*sorted(rng.integers(0, 40, 2)), rng.choice([-3, -1, 1, 2])) for _ in range(2)
        )
        x, y = base[a:b][::s], base[c:d][::t]
        assert overlap(numpy_view(x), numpy_view(y)) == np.shares_memory(x, y)


# ---- results


def test_several_results_are_a_named_tuple() -> None:
    results = tc.define(TWO)(A)
    s, p = results
    assert results._fields == ("S", "P") and s.dtype == np.float64 and p.dtype == F32
    assert repr(results).startswith("Results(S=")


def test_results_pickle() -> None:
    results = tc.define(TWO)(A)
    again = pickle.loads(pickle.dumps(results))
    assert again.S == 3 and again.P.tolist() == [1, 2, 3] and type(again) is type(results)


def test_outputs_with_names_python_reserves() -> None:
    source = "def f(float(N) A) -> (lambda, _x, count) { lambda(i) = A(i) _x(i) = A(i) count = 1 }"
    results = tc.define(source)(A)
    assert len(results) == 3 and results.count == 1 and results[0].tolist() == [0, 1, 2]


def test_empty_results() -> None:
    assert tc.define(ONE)(A[:0]).shape == (0,)
    assert tc.define(TWO)(A[:0]).S == 0


def test_too_large_result() -> None:
    source = "def f(float(N) A) -> (float(P,P) O) { O(i,j) = 0.0 }"
    with pytest.raises(tc.SizeError, match="too large") as caught:
        tc.define(source)(A, sizes={"P": 1 << 40})
    assert caught.value.column == source.index("O)") + 1
