# SPDX-License-Identifier: Apache-2.0
"""Sums over many rows of a few columns: over long rows of places, then of those."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tcsym.frontend.program import Const, IndexValue
from tcsym.index.expr import ONE, Index
from tcsym.ir.loops import Branch, Kernel, Loop, Node
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.analysis.access import accesses, offset_stride
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.tile.fold_columns import LEAST_ROWS, VECTORS
from tcsym.types import DType
from tests.schedule import naive
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import AVX2, AVX512

B, M, N = v("b m n")
LONG = 8 * VECTORS
LEAST = LONG * LEAST_ROWS
X = rd("X", M, N)


def moments() -> Kernel:
    """Two sums of one pass, and a value of both."""
    sums = red("m", "M", up("S", (N,), "add", X), up("Q", (N,), "max", op("mul", X, X)))
    start = (st("S", (N,), con(2.0)), st("Q", (N,), con(1.0)))
    end = st("R", (N,), op("add", rd("S", N), rd("Q", N)))
    shapes = [buf("X", "M N"), buf("S", "N", private="n"), buf("Q", "N", private="n")]
    return kernel("moments", "M N", [*shapes, buf("R", "N")], par("n", "N", *start, sums, end))


def some_rows() -> Kernel:
    """Rows and columns that do not start at 0, and a term that all share."""
    value = op("add", X, rd("W", B))
    sums = red("m", v("M")[0] - 1, up("S", (B, N), "add", value), lower=2)
    start = st("S", (B, N), con(0.0))
    end = st("O", (B, N), rd("S", B, N))
    shapes = [buf("X", "M N"), buf("W", "B"), buf("S", "B N", private="b n"), buf("O", "B N")]
    body = par("b", "B", par("n", "N", start, sums, end))
    return kernel("some_rows", "B M N", shapes, body)


def of_value(value: object) -> Kernel:
    sums = red("m", "M", up("O", (N,), "add", value))  # type: ignore[arg-type]
    shapes = [buf("X", "M N"), buf("W", "M"), buf("T", "N M"), buf("O", "N")]
    return kernel("sum", "M N", shapes, par("n", "N", st("O", (N,), con(0.0)), sums))


def mapped(k: Kernel, target: object = AVX2, **options: object) -> Kernel:
    return map_cpu(k, target, Options(**options)).kernel  # type: ignore[arg-type]


def is_folded(k: Kernel) -> bool:
    return any("few columns" in x for x in map_cpu(k, AVX2, Options()).notes)


@pytest.mark.parametrize("parallelize", [True, False])
@pytest.mark.parametrize("make", [naive.column_sum, moments, some_rows])
def test_results_are_kept(make: Callable[[], Kernel], parallelize: bool) -> None:
    k = make()
    assert is_folded(k)
    out = mapped(k, parallelize=parallelize)
    for n in (0, 1, 3, 8, 15, 16):
        for m in (LEAST - 1, LEAST + 3, LEAST + LONG + 5):
            if n in (1, 3) or m == LEAST + 3:
                assert_same(k, out, {"B": 2, "M": m, "N": n})


def test_parts_of_many_rows_are_combined() -> None:
    k = naive.column_sum()
    assert_same(k, mapped(k), {"M": 8192 + LEAST + 1, "N": 1})


def test_longer_vectors() -> None:
    k = naive.column_sum()
    assert_same(k, mapped(k, AVX512), {"M": 2 * LEAST + 7, "N": 5})


def in_long_rows(k: Kernel) -> list[tuple[Node, tuple[Loop, ...]]]:
    """What is inside vectors in the first version that is a choice of sizes."""
    top = next(x for x, _ in walk(k.body) if isinstance(x, Branch))
    return [
        (x, a)
        for x, a in walk(top.then)
        if a and a[-1].kind == "vector" and any(y.buffer == "X" for y in accesses(x))
    ]


def test_long_rows_are_read_in_whole_vectors_of_neighbours() -> None:
    k = mapped(naive.column_sum(), parallelize=False)
    x, around = in_long_rows(k)[0]
    assert around[-1].mask is None and around[-2].upper.as_int() == VECTORS
    (read,) = [a for a in accesses(x) if a.buffer == "X"]
    assert offset_stride(k.buffer("X"), read.subscripts, around[-1].variable) == ONE


@pytest.mark.parametrize(
    "value",
    [
        op("mul", X, rd("W", M)),  # an element for each row, not each place
        rd("T", N, M),  # rows that are not neighbours
        op("add", X, IndexValue(Index(((("m"), 1),)), DType.FLOAT32)),
    ],
    ids=["row", "transposed", "index"],
)
def test_terms_that_are_no_runs_of_memory_are_left(value: object) -> None:
    assert not is_folded(of_value(value))


def test_constants_may_be_terms() -> None:
    k = of_value(op("mul", X, Const(2.0, DType.FLOAT32)))
    assert is_folded(k)
    assert_same(k, mapped(k), {"M": LEAST, "N": 2})
