# SPDX-License-Identifier: Apache-2.0
"""The checks of a program fail at exactly those sizes at which running through its points fails."""

from __future__ import annotations

import itertools

import pytest

from tcsym.errors import TCError
from tcsym.frontend import parser
from tcsym.frontend.check import resolve
from tcsym.frontend.infer import infer
from tcsym.index.values import evaluate, holds
from tests.frontend.enumerate_points import Enumeration

HEADER = "def f(float(N) A, float(M) B, int32(N) P, float(N) D) -> "
PROGRAMS = [
    "(O) { O(i) = A(i) * B(i) }",
    "(O) { O(i) = A(i) where i in 0:M }",
    "(O) { O(i) +=! A(i + k) * B(k) }",
    "(O) { O(i) = i < M ? A(i) : 0.0 where i in 0:M + 1 }",
    "(O) { O(i) = i <= N ? A(i) : B(i - N) where i in 0:N+M }",
    "(float(N) O) { for t in N { O(t) = A(t) + O(N - 1 - t) } }",
    "(float(N) O) { for t in N { O(t) = D(t) > 0.0 ? O(N - 1 - t) : 0.0 } }",
    "(float(N) O) { for t in N { if t > 0 { O(t) = O(t-1) } else { O(t) = A(t) } } }",
    "(float(N) O) { for t in N { if t > 1 { O(t) = O(t-2) } else { O(t) = A(t) } } }",
    "(float(N) O) { for t in 1:N { O(t) = O(t-1) } O(0) = 1.0 }",
    "(float(N) O) { O(0) = 1.0 for t in 1:N { O(t) = O(t-1) } }",
    "(float(N+1) O) { O(0) = 1.0 for t in N { O(t+1) = O(t) * A(t) } }",
    "(float(N+1) O) { O(i) = A(i) where i in 0:N for t in M { O(N) = 1.0 } }",
    "(float(N,M) O) { for i in N { for j in 0:i+1 { O(i,j) = A(j) } } }",
    "(float(N,N) O) { O(i,j) = 0.0 for j in N { for i in j:N { O(i,j) = O(j,i) + 1 } } }",
    "(float(N,N) O) { for j in N { for i in j:N { O(i,j) = 1 O(j,i) = O(i,j) } } }",
    "(float(N) O) { for t in N { if t % 2 == 0 { O(t) = A(t) } } }",
    "(float(N) O) { for t in N { if t % 2 == 0 { O(t) = A(t) } else { O(t) = O(t-1) } } }",
    "(float(N) O) { for t in N { for u in 0:t { O(u) += A(t) } O(t) = A(t) } }",
    "(float(N) T, O) { T(0) = A(0) O(i) = T(P(i)) T(j) = A(j) }",
    "(float(N) T, O) { for t in N { O(t) = D(t) > 0.0 ? T(P(t)) : 0.0 T(t) = A(t) } }",
    "(float(N) T) { for t in N { T(t) = t > 0 ? T(P(t)) : A(t) } }",
    "(float(N) T) { for t in N { T(t) = A(t) for u in 0:t { T(t) = T(P(u)) } } }",
    "(float(2*N) T) { for t in N { T(2*t) = D(t) > 0.0 ? T(P(t)) : 0.0 T(2*t+1) = A(t) } }",
    "(float(N) T) { for t in N { T(N-1-t) = D(t) > 0.0 ? T(P(t) + t) : 0.0 } }",
    "(float(N,N) T) { for t in N { for u in 0:N { T(u,t) = D(t) > 0.0 ? T(P(u),t) : 0.0 } } }",
    "(float(N,M) T) { for t in N { T(t,j) = D(t) > 0.0 ? T(P(t),j) * B(j) : B(M-1-j) } }",
    "(O) { O(i) = 1.0 where i in 0:N O(i) += A(i) where i in 0:M, k in 0:N }",
    "(O) { O(i) = A(i) where exists B(i) }",
    "(O) { O(i) = 1.0 where i in 0:M, exists A(i) }",
    "(float(M) O) { O(i) = A(i) O(i) += B(i) }",
    "(float(N) O) { for t in N { s +=! A(k) where k in 0:t O(t) = s } }",
    "(float(N) O) { O(i) = 0.0 for t in M { O(t) = 1.0 } }",
    "(float(N) O) { O(i) = 0.0 for t in M { O(2*t) = 1.0 } }",
    "(O) { O(i) = A(i) > 0.0 && (i > 0 && A(i-1) > 0.0) }",
    "(O) { O(i) = i == 0 || A(i - 1) > 0.0 where i in 0:N }",
]


@pytest.mark.parametrize("text", PROGRAMS)
def test_checks_are_exact(text: str) -> None:
    try:
        program = infer(resolve(parser.parse(HEADER + text))["f"])
    except TCError:
        pytest.fail(f"refused for all sizes: {text}")
    for n, m in itertools.product(range(5), repeat=2):
        sizes = {"N": n, "M": m}
        failing = [c for c in program.checks if not holds(c.condition, sizes)]
        if any(evaluate(e, sizes) < 0 for t in program.tensors for e in t.shape):
            assert any(c.kind == "size" for c in failing)
            continue
        if any(c.kind == "size" for c in failing):
            continue
        found = Enumeration(program, sizes, seed=n * 7 + m).run()
        assert bool(failing) == bool(found), (sizes, failing, found)
        if failing:
            first = failing[0]
            assert (first.kind, first.span.line, first.span.column) in found
