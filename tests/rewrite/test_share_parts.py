# SPDX-License-Identifier: Apache-2.0
"""Parts of statements that become temporaries: which, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.frontend.program import Program, statements
from tcsym.index.presburger import Presburger
from tcsym.rewrite.normalise import normalise
from tcsym.rewrite.share_parts import share_parts
from tests.differential.inputs import arguments

NORM = """def f(float(M,N) X, float(N) V, float(N) G) -> (Y) {
  Y(m,n) = (X(m,n) - G(n)) * rsqrt(V(n) + 1.0) * G(n)
}"""
SHARED = {
    "root of a column": (NORM, ["n"]),
    "quotient": ("def f(float(M,N) X, float(N) A, float(N) B) -> (Y) {"
                 " Y(m,n) = X(m,n) * (A(n) / B(n)) }", ["n"]),
    "once": ("def f(float(M,N) X, float(N) A) -> (Y) {"
             " Y(m,n) = X(m,n) * exp(A(n)) + exp(A(n)) }", ["n"]),
    "two": ("def f(float(M,N) X, float(N) A) -> (Y) {"
            " Y(m,n) = X(m,n) * exp(A(n)) + log(A(n)) }", ["n", "n"]),
    "planes": ("def f(float(B,L,D) X, float(L,D) A) -> (Y) {"
               " Y(b,l,d) = X(b,l,d) * cos(A(l,d)) }", ["l d"]),
    "guarded": ("def f(float(M,N) X, float(N) A) -> (Y) {"
                " Y(m,n) = X(m,n) > 0.0 ? sqrt(A(n)) : X(m,n) }", ["n"]),
    "of the index": ("def f(float(M,N) X) -> (Y) { Y(m,n) = X(m,n) * exp(float(n) * 0.5) }", ["n"]),
    "position": ("def f(float(M,K) X, float(N) A) -> (Y) {"
                 " Y(m,n) = X(m,int32(fmin(fabs(A(n)), 0.9))) }", ["n"]),
    "weight and position": ("def f(float(M,K) X, float(N) A) -> (Y) {"
                            " Y(m,n) = (A(n) - float(int32(A(n))))"
                            " * X(m,int32(fmin(fabs(A(n)), 0.9))) }", ["n", "n"]),
    "half": ("def f(half(M,N) X, half(N) A) -> (Y) { Y(m,n) = X(m,n) * exp(A(n)) }", ["n"]),
}  # fmt: skip
KEPT = {
    "moved out of the loop": """def f(float(M,N) X, float(M) A) -> (Y) {
      Y(m,n) = X(m,n) * exp(A(m))
    }""",
    "all of it": "def f(float(M,N) X) -> (Y) { Y(m,n) = exp(X(m,n)) }",
    "cheap": "def f(float(M,N) X, float(N) A) -> (Y) { Y(m,n) = X(m,n) * fmax(A(n), 0.0) }",
    "by a constant": "def f(float(M,N) X, float(N) A) -> (Y) { Y(m,n) = X(m,n) * (A(n) / 3.0) }",
    "another part": """def f(float(M,N) X, float(K) A) -> (Y) {
      Y(m,n) = X(m,n) * exp(A(n+1))
    }""",
    "gathered": """def f(float(M,N) X, float(K) A, int32(N) I) -> (Y) {
      Y(m,n) = X(m,n) * exp(A(I(n)))
    }""",
    "a sum": "def f(float(M,N) X, float(N) A) -> (Y) { Y(m) +=! X(m,n) * exp(A(n)) }",
    "in a loop": """def f(float(M,N) X, float(N) A) -> (float(T,M,N) Y) {
      for t in 0:T { Y(t,m,n) = X(m,n) * exp(A(n)) }
    }""",
}


def shared(text: str) -> tuple[Program, Program]:
    program = tcsym.define(text).f.program
    program = normalise(program, Presburger(program.sizes))
    return program, share_parts(program)


@pytest.mark.parametrize("name", SHARED)
def test_parts_become_statements(name: str) -> None:
    text, indices = SHARED[name]
    _, program = shared(text)
    *parts, rest = statements(program.body)
    assert [" ".join(r.variable for r in p.domain) for p in parts] == indices
    assert rest.target == "Y" and {p.target for p in parts} == {
        t.name for t in program.tensors if t.role == "temporary"
    }


@pytest.mark.parametrize("name", KEPT)
def test_others_stay(name: str) -> None:
    before, after = shared(KEPT[name])
    assert after is before


@pytest.mark.parametrize("name", [*SHARED, *KEPT])
def test_results_are_those_of_the_reference(name: str) -> None:
    text = SHARED[name][0] if name in SHARED else KEPT[name]
    kernel = tcsym.define(text).f
    for m, n, t in ((0, 5, 3), (5, 0, 3), (3, 5, 0), (1, 1, 1), (7, 19, 4), (40, 33, 2)):
        every = {"M": m, "N": n, "T": t, "K": n + 1, "B": t, "L": m, "D": n}
        sizes = {v: every[v] for v in kernel.sizes}
        inputs = arguments(kernel, sizes, {"I": "index K"} if "I(" in text else {}, "dense")
        got, want = kernel(**inputs, sizes=sizes), kernel.reference(**inputs, sizes=sizes)
        np.testing.assert_allclose(got, want, rtol=2e-3 if name == "half" else 1e-5, atol=1e-6)
