# SPDX-License-Identifier: Apache-2.0
"""Declared types (LANGUAGE F8): what is converted to them first, and what keeps its type."""

import pytest

from tcsym.compiler import analyse
from tcsym.frontend.program import Statement
from tcsym.frontend.program_text import expr_text
from tcsym.types import DType, is_narrower

IN = "int8(N) A, int8(N) B, int32(N) I, half(N) H, float(N) X, bool(N) P"


def value(declared: str, text: str) -> str:
    source = f"def f({IN}) -> ({declared}(N) Y) {{ Y(i) = {text} }}"
    item = analyse(source, "<tc>")["f"].body[-1]
    assert isinstance(item, Statement)
    return expr_text(item.value)


@pytest.mark.parametrize(
    ("declared", "text", "typed"),
    [
        ("int32", "A(i) * B(i)", "(int32(A(i)) * int32(B(i)))"),
        ("int32", "-A(i) + 1", "(-int32(A(i)) + 1)"),
        ("float", "min(A(i), P(i))", "min(float32(A(i)), float32(P(i)))"),
        ("float", "A(i) > B(i) ? A(i) : B(i)", "((A(i) > B(i)) ? float32(A(i)) : float32(B(i)))"),
        ("int32", "d * d where d = A(i) - B(i)", None),
        ("int32", "A(i) / B(i)", "int32((A(i) / B(i)))"),
        ("int32", "A(i) & B(i)", "int32((A(i) & B(i)))"),
        ("int32", "int8(A(i) * B(i))", "int32(int8((A(i) * B(i))))"),
        ("float", "I(i) * I(i)", "float32((I(i) * I(i)))"),
        ("double", "I(i) * 0.1", "(float64(I(i)) * 0.1)"),
        ("double", "exp(X(i))", "exp(float64(X(i)))"),
        ("int64", "I(i) * I(i)", "int64((I(i) * I(i)))"),
        ("int64", "A(i) * B(i)", "(int64(A(i)) * int64(B(i)))"),
    ],
)
def test_operands(declared: str, text: str, typed: str | None) -> None:
    d = "(int32(A(i)) - int32(B(i)))"
    assert value(declared, text) == (typed or f"({d} * {d})")


def test_terms_of_a_reduction_and_undeclared_tensors() -> None:
    source = f"def f({IN}) -> (int32 s, t) {{ s +=! A(i) * B(i) t +=! A(i) * B(i) }}"
    body = analyse(source, "<tc>")["f"].body
    texts = [expr_text(s.value) for s in body if isinstance(s, Statement)]
    assert texts == ["(int32(A(i)) * int32(B(i)))", "(A(i) * B(i))"]


def test_what_a_float_holds_exactly() -> None:
    under = {
        w: {t.value for t in DType if is_narrower(t, w)} for w in (DType.FLOAT16, DType.FLOAT32)
    }
    assert under[DType.FLOAT16] == {"bool", "int8", "uint8"}
    assert under[DType.FLOAT32] == {
        *("bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16")
    }
