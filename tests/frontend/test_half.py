# SPDX-License-Identifier: Apache-2.0
"""Half types (LANGUAGE F7): what the typed program computes in float32, and where it rounds."""

import pytest

from tcsym.compiler import analyse
from tcsym.frontend.program import Program, Statement, reads
from tcsym.frontend.program_text import expr_text
from tcsym.types import DType


def program(body: str) -> Program:
    head = "def f(half(N) X, int32(N) I) -> (half(N) Y) { "
    return analyse(f"{head}{body} }}", "<tc>")["f"]


@pytest.mark.parametrize(
    ("value", "typed"),
    [
        ("X(i)", "X(i)"),
        ("X(i) * X(i)", "float16((float32(X(i)) * float32(X(i))))"),
        ("half(X(i) + 1)", "float16((float32(X(i)) + 1.0))"),
        ("I(i)", "float16(I(i))"),
        ("X(i) * I(i)", "float16((float32(X(i)) * float32(I(i))))"),
        ("half(I(i)) / X(i)", "float16((float32(float16(I(i))) / float32(X(i))))"),
        (
            "X(i) > 0.1 ? X(i) : 0",
            "float16(((float32(X(i)) > 0.0999755859375) ? float32(X(i)) : 0.0))",
        ),
    ],
)
def test_values(value: str, typed: str) -> None:
    (s,) = program(f"Y(i) = {value}").body
    assert isinstance(s, Statement)
    assert expr_text(s.value) == typed


def test_temporaries_are_float32_wherever_they_are_read() -> None:
    p = program("t(i) = X(i) + 0.5 Y(i) = t(i) Y(int32(t(i))) += t(i)")
    types = {t.name: t.dtype for t in p.tensors}
    assert (types["t"], types["Y"]) == (DType.FLOAT32, DType.FLOAT16)
    for s in p.body:
        assert isinstance(s, Statement)
        positions = [r.at for r in s.scattered]
        for e in (s.value, *positions):
            assert all(r.dtype is types[r.tensor] for r in reads(e))  # type: ignore[arg-type]
