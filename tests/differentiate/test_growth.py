# SPDX-License-Identifier: Apache-2.0
"""What a gradient takes grows as what its program takes: it looks for no term in all positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcsym.differentiate.derive import tangent_program
from tcsym.sizes.work import estimated_work, n_elements

from .differences import disagreement, drawn, gradient_of, only, run

MOST = 20  # operations for each of the program, and for each element: a search takes thousands
PADDED = {"B": 3, "L": 4, "V": 5, "D": 2}
LONG = {"B": 50, "L": 20, "V": 3000, "D": 8}
PROGRAMS = {
    "ids behind a length": (
        "def f(int32(B,L) id, int32(B) len, double(V,D) t) -> (Y) "
        "{ Y(b,d) +=! l < len(b) ? t(id(b,l),d) * t(id(b,l),d) : 0.0 }",
        PADDED,
        LONG,
    ),
    "ids below 0": (
        "def f(int32(B,L) id, double(V,D) t) -> (Y) "
        "{ Y(b,d) +=! id(b,l) >= 0 ? t(id(b,l),d) * t(id(b,l),d) : 0.0 }",
        PADDED,
        LONG,
    ),
    "rows that are padded": (
        "def f(int32(B) off, double(V,D) v, double(D) pad, size L) -> (double(B-1,L,D) Y) "
        "{ Y(b,l,d) = l < off(b+1) - off(b) ? v(off(b) + l, d) * v(off(b) + l, d) : pad(d) }",
        PADDED,
        LONG,
    ),
    "scores of tags": (
        "def f(int32(B,L) id, double(B,L,V) e, double(V,V) T) -> (double s) "
        "{ s +=! id(b,l) >= 0 ? e(b,l,id(b,l)) * e(b,l,id(b,l)) : 0.0 "
        "c +=! l + 1 < L && id(b,l+1) >= 0 ? sin(T(id(b,l),id(b,l+1))) : 0.0 where l in 0:L-1 "
        "s = s * c }",
        {"B": 3, "L": 4, "V": 5},
        {"B": 50, "L": 20, "V": 300},
    ),
    "the largest of what is there": (
        "def f(int32(B,L) id, double(V) t) -> (Y) "
        "{ Y(b) max=! id(b,l) >= 0 ? t(id(b,l)) : -9.0 Y(b) = Y(b) * Y(b) }",
        {"B": 3, "L": 4, "V": 5},
        {"B": 50, "L": 20, "V": 3000},
    ),
    "clamped": (
        "def f(double(N) X, double(K) W) -> (Y) "
        "{ Y(i) +=! X(min(max(i + k - K/2, 0), N - 1)) * X(i) * W(k) where i in 0:N }",
        {"N": 5, "K": 3},
        {"N": 4000, "K": 5},
    ),
    "another shape": (
        "def f(double(N,M) X) -> (double(N*M) Y) { Y(i) = X(i/M, i%M) * X(i/M, i%M) }",
        {"N": 3, "M": 4},
        {"N": 60, "M": 50},
    ),
    "moved around": (
        "def f(double(N) X) -> (double(N) Y) { Y(i) = X((i + 2) % N) * X(i) }",
        {"N": 5},
        {"N": 4000},
    ),
    "steps of a symbol": (
        "def f(double(N) X, double(K) W, size S) -> (Y) "
        "{ Y(i) +=! X(S*i + k) * X(S*i) * W(k) where i in 0:(N-K)/S+1 }",
        {"N": 9, "K": 3, "S": 2},
        {"N": 4000, "K": 5, "S": 2},
    ),
    "times a symbol": (
        "def f(double(N,M) X, size S) -> (double(S*N,S*M) Y) "
        "{ Y(i,j) = X(i/S,j/S) * X(i/S,j/S) where i in 0:S*N, j in 0:S*M }",
        {"N": 2, "M": 3, "S": 2},
        {"N": 40, "M": 30, "S": 2},
    ),
    "windows": (
        "def f(double(N) X, size K) -> (Y) "
        "{ Y(i,k) = X(3*i + k) * X(3*i) where i in 0:(N-K)/3+1, k in 0:K }",
        {"N": 9, "K": 4},
        {"N": 4000, "K": 4},
    ),
    "windows of dilation": (
        "def f(double(N) X, double(K) W, size S) -> (Y) { Y(i,k) = X(i + S*k) * W(k) }",
        {"N": 9, "K": 3, "S": 2},
        {"N": 4000, "K": 4, "S": 2},
    ),
    "the last, if": (
        "def f(double(N) X, int32(M) c) -> (double(M) Y) { Y(i) = c(i) > 0 ? X(N-1) * X(0) : 0.0 }",
        {"N": 4, "M": 3},
        {"N": 4000, "M": 3000},
    ),
    "of a step": (
        "def f(double(N) X, double(T) Z) -> (double(T) Y) { h = double(1.0) "
        "for t in T { h = h * Z(t) + X(min(t, N-1)) * h Y(t) = h } }",
        {"N": 3, "T": 5},
        {"N": 3000, "T": 4000},
    ),
    "steps before": (
        "def f(double(T) X, double(K) W) -> (double(T) h) { for t in T { if t < K { h(t) = X(t) } "
        "else { s +=! h(t-1-k) * W(k) h(t) = sin(s) + X(t) } } }",
        {"T": 6, "K": 2},
        {"T": 4000, "K": 4},
    ),
}


def given_of(name: str) -> dict[str, Any]:
    text, sizes, _ = PROGRAMS[name]
    given = drawn(only(text), sizes, np.random.default_rng(0))
    if "id" in given:
        given["id"] = np.array([[4, 0, 2, 4], [-1, -1, -1, -1], [3, 1, -1, -100]], np.int32)
    if "len" in given:
        given["len"] = np.array([4, 0, 2], np.int32)
    if "off" in given:
        given["off"] = np.array([0, 2, 5], np.int32)
    return given


@pytest.mark.parametrize("name", PROGRAMS)
def test_work_grows_as_that_of_the_program(name: str) -> None:
    text, sizes, long = PROGRAMS[name]
    program = only(text)
    given = given_of(name)
    for recompute in ("auto", "cheap"):
        free = {n: v for n, v in sizes.items() if n in program.free_sizes}
        assert disagreement(text, free, arrays=given, recompute=recompute) == ""
    made = gradient_of(program)
    more = long.get("B", max(long.values()))
    known = {**long, **dict.fromkeys(set(made.sizes) - long.keys(), more)}
    most = MOST * (estimated_work(program, long) + n_elements(made, known))
    assert estimated_work(made, known) <= most, made.source


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_of_gradients_and_tangents(name: str) -> None:
    """Positions that nothing is added at are looked at by neither."""
    text, sizes, _ = PROGRAMS[name]
    program = only(text)
    given = given_of(name)
    made = gradient_of(program, recompute="all")
    free = {n: v for n, v in sizes.items() if n in program.free_sizes}
    shapes = {n: y.shape for n, y in run(program, given, free).items()}
    rng = np.random.default_rng(1)
    weights = {n: rng.uniform(0.5, 1.5, shape) for n, shape in shapes.items()}
    known = given | {f"d{n}": w for n, w in weights.items()}
    own = {n: v for n, v in free.items() if n in made.free_sizes}
    taken = {t.name: known[t.name] for t in made.inputs}
    assert disagreement(made.source, own, arrays=taken) == ""
    back = run(made, taken, own)
    forth = tangent_program(program, None)
    along = {n: rng.uniform(-1, 1, given[n[1:]].shape) for n in back}
    found = run(forth, given | along, {n: v for n, v in free.items() if n in forth.free_sizes})
    forward = sum(float((found[f"d{n}"] * w).sum()) for n, w in weights.items())
    assert forward == pytest.approx(sum(float((back[n] * v).sum()) for n, v in along.items()))
