# SPDX-License-Identifier: Apache-2.0
"""Operands that are computed along the sum are computed before the contraction."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tcsym.frontend.program import Cast, Expr
from tcsym.index.expr import ONE, Index, var
from tcsym.ir.loops import Buffer, Kernel
from tcsym.schedule.analysis.band import band_of, contraction_roles
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.stage.evaluate_operands import evaluate_operands
from tcsym.schedule.storage.place_allocations import place_allocations
from tcsym.types import DType
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, st, up, v

g, h, i, j, k = v("g h i j k")
INT8, F32 = DType.INT8, DType.FLOAT32


def product(
    left: Expr, right: Expr, right_shape: str, dtype: DType = F32, more: Sequence[Buffer] = ()
) -> Kernel:
    """C(i,j) += left * right, summed over k."""
    update = up("C", (i, j), "add", op("mul", left, right))
    body = par("i", "M", par("j", "N", st("C", (i, j), con(0.0)), red("k", "K", update)))
    buffers = [buf("A", "M K", dtype), buf("B", right_shape), buf("D", "K"), buf("C", "M N"), *more]
    return kernel("f", "M N K", buffers, body)


def evaluated(p: Kernel, nest: str = "i") -> tuple[Kernel, list[str]]:
    roles = contraction_roles(p, band_of(find_loop(p.body, nest)))
    assert roles is not None
    new = evaluate_operands(p, nest, roles, Names.of(p))
    return new.kernel, [b.name for b in new.kernel.buffers if "_values" in b.name]


@pytest.mark.parametrize(
    ("left", "right", "shape", "names"),
    [
        (op("mul", rd("A", i, k), rd("D", k)), rd("B", j, k), "N K", ["A_values.1"]),
        (rd("A", i, k), op("mul", rd("B", j, k), rd("D", k)), "N K", ["B_values.1"]),
        (rd("A", i, k), op("mul", rd("B", k, j), rd("D", k)), "K N", []),  # columns side by side
        (rd("A", i, k), rd("B", j, k), "N K", []),  # nothing is computed
    ],
)
def test_what_is_computed_along_the_sum_is_copied(
    left: Expr, right: Expr, shape: str, names: list[str]
) -> None:
    p = product(left, right, shape)
    new, found = evaluated(p)
    assert found == names
    assert_same(p, place_allocations(new), {"M": 5, "N": 7, "K": 11})


def test_conversions_are_made_once() -> None:
    p = product(Cast(rd("A", i, k, dtype=INT8), F32), rd("B", k, j), "K N", INT8)
    new, found = evaluated(p)
    assert found == ["A_values.1"] and new.buffer("A_values.1").dtype is F32
    assert_same(p, place_allocations(new), {"M": 5, "N": 7, "K": 11})


def test_what_stays_the_same_along_the_sum_may_be_in_it() -> None:
    p = product(op("mul", rd("A", i, k), rd("E", i)), rd("B", k, j), "K N", more=[buf("E", "M")])
    new, found = evaluated(p)
    assert found == ["A_values.1"]
    assert_same(p, place_allocations(new), {"M": 5, "N": 7, "K": 11})


@pytest.mark.parametrize(("step", "names"), [(var("H"), ["A_values.1"]), (ONE, [])])
def test_loops_may_share_a_dimension_if_they_count_it_through(
    step: Index, names: list[str]
) -> None:
    """C(g,h,i,j) += A(step*g + h, i, k) * E(h) * B(g,h,k,j): windows use elements twice."""
    left = op("mul", rd("A", g * step + h, i, k), rd("E", h))
    update = up("C", (g, h, i, j), "add", op("mul", left, rd("B", g, h, k, j)))
    sums = par("j", "N", st("C", (g, h, i, j), con(0.0)), red("k", "K", update))
    body = par("g", "G", par("h", "H", par("i", "M", sums)))
    buffers = [buf("A", (var("H") * var("G"), var("M"), var("K"))), buf("E", "H")]
    p = kernel("f", "M N K G H", [*buffers, buf("B", "G H K N"), buf("C", "G H M N")], body)
    new, found = evaluated(p, "g")
    assert found == names
    assert_same(p, place_allocations(new), {"M": 5, "N": 7, "K": 11, "G": 2, "H": 3})
