# SPDX-License-Identifier: Apache-2.0
"""The interpreter's own checks: what is raised, and where."""

from __future__ import annotations

import numpy as np
import pytest

from tcsym.errors import Span
from tcsym.frontend.program import (
    Binary,
    Cast,
    Check,
    Const,
    Item,
    Tensor,
)
from tcsym.index.expr import Index, ge, index
from tests.frontend.by_hand import (
    F32,
    I32,
    I64,
    LEFT,
    OUTPUT,
    READ,
    M,
    N,
    fails,
    i,
    inp,
    j,
    left,
    out,
    rd,
    run,
    st,
    tmp,
)


def gather(*lengths: int) -> tuple[list[Tensor], list[Item], dict[str, int]]:
    subscript = Cast(rd("P", I32, i), I64)
    statement = st("O", (i,), "=", rd("A", F32, subscript), left("i", N))
    tensors = [inp("A", F32, M), inp("P", I32, N), out("O", F32, N)]
    return tensors, [statement], dict(zip("NM", lengths))


def test_gather() -> None:
    a, p = np.arange(5, dtype=np.float32), np.array([4, 0, 4], np.int32)
    assert run(*gather(3, 5), A=a, P=p).tolist() == [4, 0, 4]


@pytest.mark.parametrize("position", [-1, 5, 2**31 - 1])
def test_gather_outside_is_a_bounds_error(position: int) -> None:
    a, p = np.arange(5, dtype=np.float32), np.array([0, position, 1], np.int32)
    error = fails("bounds", READ, *gather(3, 5), A=a, P=p)
    assert f"`A` is read at {position} on axis 0, where its size is 5" in error.message
    assert error.source == "def f"


def test_exact_subscripts_that_overflow_are_a_size_error() -> None:
    squared = Binary("mul", rd("P", I64, i), rd("P", I64, i), I64, exact=True, span=Span(1, 5))
    statement = st("O", (i,), "=", rd("A", F32, squared), left("i", N))
    tensors = [inp("A", F32, M), inp("P", I64, N), out("O", F32, N)]
    a = np.arange(5, dtype=np.float32)
    fails("size", Span(1, 5), tensors, [statement], {"N": 1, "M": 5}, A=a, P=np.array([2**32 + 1]))
    o = run(tensors, [statement], {"N": 2, "M": 5}, A=a, P=np.array([-2, 1]))
    assert o.tolist() == [4, 1]


def test_reading_outside_is_a_bounds_error() -> None:
    shifted = st("O", (i,), "=", rd("A", F32, i + 1), left("i", N))
    tensors = [inp("A", F32, N), out("O", F32, N)]
    fails("bounds", READ, tensors, [shifted], {"N": 3}, A=np.zeros(3, np.float32))
    assert run(tensors, [shifted], {"N": 0}, A=np.zeros(0, np.float32)).shape == (0,)


def test_writing_outside_is_a_bounds_error() -> None:
    fails("bounds", LEFT, [out("O", F32, N)], [st("O", (N,), "=", Const(0.0, F32))], {"N": 3})


def test_reading_what_is_not_written_is_an_init_error() -> None:
    body: list[Item] = [
        st("T", (i,), "=", Const(1, I32), left("i", N)),
        st("O", (i,), "=", rd("T", I32, i + 1), left("i", N)),
    ]
    fails("init", READ, [out("O", I32, N), tmp("T", I32, N + 1)], body, {"N": 2})


def test_a_gather_needs_its_whole_dimension_written() -> None:
    def body(upper: Index) -> list[Item]:
        gathered = rd("T", I32, i, Cast(rd("P", I32, i), I64))
        return [
            st("T", (i, j), "=", Const(1, I32), left("i", N), left("j", upper)),
            st("O", (i,), "=", gathered, left("i", N)),
        ]

    tensors = [inp("P", I32, N), out("O", I32, N), tmp("T", I32, N + 1, N)]
    p = np.zeros(2, np.int32)
    assert run(tensors, body(N), {"N": 2}, P=p).tolist() == [1, 1]
    fails("init", READ, tensors, body(N - 1), {"N": 2}, P=p)


def test_accumulating_into_what_is_not_written_is_an_init_error() -> None:
    statement = st("O", (i,), "+=", Const(1, I32), left("i", N))
    fails("init", LEFT, [out("O", I32, N)], [statement], {"N": 2})


def test_outputs_must_be_fully_written() -> None:
    tensors, statement = [out("O", I32, N)], st("O", (index(0),), "=", Const(1, I32))
    assert run(tensors, [statement], {"N": 1}).tolist() == [1]
    error = fails("init", OUTPUT, tensors, [statement], {"N": 2})
    assert error.message == "output `O` is not fully written"


def test_negative_and_immense_sizes() -> None:
    fails("size", OUTPUT, [out("O", I32, N - 2)], [], {"N": 1})
    fails("size", OUTPUT, [out("O", I32, N * N, N)], [], {"N": 2**40})
    part = st("O", (i,), "=", Const(1, I32), left("i", N - 2))
    fails("size", LEFT, [out("O", I32, N)], [part], {"N": 1})


def test_checks_of_the_call_come_first_and_in_order() -> None:
    checks = (
        Check("size", ge(N, 1), "fine", span=Span(2, 1)),
        Check("bounds", ge(N, 5), "`N` is too small", "take 5", Span(3, 1)),
        Check("init", ge(N, 6), "later", span=Span(4, 1)),
    )
    error = fails("bounds", Span(3, 1), [out("O", I32, -N)], [], {"N": 2}, *checks)
    assert (error.message, error.hint) == ("`N` is too small", "take 5")


def test_exists_is_checked_for_bounds_only() -> None:
    body: list[Item] = [
        st("O", (i,), "=", Const(1, I32), left("i", N), exists=(rd("T", I32, i + 1),)),
        st("T", (i,), "=", Const(1, I32), left("i", M)),
    ]
    tensors = [out("O", I32, N), tmp("T", I32, M)]
    assert run(tensors, body, {"N": 2, "M": 3}).tolist() == [1, 1]
    fails("bounds", READ, tensors, body, {"N": 2, "M": 2})
