# SPDX-License-Identifier: Apache-2.0
"""Arguments of a call: every sentence of LANGUAGE E11 and E12, with kind, place and message."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsym as tc
from tcsym.types import DType
from tests.call_errors import ADD, F32, failing, ones

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
FREE = "def pad(float(N) A) -> (float(P) O) { O(i) = i < N ? A(i) : 0.0 }"
TWO = "def f(float(N) A) -> (O) { O(i) = A(i) }\ndef g(float(M) A) -> (O) { O(i) = A(i) }"


# ---- unknown, surplus, repeated arguments


def test_unknown_keyword() -> None:
    error = failing(ADD, "def |add", ones(3), ones(3), a=ones(3), kind="call")
    assert "`a`" in error.message and "did you mean" not in error.message
    assert "B" in failing(ADD, "def |add", ones(3), BB=ones(3), kind="call").hint


def test_too_many_arguments() -> None:
    error = failing(ADD, "def |add", ones(3), ones(3), ones(3), kind="call")
    assert "takes 2 arguments but 3 were given" in error.message


def test_given_twice() -> None:
    assert "`A`" in failing(ADD, "def |add", ones(3), A=ones(3), kind="call").message


def test_surplus_comes_before_everything() -> None:
    failing(ADD, "def |add", None, Z=1, sizes=3, kind="call")


# ---- sizes=


@pytest.mark.parametrize(
    "sizes", [{"N": 2.0}, {"N": -1}, {"N": True}, {"N": "3"}, {"N": None}, {"N": 1 << 63}, [3], 7]
)
def test_sizes_must_be_a_mapping_to_integers(sizes: Any) -> None:
    failing(ADD, "def |add", ones(3), ones(3), sizes=sizes, kind="size")


def test_unknown_size_name() -> None:
    error = failing(ADD, "def |add", ones(3), ones(3), sizes={"M": 3}, kind="size")
    assert "`M`" in error.message


def test_sizes_come_before_parameters() -> None:
    failing(ADD, "def |add", [1.0], sizes={"N": -1}, kind="size")


def test_numpy_integers_are_integers() -> None:
    f = tc.define(ADD)
    assert f.reference(ones(3), ones(3), sizes={"N": np.uint8(3)}).shape == (3,)


def test_sizes_of_another_def_are_allowed() -> None:
    m = tc.define(TWO)
    assert m.f.reference(ones(3), sizes={"M": 7}).shape == (3,)
    assert m.g.reference(ones(3), sizes={"M": 3, "N": 9}).shape == (3,)


def test_repeated_size_must_agree() -> None:
    error = failing(ADD, "float(|N) A", ones(3), ones(3), sizes={"N": 4}, kind="size")
    assert "`A` has size 3 on axis 0 but `N` is 4 from `sizes=`" in error.message


def test_missing_free_size() -> None:
    error = failing(FREE, "def |pad", ones(3), kind="size")
    assert "`P`" in error.message and "sizes=" in error.hint
    assert tc.define(FREE).reference(ones(3), sizes={"P": 5}).tolist() == [1, 1, 1, 0, 0]


# ---- sizes= at define


@pytest.mark.parametrize("sizes", [{"Q": 1}, {"N": 1.5}, {"N": -1}, {"N": True}, [1], "N"])
def test_define_refuses_sizes(sizes: Any) -> None:
    with pytest.raises(tc.SizeError) as caught:
        tc.define(TWO, sizes=sizes)
    assert (caught.value.line, caught.value.column) == (1, 5)


def test_fixed_size_applies_to_every_def() -> None:
    source = TWO.replace("M", "N")
    m = tc.define(source, sizes={"N": np.int32(3)})
    for name in ("f", "g"):
        assert m[name].reference(ones(3)).shape == (3,)
        with pytest.raises(tc.SizeError, match="fixed at `define`"):
            m[name].reference(ones(4))
        with pytest.raises(tc.SizeError, match="`N` is 4 in `sizes=` but 3 was fixed"):
            m[name].reference(ones(3), sizes={"N": 4})


@pytest.mark.parametrize(
    ("dim", "bad", "text"),
    [
        (tc.Dim(1, 4), 5, "from 1 to 4"),
        (tc.Dim(2), 1, ">= 2"),
        (tc.Dim(multiple_of=4), 6, "multiple of 4"),
    ],
)
def test_dim_is_checked(dim: tc.Dim, bad: int, text: str) -> None:
    with_dim = {"sizes": {"N": dim}}
    error = failing(ADD, "float(|N) A", ones(bad), ones(bad), kind="size", define_with=with_dim)
    assert text in error.message
    error = failing(ADD, "def |add", sizes={"N": bad}, kind="size", define_with=with_dim)
    assert text in error.message
    assert tc.define(ADD, sizes={"N": dim}).reference(ones(4), ones(4)).shape == (4,)


@pytest.mark.parametrize("args", [(-1,), (3, 2), (0, None, 0), (3, 5, 16), (1.5,), (True,)])
def test_dim_must_make_sense(args: Any) -> None:
    with pytest.raises(tc.SizeError):
        tc.Dim(*args)


# ---- parameters in order: missing, rank, type, sizes


def test_missing_argument_at_its_turn() -> None:
    error = failing(ADD, "float(N) |B", ones(3), kind="size")
    assert "`B`" in error.message and isinstance(error, TypeError)
    failing(ADD, "float(N) |A", ones(3, 1), kind="rank")
    failing(ADD, "float(N) |A", B=ones(3), kind="size")


def test_rank_before_type() -> None:
    error = failing(ADD, "float(N) |B", ones(3), ones(3, 1, dtype=np.int32), kind="rank")
    assert "`B` has 2 dimensions, expected 1 dimension" in error.message


def test_type_before_sizes() -> None:
    error = failing(ADD, "float(N) |B", ones(3), ones(4, dtype=np.int32), kind="type")
    assert "int32" in error.message and "float32" in error.message and "astype" in error.hint


def test_first_parameter_first() -> None:
    failing(ADD, "float(N) |A", [1.0], 3, kind="type")


def test_size_contradiction_names_both_sides() -> None:
    error = failing(MM, "float(|K,N) B", ones(2, 3), ones(4, 5), kind="size")
    assert "mm: `B` has size 4 on axis 0 but `K` is 3 from axis 1 of `A`" in error.message
    square = "def f(float(N,N) A) -> (t) { t +=! A(i,i) }"
    error = failing(square, "(float(N,|N)", ones(2, 3), kind="size")
    assert "`A` has size 3 on axis 1 but `N` is 2 from axis 0 of `A`" in error.message


def test_literal_dimension() -> None:
    source = "def f(float(N,4) A, float(4) B) -> (O) { O(i) +=! A(i,j) * B(j) }"
    error = failing(source, "float(N,|4) A", ones(2, 3), ones(4), kind="size")
    assert "`A` has size 3 on axis 1 but 4 is declared" in error.message
    failing(source, "float(|4) B", ones(2, 4), ones(3), kind="size")
    assert tc.define(source).reference(ones(2, 4), ones(4)).tolist() == [4, 4]


def test_preconditions_come_last() -> None:
    source = "def f(float(N) A, float(M) B) -> (O) { O(i) = A(i) + B(i+1) where i in 0:N }"
    failing(source, "+ |B(i+1)", ones(3), ones(3), kind="bounds")
    failing(source, "float(M) |B", ones(3), kind="size")


def test_negative_extent() -> None:
    source = "def c(float(N) X, float(K) F) -> (Y) { Y(i) +=! X(i + k) * F(k) }"
    error = failing(source, "{ |Y(i)", ones(2), ones(5), kind="size")
    assert "negative" in error.message


@pytest.mark.parametrize(
    "x",
    [
        [1.0, 2.0],
        (1.0, 2.0),
        None,
        "text",
        {1: 2},
        {1.0},
        object(),
        1.0,
        np.float32(1),
        range(3),
        np.ones(3, ">f4"),
        np.ones(3, complex),
        np.ones(3, object),
        np.ones(3, [("x", "f4")]),
        np.array(["a"]),
        np.array(["2020-01-01"], "M8[D]"),
        np.ma.masked_array(np.ones(3, F32), [0, 1, 0]),
        np.ones(3, np.longdouble),
    ],
    ids=lambda x: type(x).__name__ + str(getattr(x, "dtype", "")),
)
def test_no_arrays_and_foreign_types(x: Any) -> None:
    failing(ADD, "float(N) |A", x, ones(3), kind="type")


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("kind", [list, tuple])
def test_what_a_list_should_be_is_taken(dtype: DType, kind: Any) -> None:
    """One hint mends it: an array of another type would be the next error."""
    source = f"def f({dtype.value}(N) A) -> (O) {{ O(i) = A(i) }}"
    error = failing(source, "(N) |A", kind([1, 0]), kind="type")
    assert error.hint.startswith("convert it first: `numpy.array(A, ")
    names = {"numpy": np, "ml_dtypes": ml_dtypes, "A": kind([1, 0])}
    array = eval(error.hint.split("`")[1], names)
    assert tc.define(source).reference(array).tolist() == [1, 0]


def test_no_part_of_complex_numbers_is_dropped() -> None:
    for x in (np.ones(3, complex), np.ones(3, np.complex64)):
        error = failing(ADD, "float(N) |A", x, ones(3), kind="type")
        real, imag = error.hint.split("`")[1::2]
        parts = [eval(part, {"A": x}) for part in (real, imag)]
        assert tc.define(ADD).reference(*parts).tolist() == [1, 1, 1]


def test_big_endian_buffer_is_refused() -> None:
    failing(ADD, "float(N) |A", memoryview(np.ones(3, ">f4")), ones(3), kind="type")


# ---- names


def test_reserved_keywords_are_positional_only() -> None:
    source = (
        "def f(float(N) sizes, float(N) out, float(N) threads) -> (O) "
        "{ O(i) = sizes(i) - out(i) + threads(i) }"
    )
    f = tc.define(source)
    assert f.reference(ones(2), ones(2), ones(2)).tolist() == [1, 1]
    failing(source, "def |f", ones(2), ones(2), threads=ones(2), sizes=ones(2), kind="size")


def test_any_other_name_works_by_keyword() -> None:
    f = tc.define("def f(float(N) self, float(N) s, float(N) args) -> (O) { O(i) = self(i) }")
    assert f.reference(args=ones(2), s=ones(2), self=ones(2)).tolist() == [1, 1]
