# SPDX-License-Identifier: Apache-2.0
"""Programs built by hand: every statement form of the interpreter."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tcsym.frontend.program import (
    Binary,
    Call,
    Compare,
    Const,
    Expr,
    For,
    If,
    IndexValue,
    Item,
    Select,
    Tensor,
    Unary,
)
from tcsym.index.expr import eq, index, mod, negate, var
from tcsym.types import DType
from tests.frontend.by_hand import (
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U8,
    U64,
    K,
    M,
    N,
    i,
    inp,
    j,
    k,
    left,
    out,
    rd,
    red,
    run,
    st,
    t,
    tmp,
)

# ---- statements


def matmul(dtype: DType = F32) -> tuple[list[Tensor], list[Item]]:
    product = Binary("mul", rd("A", dtype, i, k), rd("B", dtype, k, j), dtype)
    statement = st("C", (i, j), "+=!", product, left("i", M), left("j", N), red("k", K))
    return [inp("A", dtype, M, K), inp("B", dtype, K, N), out("C", dtype, M, N)], [statement]


def test_matmul_is_fast_enough_and_nearly_exact() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((128, 64), dtype=np.float32)
    b = rng.standard_normal((64, 64), dtype=np.float32)
    start = time.perf_counter()
    c = run(*matmul(), {"M": 128, "N": 64, "K": 64}, A=a, B=b)
    assert time.perf_counter() - start < 5
    terms = (a[:, :, None] * b[None]).astype(np.float64).sum(1)
    np.testing.assert_array_equal(c, terms.astype(np.float32))


@pytest.mark.parametrize("sizes", [(0, 3, 2), (2, 0, 2), (2, 3, 0), (1, 1, 1)])
def test_matmul_of_empty_and_unit_sizes(sizes: tuple[int, int, int]) -> None:
    m, n, length = sizes
    a, b = np.ones((m, length), np.float32), np.ones((length, n), np.float32)
    c = run(*matmul(), dict(zip("MNK", sizes)), A=a, B=b)
    np.testing.assert_array_equal(c, np.full((m, n), np.float32(length)))


def softmax() -> tuple[list[Tensor], list[Item]]:
    x, top, total = rd("X", F32, i, j), rd("m", F32, i), rd("s", F32, i)
    e = Call("exp", (Binary("sub", x, top, F32),), F32)
    return [inp("X", F32, M, N), out("O", F32, M, N), tmp("m", F32, M), tmp("s", F32, M)], [
        st("m", (i,), "max=!", x, left("i", M), red("j", N)),
        st("s", (i,), "+=!", e, left("i", M), red("j", N)),
        st("O", (i, j), "=", Binary("div", e, total, F32), left("i", M), left("j", N)),
    ]


@pytest.mark.parametrize("shape", [(3, 5), (3, 0), (0, 4)])
def test_softmax_with_temporaries(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    o = run(*softmax(), {"M": shape[0], "N": shape[1]}, X=x)
    np.testing.assert_allclose(o.sum(1), np.ones(shape[0]) if shape[1] else 0, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "dtype", "expected"),
    [
        ("+=!", I32, 0),
        ("*=!", F64, 1),
        ("min=!", F32, np.inf),
        ("max=!", F16, -np.inf),
        ("min=!", I8, 127),
        ("max=!", I64, -(2**63)),
        ("min=!", U64, 2**64 - 1),
        ("max=!", U8, 0),
        ("min=!", BOOL, True),
        ("max=!", BOOL, False),
        ("+=!", BOOL, False),
        ("*=!", BOOL, True),
    ],
)
def test_identity_of_an_empty_reduction(op: str, dtype: DType, expected: Any) -> None:
    statement = st("O", (), op, rd("A", dtype, i), red("i", N))
    o = run(
        [inp("A", dtype, N), out("O", dtype)], [statement], {"N": 0}, A=np.zeros(0, dtype.numpy)
    )
    assert o.dtype == dtype.numpy and o.shape == () and o[()] == expected


def test_prefix_sum_with_for_and_if() -> None:
    first = st("O", (t,), "=", rd("A", F32, t))
    other = st("O", (t,), "=", Binary("add", rd("O", F32, t - 1), rd("A", F32, t), F32))
    loop = For("t", index(0), N, (If(eq(t, 0), (first,), (other,)),))
    a = np.arange(1, 8, dtype=np.float32)
    o = run([inp("A", F32, N), out("O", F32, N)], [loop], {"N": 7}, A=a)
    np.testing.assert_array_equal(o, np.cumsum(a))


def test_a_statement_is_simultaneous() -> None:
    body: list[Item] = [
        st("O", (i,), "=", rd("A", I32, i), left("i", N)),
        st("O", (i,), "=", rd("O", I32, N - 1 - i), left("i", N)),
        st("O", (i,), "+=", rd("O", I32, i - 1), left("i", N, 1)),
    ]
    o = run([inp("A", I32, N), out("O", I32, N)], body, {"N": 4}, A=np.arange(4, dtype=np.int32))
    assert o.tolist() == [3, 5, 3, 1]


def test_accumulation_starts_from_the_old_value_and_fixed_positions_are_written() -> None:
    body: list[Item] = [
        st("O", (index(1), i), "=", rd("A", F32, i), left("i", N)),
        st("O", (M - 2, i), "=", Const(2.5, F32), left("i", N)),
        st("O", (index(1), i), "*=", rd("A", F32, j), left("i", N), red("j", N)),
    ]
    a = np.array([2, 3], np.float32)
    o = run([inp("A", F32, N), out("O", F32, M, N)], body, {"N": 2, "M": 2}, A=a)
    assert o.tolist() == [[2.5, 2.5], [12, 18]]


def test_loops_see_outer_variables_and_conditions() -> None:
    write = st("O", (t,), "=", IndexValue(10 * var("u") + t, I32))
    odd = If(negate(eq(mod(t, 2), 0)), (write,), (st("O", (t,), "=", Const(-1, I32)),))
    body: list[Item] = [For("u", index(0), index(3), (For("t", var("u"), N, (odd,)),))]
    assert run([out("O", I32, N)], body, {"N": 4}).tolist() == [-1, 11, -1, 23]


def test_many_dimensions_and_zero_dimensions() -> None:
    names = [f"i{n}" for n in range(32)]
    subscripts = tuple(map(var, names))
    ranges = [left(n, 2 if n in ("i3", "i31") else 1) for n in names]
    shape = tuple(r.upper for r in ranges)
    value = Binary("add", rd("A", I32, *subscripts), rd("c", I32), I32)
    a = np.arange(4, dtype=np.int32).reshape(tuple(int(str(s)) for s in shape))
    tensors = [inp("A", I32, *shape), inp("c", I32), out("O", I32, *shape)]
    o = run(tensors, [st("O", subscripts, "=", value, *ranges)], {}, A=a, c=np.array(5, np.int32))
    np.testing.assert_array_equal(o, a + 5)


def test_more_points_than_a_chunk_in_several_reductions() -> None:
    n = 70_000
    statement = st("O", (j,), "+=!", rd("A", I64, i, j), left("j", 2), red("i", N))
    a = np.arange(2 * n).reshape(n, 2)
    o = run([inp("A", I64, N, index(2)), out("O", I64, index(2))], [statement], {"N": n}, A=a)
    np.testing.assert_array_equal(o, a.sum(0))


def test_inputs_with_any_strides() -> None:
    statement = st("O", (i, j), "=", rd("A", F32, j, i), left("i", N), left("j", M))
    tensors = [inp("A", F32, M, N), out("O", F32, N, M)]
    base = np.arange(6, dtype=np.float32).reshape(2, 3)
    for a in (base[::-1, ::-1], np.broadcast_to(base[:1], (2, 3)), np.asfortranarray(base)):
        np.testing.assert_array_equal(run(tensors, [statement], {"M": 2, "N": 3}, A=a), a.T)


# ---- guards


def test_untaken_arms_are_not_read() -> None:
    guard = Compare("ge", IndexValue(i, I32), Const(1, I32))
    padded = Select(guard, rd("A", F32, i - 1), Const(-1.0, F32), F32)
    tensors = [inp("A", F32, N), out("O", F32, N + 1)]
    a = np.arange(3, dtype=np.float32)
    assert run(tensors, [st("O", (i,), "=", padded, left("i", N + 1))], {"N": 3}, A=a).tolist() == [
        -1,
        0,
        1,
        2,
    ]


def test_and_or_stop_early() -> None:
    inside = Compare("lt", IndexValue(i, I32), IndexValue(N, I32))
    positive = Compare("gt", rd("A", F32, i), Const(0.0, F32))
    either = Binary("or", Unary("not", inside, BOOL), positive, BOOL)
    both = Binary("and", inside, positive, BOOL)
    tensors = [inp("A", F32, N), out("O", BOOL, N + 2)]
    a = np.array([1, -1, 2], np.float32)
    for value, beyond in ((either, [True, True]), (both, [False, False])):
        o = run(tensors, [st("O", (i,), "=", value, left("i", N + 2))], {"N": 3}, A=a)
        assert o.tolist() == [True, False, True, *beyond]


def test_a_long_sum_does_not_exhaust_the_stack() -> None:
    total: Expr = Const(0, I64)
    for _ in range(5000):
        total = Binary("add", total, Const(1, I64), I64)
    assert run([out("O", I64)], [st("O", (), "=", total)], {})[()] == 5000
