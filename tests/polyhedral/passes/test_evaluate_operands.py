"""Operands that are computed along the sum are computed before the contraction."""

from __future__ import annotations

import pytest

from tcsym.frontend.program import Cast, Expr
from tcsym.loop_ir import Kernel
from tcsym.polyhedral.passes.allocate import place_allocations
from tcsym.polyhedral.passes.common.band import band_of, contraction_roles
from tcsym.polyhedral.passes.common.loops import find_loop
from tcsym.polyhedral.passes.common.names import Names
from tcsym.polyhedral.passes.contraction.evaluate_operands import evaluate_operands
from tcsym.types import DType
from tests.polyhedral.passes.compare import assert_same
from tests.polyhedral.passes.naive import buf, con, kernel, op, par, rd, red, st, up, v

i, j, k = v("i j k")
INT8, F32 = DType.INT8, DType.FLOAT32


def product(left: Expr, right: Expr, right_shape: str, dtype: DType = F32) -> Kernel:
    """C(i,j) += left * right, summed over k."""
    update = up("C", (i, j), "add", op("mul", left, right))
    body = par("i", "M", par("j", "N", st("C", (i, j), con(0.0)), red("k", "K", update)))
    buffers = [buf("A", "M K", dtype), buf("B", right_shape), buf("D", "K"), buf("C", "M N")]
    return kernel("f", "M N K", buffers, body)


def evaluated(p: Kernel) -> tuple[Kernel, list[str]]:
    roles = contraction_roles(p, band_of(find_loop(p.body, "i")))
    assert roles is not None
    new = evaluate_operands(p, "i", roles, Names.of(p))
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
