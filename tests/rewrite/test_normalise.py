# SPDX-License-Identifier: Apache-2.0
"""Statements are split exactly where simultaneity or a narrow accumulator asks for it."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.frontend.program import Program, statements
from tcsym.index.presburger import Presburger
from tcsym.rewrite.normalise import normalise


def _normalised(source: str) -> Program:
    program = next(iter(analyse(source).values()))
    return normalise(program, Presburger(program.sizes))


def _names(source: str) -> list[str]:
    return [s.name for s in statements(_normalised(source).body)]


UNCHANGED = [
    "def f(float(N) X) -> (Y) { Y(i) = X(i) Y(i) = Y(i) * 2 }",
    "def f(float(N) X) -> (float(N) Y) { for i in N {"
    " if i == 0 { Y(i) = X(i) } else { Y(i) = Y(i-1) + X(i) } } }",
    "def f(float(2,N) X) -> (float(3,N) Y) {"
    " Y(0,j) = X(0,j) Y(1,j) = X(1,j) Y(2,j) = Y(0,j) + Y(1,j) }",
    "def f(float(T,N,N) U, float(N) x) -> (float(T,N) h) {"
    " for t in T { if t == 0 { h(t,i) = x(i) } else { h(t,i) +=! U(t,i,k) * h(t-1,k) } } }",
]


@pytest.mark.parametrize("source", UNCHANGED)
def test_not_split(source: str) -> None:
    assert not any("." in name for name in _names(source))


SPLIT = {
    "def f(float(N) X) -> (Y) { Y(i) = X(i) Y(i) = Y(N-1-i) }": ["S0", "S1", "S1.store"],
    "def f(float(N) X, int32(N) p) -> (Y) { Y(i) = X(i) Y(i) = Y(p(i)) }": ["S0", "S1", "S1.store"],
    "def f(float(N,K) A, float(N) X) -> (Y) { Y(i) = X(i) Y(i) += Y(i) * A(i,k) }": [
        "S0",
        "S1.load",
        "S1",
        "S1.store",
    ],
    "def f(float(N,K) A, float(N) X) -> (Y) { Y(i) = X(i) Y(i) +=! Y(i) * A(i,k) }": [
        "S0",
        "S1",
        "S1.store",
    ],
    "def f(float(N,N) W) -> (float(N,N) D) { D(i,j) = W(i,j)"
    " for k in N { D(i,j) = fmin(D(i,j), D(i,k) + D(k,j)) } }": ["S0", "S1.old", "S1.old1", "S1"],
    "def f(float(N) X) -> (Y) { Y(i) = X(i) for k in N { Y(i) = Y(i) / (Y(k) * Y(k)) } }": [
        "S0",
        "S1.old",
        "S1",
    ],
    # N may be 0, and Y(i,0) nowhere then
    "def f(float(M,N) X) -> (Y) { Y(i,j) = X(i,j) Y(i,j) = Y(i,j) - Y(i,0) }": [
        "S0",
        "S1",
        "S1.store",
    ],
    # of as many dimensions as are written
    "def f(float(N,N) X) -> (Y) { Y(i,j) = X(i,j) Y(i,j) = Y(i,j) + Y(j,i) }": [
        "S0",
        "S1",
        "S1.store",
    ],
    "def f(float(N,N) X) -> (Y) { Y(i,j) = X(i,j)"
    " for k in N { Y(i,j) = i > k ? Y(i,j) - Y(k,j) : Y(i,j) + Y(k,i) } }": [
        "S0",
        "S1",
        "S1.store",
    ],
    "def f(half(K) A) -> (half s) { s +=! A(k) }": ["S0", "S0.store"],
    "def f(half(K) A, half b) -> (half s) { s = b s += A(k) }": ["S0", "S1.load", "S1", "S1.store"],
    "def f(half(N) A) -> (half(N) s) { s(i) = A(i) s(i) += A(i) }": ["S0", "S1"],
}


@pytest.mark.parametrize("source", SPLIT)
def test_split(source: str) -> None:
    assert _names(source) == SPLIT[source]


def test_temporaries_are_named_after_their_tensor() -> None:
    p = _normalised(
        "def f(half(N,K) A) -> (half(N) s) { s(i) +=! A(i,k) s(i) = s(N-1-i) s(i) += A(i,k) }"
    )
    assert [(t.name, str(t.dtype), str(t.shape[0])) for t in p.by_role("temporary")] == [
        ("s.sum", "float32", "N"),
        ("s.new", "float16", "N"),
        ("s.sum1", "float32", "N"),
    ]


def test_fixed_positions_do_not_reach_the_temporary() -> None:
    p = _normalised("def f(half(N,K) A) -> (half(3,N) s) { s(i,j) = 0.0 s(1,j) +=! A(j,k) }")
    (temporary,) = p.by_role("temporary")
    assert [str(x) for x in temporary.shape] == ["N"]
