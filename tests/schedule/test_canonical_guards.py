# SPDX-License-Identifier: Apache-2.0
"""Guards among conversions: which move, and where to."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.frontend.program import Cast, Expr, Select
from tcsym.ir.loops import Update
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.split.canonical_guards import canonical_guards
from tcsym.types import DType

TEXT = """def f(half(N) a, half(N) b, float(M) y) -> (float(M) O) {{
  O(i) {op} {value} where i in 0:M, k in 0:N
}}"""


def placed(value: str, op: str = "+=!") -> Expr:
    program = analyse(TEXT.format(op=op, value=value))["f"]
    kernel = canonical_guards(schedule_program(program, Options(), {}).kernel)
    (found,) = [x.value for x, _ in walk(kernel.body) if isinstance(x, Update)]
    return found  # type: ignore[return-value]


def test_a_guard_goes_into_the_conversion_of_an_element() -> None:
    found = placed("k <= i ? float(a(k)) : 0", "max=!")
    assert isinstance(found, Cast) and isinstance(found.operand, Select)
    assert found.operand.dtype is DType.FLOAT16


def test_a_guard_goes_out_of_the_conversion_of_a_term() -> None:
    found = placed("float(k <= i ? int32(a(k)) * 2 : 0)")
    assert isinstance(found, Select) and found.dtype is DType.FLOAT32
    assert isinstance(found.then, Cast) and not isinstance(found.orelse, Cast)


@pytest.mark.parametrize(
    "value",
    ["k <= i ? float(a(k)) : 1", "float(k <= i ? a(k) * b(k) : half(1))", "k <= i ? y(k) : 0"],
)
def test_other_guards_stay(value: str) -> None:
    program = analyse(TEXT.format(op="+=!", value=value))["f"]
    kernel = schedule_program(program, Options(), {}).kernel
    assert canonical_guards(kernel) == kernel
