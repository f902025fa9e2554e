# SPDX-License-Identifier: Apache-2.0
"""Ranges and extents as a person would write them down (LANGUAGE A20-A22, B2-B5, B13, C2-C7)."""

from __future__ import annotations

import pytest

from tcsym.errors import RangeError
from tcsym.frontend import parser
from tcsym.frontend.check import resolve
from tcsym.frontend.infer import infer
from tcsym.frontend.program import Program, statements
from tcsym.index.text import condition_text


def inferred(source: str, entry: str = "") -> Program:
    programs = resolve(parser.parse(source))
    return infer(programs[entry or list(programs)[-1]])


def shapes(program: Program) -> str:
    outputs = program.outputs
    return " ".join(f"{t.name}({', '.join(map(str, t.shape))})" for t in outputs)


def ranges(program: Program, k: int = -1) -> str:
    domain = list(statements(program.body))[k].domain
    return ", ".join(f"{r.variable} in {r.lower}:{r.upper}" for r in domain)


def checks(program: Program) -> list[str]:
    return [
        f"{c.kind} {c.span.line}:{c.span.column} {condition_text(c.condition)}"
        for c in program.checks
    ]


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        ("float(M,K) A, float(K,N) B", "O(m,n) +=! A(m,k) * B(k,n)", "O(M, N)"),
        ("float(N) X, float(K) F", "O(i) +=! X(i + k) * F(k)", "O(N - K + 1)"),
        ("float(N) X", "O(i) = X(2*i)", "O((N + 1)/2)"),
        ("float(N) X", "O(i) = X(2*i) + X(2*i + 1)", "O(N/2)"),
        ("float(N) X", "O(i) +=! X(2*i + k) where k in 0:2", "O(N/2)"),
        ("float(N) X", "O(i) = X(i + 2)", "O(N - 2)"),
        ("float(N) X", "O(i) = X(N - 1 - i)", "O(N)"),
        ("float(H) X, float(K) F", "O(i) +=! X(2*i + k) * F(k)", "O((H - K)/2 + 1)"),
        ("float(N,M) X", "O(i) = X(i,i)", "O(min(M, N))"),
        ("float(N) A, float(N) B", "O(i) = A(i) + B(i)", "O(N)"),
        ("float(N) X, float(S) s", "O(i) = X(S * i)", "O((N - 1)/S + 1)"),
        ("float(P) X, float(N,M) L", "O(i,j) = X(M*i + j) where exists L(i,j)", "O(N, M)"),
        ("float(N) A, float(M) B", "O(i) = i < N ? A(i) : B(i - N)", "O(M + N)"),
        ("float(M) A, float(K) s", "O(i) = i < K ? A(i) : 0.0", "O(M)"),
        # a guard drops what it differs from by a constant, as both are written (C7), and no more
        ("float(Q) A, float(R) B", "O(w) = (!(w >= Q) ? A(w) : 0.0) + B(w)", "O(R)"),
        ("float(Q) A, float(R) B", "O(w) = (2*w < 2*Q ? A(w) : 0.0) + B(w)", "O(min(Q, R))"),
        (
            "float(Q) A",
            "T(i) = A(i/2) where i in 0:2*Q  O(w) = w/2 < Q ? T(w) : 0.0",
            "O(2*Q)",
        ),
        ("float(N) X", "O(0) +=! X(i) O(2) = 1.0 O(1) = 2.0", "O(3)"),
        ("float(N) X", "for t in N { O(N - 1 - t) = X(t) }", "O(N)"),
        ("float(N) X", "for i in N { O(i) +=! X(j) where j in 0:i+1 }", "O(N)"),
        ("float(N) X", "for i in 2:N { for j in 0:i { O(j) = X(i) } }", "O(N - 1)"),
        ("float(N) X", "O(0) = X(0) O(i) = X(i)", "O(N)"),
    ],
)
def test_extents(header: str, body: str, expected: str) -> None:
    assert shapes(inferred(f"def f({header}) -> (O) {{ {body} }}")) == expected


def test_a_known_extent_bounds_the_left_variable() -> None:
    program = inferred("def f(float(N) X) -> (O) { O(i) = X(i) O(i) = 0.0 }")
    assert ranges(program) == "i in 0:N"


def test_agreeing_sizes_of_a_call_make_one_bound() -> None:
    source = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def f(float(M,P) A, float(Q,N) B) -> (C) { C = mm(A, B) }"""
    program = inferred(source)
    assert checks(program) == ["size 3:48 Q == P"]
    assert ranges(program).endswith("k in 0:P")


def test_loops_that_share_a_name_get_two() -> None:
    program = inferred(
        "def f(float(N) X) -> (A, B) { for t in N { A(t) = X(t) } for t in N { B(t) = X(t) } }"
    )
    names = [item.variable for item in program.body]  # type: ignore[union-attr]
    assert names[0] == "t"
    assert names[1].startswith("t") and names[1] != "t"


@pytest.mark.parametrize(
    ("source", "column", "variable"),
    [
        ("def f() -> (C) { C(i) = 3 }", 20, "i"),
        ("def f(float(N,M) X) -> (Y) { Y(i,j) = X(10 + i - j, i + j) }", 32, "i"),
        ("def f(float(N) X) -> (Y) { Y(i) = X(i % 3) }", 30, "i"),
        ("def f(float(N) X) -> (Y) { Y(i) = X(i / 2) }", 30, "i"),
        ("def f(float(N) X, int32(N) P) -> (Y) { Y(i) +=! X(i) * X(P(j + k)) }", 60, "j"),
    ],
)
def test_not_inferable(source: str, column: int, variable: str) -> None:
    with pytest.raises(RangeError, match=f"`{variable}`") as caught:
        inferred(source)
    assert caught.value.column == column
    assert "where" in str(caught.value)


def test_statement_names_and_tensor_order() -> None:
    program = inferred("def f(float(N) X) -> (O) { a(i) = X(i) O(i) = a(i) }")
    assert [s.name for s in statements(program.body)] == ["S0", "S1"]
    assert [(t.name, t.role) for t in program.tensors] == [
        ("X", "input"),
        ("O", "output"),
        ("a", "temporary"),
    ]
