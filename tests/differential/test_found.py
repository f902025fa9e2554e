# SPDX-License-Identifier: Apache-2.0
"""Programs once compiled wrongly, reduced; each must agree with the reference for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.index.values import evaluate
from tcsym.strategy import Pad
from tcsym.types import DType
from tests.differential.inputs import values
from tests.fuzz.compare import difference, outcome, tolerances
from tests.guarded import guarded

FOUND: dict[str, tuple[str, list[dict[str, int]]]] = {
    # rows side by side gave a temporary a dimension of which its reads did not know
    "copied_after_rows_side_by_side": (
        """def f(float(A,B,C) X) -> (Y) {
  m(a,b) +=! X(a,b,c)
  v(a,b) +=! (X(a,b,c) - m(a,b)) * (X(a,b,c) - m(a,b))
  N(a,b,c) = X(a,b,c) - m(a,b) + v(a,b)
  Y(a,b,c) = N(a,b,c)
}""",
        [{"A": 2, "B": 5, "C": 3}, {"A": 1, "B": 2, "C": 100}, {"A": 3, "B": 40, "C": 33}],
    ),
    # a gather's subscript reached the arithmetic of storage contraction
    "gather_from_a_contracted_temporary": (
        """def f(uint8(M) A, int32(N) P) -> (T1) {
  T0(i,j) +=! A(i) * P(j)
  T1(i,j) min=! T0(0, P(j) % 2 * 0) where i in 0:N, j in 0:N, k in 0:N
}""",
        [{"M": 2, "N": 3}, {"M": 1, "N": 0}],
    ),
    # a temporary that blocks transpose lost a dimension of two: blocks begin at 0 only
    "transposed_there_and_back": (
        """def f(float(A,2,B) X) -> (T1) {
  T0(a,b,c) = X(a,c,b)
  T1(a,c,b) = T0(a,b,c)
}""",
        [{"A": 1, "B": 2}, {"A": 3, "B": 5}, {"A": 2, "B": 70}],
    ),
    # the loops of both moves were one function, linked before the one for clipped blocks it calls
    "transposed_alike_twice": (
        """def f(int32(A,B) X) -> (T1) {
  T0(b,a) = X(a,b)
  T1(a,b) = T0(b,a)
}""",
        [{"A": 0, "B": 0}, {"A": 3, "B": 5}, {"A": 17, "B": 40}],
    ),
    # a padded copy took an axis that nothing reads for one that stands still (sizes substituted)
    "padded_copy_of_nothing": (
        """def f(float(C,W) X, float(O,C,K) F) -> (Y) {
  Y(o,x) +=! (3*x + k - 1 >= 0 ? X(c,3*x + k - 1) : 1.0) * F(o,c,k) where x in 0:(W - K + 1)/3 + 1
}""",
        [{"C": 2, "W": 1, "O": 2, "K": 3}, {"C": 1, "W": 7, "O": 2, "K": 3}],
    ),
    # a store before a parallel loop was dropped: its tasks find the tensor by another pointer
    "tasks_read_what_was_stored_before": (
        """def f(float A, float(M) E) -> (T0, T1) {
  T0 = 1.0
  T1(i,j) +=! T0 * E(i) where j in 0:2, k in 0:M
  T0 = A
}""",
        [{"M": 1}, {"M": 5}],
    ),
    # a temporary forgot the bounds that depend on a private loop, others in each part of its range
    "column_below_the_diagonal": (
        """def f(double(N,N) A) -> (double(N,N) L) {
  L(i,j) = 0.0 where i in 0:N, j in 0:N
  for j in 0:N {
    L(j,j) = sqrt(A(j,j))
    L(i,j) = i > j ? A(i,j) / L(j,j) : L(i,j)
  }
}""",
        [{"N": 1}, {"N": 5}, {"N": 9}, {"N": 17}],
    ),
    "elimination": (
        """def f(float(N,N) A) -> (float(N,N) U) {
  U(i,j) = A(i,j)
  for k in 0:N { U(i,j) = i > k && j >= k ? U(i,j) - U(i,k) / 8.0 * U(k,j) : U(i,j) }
}""",
        [{"N": 1}, {"N": 2}, {"N": 5}, {"N": 9}],
    ),
    # a dimension of constant extent 1 was dropped although masked lanes moved along it
    "dimension_of_extent_one": (
        """def f(float(K) A, float(K,K) C) -> (T2) {
  T1(i) min=! A(3 * i + 2 * k) where k in 0:1
  T2(i, l) +=! C(i, j) * T1(l)
}""",
        [{"K": 1}, {"K": 2}, {"K": 7}],
    ),
    "size_times_index_of_one": (
        """def f(float(B,N) A, float(B) C) -> (T3) {
  T0(i) = i * 0.5 where i in 0:B*N
  T1(i,j) = T0(N*i+j) where i in 0:B, j in 0:N
  T3(j,l) +=! C(i) * T1(j,l) where j in 0:B
}""",
        [{"B": 2, "N": 1}, {"B": 1, "N": 3}],
    ),
    # the padded copy of a plane forgot the guard on what is the same in the whole plane
    "guard_on_the_plane_of_a_padded_copy": (
        """def f(float(C,E,D,H) I, float(K) F) -> (O) {
  O(c,d,h) +=! (c - d >= 0 && h+k >= 1 && h+k <= H ? I(c,d,c-d,h+k-1) : 0) * F(k)
    where c in 0:C, h in 0:H, d in 0:E
}""",
        [{"C": 5, "D": 5, "E": 7, "H": 19, "K": 3}, {"C": 3, "D": 3, "E": 30, "H": 70, "K": 2}],
    ),
    # no point reads a plane outside of the operand if the window is empty; its copy did
    "plane_of_an_empty_window": (
        """def f(float(M,H) I, float(K) F, float(N) X) -> (O) {
  O(n,h) +=! (h+k >= 1 && h+k <= H ? I(n,h+k-1) : 0) * F(k) where n in 0:N, h in 0:H
}""",
        [{"M": 1, "N": 9, "H": 1900, "K": 0}, {"M": 3, "N": 2, "H": 19, "K": 3}],
    ),
    # a range with its end before its start gave vectors and tiles a negative number of points
    "row_less_than_empty": (
        "def f(float(N,M) A) -> (O) { O(n) +=! A(n,m) where m in 300:M }",
        [{"N": 9, "M": m} for m in (0, 3, 17, 299, 300, 301, 337)],
    ),
    "inferred_range_less_than_empty": (
        "def f(float(N,M) A) -> (O) { O(n) +=! A(n,m) * A(n,m+3) }",
        [{"N": 3, "M": m} for m in (0, 1, 2, 3, 4, 40)],
    ),
    "triangle_from_one": (
        """def f(float(T,T) A) -> (float(T) O) {
  for t in 0:T { O(t) max=! A(t,k) where k in 2:t }
}""",
        [{"T": t} for t in (1, 2, 3, 20)],
    ),
    # lanes along a sum that is made under a condition on sizes wrote one element
    "sum_under_a_condition": (
        """def f(double(F,M) A, double(M) D) -> (T1, T2) {
  T1(j) +=! A(i,j) * D(j)
  T2(j,l) +=! A(i,j) * D(l)
}""",
        [{"F": 3, "M": 4}, {"F": 0, "M": 3}, {"F": 37, "M": 1}, {"F": 70, "M": 19}],
    ),
    # two reduction ranges with ends before their starts were fused into one that is not empty
    "reduction_ranges_less_than_empty": (
        """def f(float(M,S) A, float(S,N) B, float(K) X, float(L) Y) -> (O) {
  O(m,n) +=! A(m,(L-5)*k+l) * B((L-5)*k+l,n) where k in 0:K-5, l in 0:L-5
}""",
        [{"M": 13, "N": 40, "S": 30, "K": 1, "L": 2}, {"M": 6, "N": 17, "S": 12, "K": 8, "L": 9}],
    ),
    # with sizes of 0 substituted, vectors of a product with no columns met strides of 0
    "product_of_no_columns": (
        """def f(float(A,B,C,D) I, float(Q,A) W) -> (O) {
  T(n,c,y,x) = fabs(I(n,c,y,x))
  P(q,b,c,d) +=! T(a,b,c,d) * W(q,a)
  O(a,b,c,d) = P(a,b,c,d) * 1
}""",
        [{"A": 2, "B": b, "C": 0, "D": 5, "Q": 8} for b in (0, 3)],
    ),
    # and of loops around loops that never run an empty one was left
    "minimum_over_parts_of_no_columns": (
        """def f(double(A,B,C) I, double(A,D,B) J) -> (O) {
  T(a,b,c) = b < B ? I(a,b,c) : J(a,b-B,c) where b in 0:B+D
  O(a,c) min=! T(a,b,c)
}""",
        [{"A": 5, "B": 0, "C": 0, "D": 3}, {"A": 5, "B": 3, "C": 3, "D": 2}],
    ),
    # what sums of bytes owe was summed along loops of one row, of which conditions ask
    "bytes_of_windows_over_edges": (
        """def f(int8(H,W,C) I, int8(M,C,2,3) F) -> (O) {
  O(y,x,m) +=! (x + k >= 2 && x + k - 2 < W ? int32(I(y + l,x + k - 2,c)) * int32(F(m,c,l,k)) : 0)
    where x in 0:W + 2
}""",
        [{"H": 4, "W": 4, "C": c, "M": m} for c, m in ((3, 15), (16, 0), (64, 20))],
    ),
    # a pack of columns was made with a condition that moves with rows
    "bytes_behind_conditions_of_rows": (
        """def f(uint8(K,M) A, uint8(K,N) B) -> (O) {
  O(i,j) +=! int32(A(k,i)) * int32(i >= 2 ? B(k,j) : 0)
}""",
        [{"K": 8, "M": 25, "N": 65}, {"K": 65, "M": 3, "N": 9}, {"K": 2, "M": 0, "N": 16}],
    ),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("bind", ["never", "before", "after"])
@pytest.mark.parametrize("target", ["cpu", "cpu:novector"])
@pytest.mark.parametrize("name", FOUND)
def test_agrees_with_the_reference(name: str, target: str, bind: Any) -> None:
    source, all_sizes = FOUND[name]
    options = tcsym.Options(bind=bind)
    kernel = tcsym.define(source, target=target, options=options)["f"]
    for sizes in all_sizes:
        rng = np.random.default_rng(0)
        if bind != "never":
            kernel = tcsym.define(source, sizes=sizes, target=target, options=options)["f"]
        inputs = {
            n: guarded(
                np.asarray(values(rng, t.dtype, [evaluate(d, sizes) for d in t.shape], "", sizes))
            )
            for n, t in kernel.signature.inputs.items()
        }
        for n, t in kernel.signature.inputs.items():
            if t.dtype is DType.INT32:
                inputs[n] = np.abs(inputs[n])
        outputs = list(kernel.signature.outputs)
        want = outcome(kernel.reference, outputs, inputs, sizes)
        assert not isinstance(want, tcsym.TCError), want
        allowed = tolerances(kernel.reference, want, inputs, sizes, 0)
        kind, details = difference(outcome(kernel, outputs, inputs, sizes), want, allowed)
        assert not kind, f"{sizes}: {details}"


def test_a_copy_of_which_each_loop_decides_is_made() -> None:
    """Rows of two columns, where sizes are padded: none of its loops could be inside of a guard."""
    source = "def f(int32(N,N) A, int8(N,2) D) -> (O) { O(i,m,l) +=! A(i,j) * D(l,m) }"
    kernel, rng = tcsym.define(source, strategy=Pad(8)).f, np.random.default_rng(0)
    for n in (0, 1, 3, 8, 17, 40):
        a, d = rng.integers(-5, 5, (n, n)).astype("i4"), rng.integers(-5, 5, (n, 2)).astype("i1")
        np.testing.assert_array_equal(kernel(a, d), kernel.reference(a, d))


BEYOND_INT64 = {
    "read": "def f(float(N) A, uint64(M) I) -> (O) { O(i) = A(I(i)) }",
    "sum": "def f(float(N) A, uint64(M) I) -> (O) { O(i) = A(I(i) + 1) }",
    "difference": "def f(float(N) A, uint64(M) I) -> (O) { O(i) = A(1 - I(i)) }",
    "minimum": "def f(float(N) A, uint64(M) I) -> (O) { O(i) = A(min(I(i), 1)) }",
    "remainder": "def f(float(N) A, uint64(M) I) -> (O) { O(i) = A(I(i) % 2) }",
    "comparison": "def f(float(N) A, uint64(M) I) -> (O) { O(i) = A(I(i) < 2 ? 1 : 0) }",
    "scalar": "def f(float(N) A, uint64(M) I) -> (O) { p = I(1)  O(i) = A(p) where i in 0:M }",
    "cast": "def f(float(N) A, int64(M) I) -> (O) { O(i) = A(uint64(I(i))) }",
    "sum of gathers": "def f(float(N) A, uint64(M) I) -> (O) { O +=! A(I(i)) }",
    "product": "def f(float(N,N) A, uint64(M) I, float(N) B) -> (O) { O(i) +=! A(I(i),k) * B(k) }",
    "guarded": "def f(float(N) A, uint64(M) I) -> (O) { O(i) = I(i) < 2 ? A(I(i)) : 7.0 }",
    "guarded by and": "def f(float(N) A, uint64(M) I) -> (O) { O(i) = I(i) < 2 && A(I(i)) > 0 }",
}


@pytest.mark.parametrize("target", ["cpu", "cpu:novector"])
@pytest.mark.parametrize("name", BEYOND_INT64)
def test_integers_of_subscripts_are_exact_or_a_size_error(name: str, target: str) -> None:
    """A uint64 of 2**63 or more was taken for a negative number: A(I(i) + 1) read A(0)."""
    kernel = tcsym.define(BEYOND_INT64[name], target=target)["f"]
    outputs = list(kernel.signature.outputs)
    for value in (0, 1, 5, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1):
        index = np.array([1, value, 0] * 9, np.uint64)
        inputs: dict[str, Any] = {
            n: np.arange(5 ** len(t.shape), dtype=np.float32).reshape((5,) * len(t.shape))
            for n, t in kernel.signature.inputs.items()
        }
        inputs["I"] = index.astype(kernel.signature.inputs["I"].dtype.numpy)
        want = outcome(kernel.reference, outputs, inputs, {})
        got = outcome(kernel, outputs, inputs, {})
        if isinstance(want, tcsym.TCError):
            assert isinstance(got, tcsym.TCError), value
            assert (got.kind, got.line, got.column) == (want.kind, want.line, want.column)
        else:
            assert not isinstance(got, tcsym.TCError), value
            for n in outputs:
                np.testing.assert_array_equal(got[n], want[n])
        if value >= 2**63 and not name.startswith("guarded"):
            assert isinstance(want, tcsym.TCError) and want.kind == "size", value


@pytest.mark.parametrize("target", ["cpu", "cpu:novector"])
@pytest.mark.parametrize("tile", [(8, 0), (4, 4)])
def test_rows_as_many_as_lanes_or_vectors(tile: tuple[int, int], target: str) -> None:
    """The short version of a tile of eight rows lost half of the lanes instead of rows."""
    vectors = f" reg:{tile[1]}" if tile[1] else ""
    plan = f"i: split i tile reg:{tile[0]}; split j tile{vectors} lane:8; order i.tile j.tile"
    options = tcsym.Options(plan=plan)
    text = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }"
    kernel = tcsym.define(text, target=target, options=options)["mm"]
    for m, k, n in ((17, 19, 21), (8, 5, 16), (20, 3, 40), (33, 9, 7)):
        a = np.arange(m * k, dtype=np.float32).reshape(m, k) % 11
        b = np.arange(k * n, dtype=np.float32).reshape(k, n) % 7
        np.testing.assert_array_equal(kernel(a, b), a @ b)


def test_stores_stream_without_threads() -> None:
    """Code for results larger than the last cache asks for the number of threads."""
    text = "def f(float(N,M) A) -> (O) { O(i,j) = A(i,j) * 2.0 }"
    kernel = tcsym.define(text, options=tcsym.Options(parallelize=False))["f"]
    a = np.arange(35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_array_equal(kernel(a), a * 2)


@pytest.mark.parametrize("n", [64, 65, 70, 100])
def test_parts_of_a_sum_are_not_less_than_empty(n: int) -> None:
    """Of 64 parts of 65 steps, two each, the last 31 began behind the end and ran backwards."""
    kernel = tcsym.define("def f(float(N) A, float(M) B) -> (O) { O +=! A(i) where j in 0:M }")["f"]
    a, b = np.ones(100_000, np.float32), np.ones(n, np.float32)
    for threads in (1, 2):
        assert kernel(a, b, threads=threads) == 100_000 * n


def test_parts_of_rows_inside_classes_of_residues() -> None:
    """Sums of parts had as many elements as an iteration of a loop around has: no code was made."""
    text = """def f(float(C,W) I, float(C,M,K) F, float(M) b) -> (O) {
  O(m,x) +=! ((x-k)+1) % 2 == 1
      ? ((x-k) < 2*W && (x-k) >= 0 ? I(c,(x-k)/2) * F(c,m,k) : 0) : 0 where x in 0:2*W+1, k in 0:K
  O(m,x) = O(m,x) * b(m)
}"""
    kernel = tcsym.define(text, options=tcsym.Options(scheduler="isl"))["f"]
    rng = np.random.default_rng(0)
    for c, w, m, k in ((300, 9, 1, 3), (3, 20, 12, 2), (700, 1, 2, 600), (1, 1, 1, 1)):
        i, f, b = (rng.integers(-4, 5, s).astype(np.float32) for s in ((c, w), (c, m, k), (m,)))
        for threads in (1, 2):
            got = kernel(i, f, b, threads=threads)
            np.testing.assert_array_equal(got, kernel.reference(i, f, b))


def test_loops_that_never_run_take_no_memory() -> None:
    """What a loop of no iterations reads made a temporary as large as the number in its place."""
    text = """def f(float(M,2) C, size G) -> (R) {
        T(j) +=! C(i, j)
        R(i) = (i + G >= 0 && i + G < 2 ? T(i + G) : 1.0) where i in 0:M
    }"""
    kernel = tcsym.define(text, strategy="specialize")["f"]
    c = np.ones((7, 2), np.float32)
    for g in (0, 1, 2, 2**40 + 3):
        np.testing.assert_array_equal(kernel(c, g), kernel.reference(c, g))


@pytest.mark.parametrize("plan", ["", "split i tile lane:8; order i.tile"])
def test_temporaries_that_live_through_loops_in_order(plan: str) -> None:
    """Rows in lanes, inside of these, had a new one in each iteration."""
    text = """def f(uint8(N) D) -> (float(N, N) T) {
      for t in N {
        if t == 0 {
          S(i, j) = 0.5 where i in 0:N, j in 0:N
        }
        T(t, i) +=! S(i, j) * 0.5
        S(i, j) = D(i)
      }
    }"""
    options = tcsym.Options(scheduler="isl", plan=plan)
    kernel = tcsym.define(text, target="cpu:avx2", options=options).f
    d = np.array([3, 5, 2], np.uint8)
    np.testing.assert_allclose(kernel(d), kernel.reference(d))


def test_lanes_beyond_a_temporary_of_few_elements() -> None:
    """A vector was stored to a register of three elements."""
    text = """def f(float(K) A, int8(B) D) -> (float(K) T1, float(B) Z) {
      T0(i) = D(i) * 3
      T1(i) = A(i) <= i ? T0(min(i, B - 1)) - A(i) : 1.0
      Z(i) = T0(i) * 2.0
    }"""
    options = tcsym.Options(bind="before")
    kernel = tcsym.define(text, sizes={"B": 3, "K": 1}, options=options, target="cpu:avx2").f
    a, d = np.zeros(1, np.float32), np.array([1, 2, 3], np.int8)
    for got, wanted in zip(kernel(a, d), kernel.reference(a, d), strict=True):
        np.testing.assert_array_equal(got, wanted)
