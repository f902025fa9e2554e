# SPDX-License-Identifier: Apache-2.0
"""Gradients and tangents beside finite differences: a small program for each rule, and layers."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

import tcsym
from tcsym import library
from tcsym.builtins import ARITY
from tcsym.differentiate.derive import Recompute, gradient, tangent_program
from tcsym.errors import DerivativeError, OptionError
from tcsym.frontend.program import Item

from .differences import disagreement, doubled, drawn, gradient_of, only, run

N3 = {"N": 3}
PROGRAMS = {
    "chain": ("def f(double(N) X) -> (Y) { Y(i) = exp(-X(i)) / (1 + X(i) * X(i)) % 0.7 }", N3),
    "extrema": (
        "def f(double(N) X, double(N) Z) -> (Y) "
        "{ Y(i) = min(X(i), Z(i)) * max(X(i), 1.0) + (X(i) > Z(i) ? X(i) * Z(i) : sqrt(Z(i))) }",
        N3,
    ),
    "several outputs": (
        "def f(double(N,M) X) -> (Y, s) { Y(i) +=! X(i,j) s +=! Y(i) * Y(i) }",
        {"N": 3, "M": 2},
    ),
    "accumulates": (
        "def f(double(N) O, double(N,M) X) -> (Y) "
        "{ Y(i) = O(i) Y(i) += X(i,j) * X(i,j) Y(i) *= X(i,j) Y(i) = Y(i) * O(i) }",
        {"N": 3, "M": 2},
    ),
    "products": ("def f(double(N,M) X) -> (Y) { Y(i) *=! X(i,j) }", {"N": 3, "M": 4}),
    "largest of a box": (
        "def f(double(N,M,K) X) -> (Y) { Y(j) max=! X(i,j,k) * X(i,j,k) }",
        {"N": 2, "M": 3, "K": 4},
    ),
    "diagonal": ("def f(double(N,N) X) -> (Y) { Y(i) = X(i,i) }", N3),
    "shift": ("def f(double(N) X) -> (double(N) Y) { Y(i) = i > 0 ? X(i-1) : 0.0 }", N3),
    "reversed": ("def f(double(N) X) -> (double(N) Y) { Y(i) = X(N-1-i) }", N3),
    "fixed": ("def f(double(N) X) -> (Y) { Y(i) = X(i) * X(N-1) + X(0) }", N3),
    "halves": ("def f(double(N) X) -> (double(2*N) Y) { Y(i) = X(i/2) * X(i/2) }", N3),
    "remainders": ("def f(double(N) X) -> (double(2*N) Y) { Y(i) = X(i%N) }", N3),
    "quotients that are taken away": (
        "def f(double(N) X) -> (Y) { Y(i) = X((-(3*i/2) - 2) % N) where i in 0:N }",
        {"N": 4},
    ),
    "clamped": (
        "def f(double(N) X, double(K) W) -> (Y) "
        "{ Y(i) +=! X(min(i + k, N - 1)) * W(k) where i in 0:N }",
        {"N": 4, "K": 3},
    ),
    "stride": (
        "def f(double(N) X, double(K) W) -> (Y) { Y(i) +=! X(3*i + 2*k) * W(k) }",
        {"N": 9, "K": 2},
    ),
    "windows side by side": (
        "def f(double(N) X, double a) -> (Y) "
        "{ Y(i) *=! X(3*i + k - 1) * X(3*i + k - 1) * a where k in 2:5 }",
        {"N": 12},
    ),
    "windows with gaps": (
        "def f(double(N,M) X) -> (Y) { Y(i,j) max=! X(4*i + 2*k, 3*j + l) "
        "where k in 0:2, l in 1:3 }",
        {"N": 9, "M": 8},
    ),
    "what bounds another sum": (
        "def f(double(N) X, double(N) Z) -> (s, Y) { s +=! X(i + k) where k in 0:2, i in 0:k+1 "
        "Y(i) +=! X(i + 1) * Z(k) where k in 0:i+1 }",
        {"N": 4},
    ),
    "what bounds another sum, backwards": (
        "def f(double(N) X, double(N) Z) -> (double(N) Y) "
        "{ Y(i) +=! X(i - k) * Z(k) where k in 0:i+1 }",
        {"N": 4},
    ),
    "scatters by its own old values": (
        "def f(double(N) X) -> (double(N) Y) "
        "{ Y(i) = 2.0 * X(i) Y(int32(99 * Y(i)) % N) += X(i) * X(i) }",
        {"N": 4},
    ),
    "windows in a triangle": (
        "def f(double(N) X) -> (s) { s +=! X(2*i + k) * X(2*i + k) where k in 0:2, i in 0:k+1 }",
        {"N": 5},
    ),
    "border": (
        "def f(double(N) X) -> (double(N+2) Y) { Y(i) = 0.0 Y(0) = X(0) Y(N+1) = X(N-1) * X(0) }",
        N3,
    ),
    "overwritten in a loop": (
        "def f(double(T,N) X, double a) -> (Y) { h(i) = double(0.0) where i in 0:N "
        "for t in T { h(i) = a * h(i) + X(t,i) Y(t,i) = h(i) * h(i) } }",
        {"T": 3, "N": 2},
    ),
    "last step": (
        "def f(double(T,N) X) -> (double(N) h) { h(i) = 1.0 "
        "for t in T { h(i) = tanh(h(i) * X(t,i)) } }",
        {"T": 3, "N": 2},
    ),
    "triangle": (
        "def f(double(N,N) L, double(N) b) -> (double(N) x) { for i in N "
        "{ s +=! L(i,j) * x(j) where j in 0:i x(i) = (b(i) - s) / L(i,i) } }",
        {"N": 4},
    ),
    "gathers": (
        "def f(double(E,D) X, int32(B,L) id) -> (Y) { z(b,d) +=! X(id(b,l), d) * X(id(b,l), d) "
        "Y(b,d) = z(b,d) * z(b,d) }",
        {"E": 4, "D": 2, "B": 3, "L": 2},
    ),
    "gathers what it computes": (
        "def f(double(E) X, int32(B) id) -> (Y) { z(e) = exp(X(e)) Y(b) = z(id(b)) * z(id(b)) }",
        {"E": 4, "B": 3},
    ),
    "scatters": (
        "def f(double(B,D) X, int32(B) id) -> (double(5,D) Y) { Y(id(b), d) +=! X(b,d) * X(b,d) }",
        {"B": 4, "D": 2},
    ),
    "scatters the largest": (
        "def f(double(B) X, double(4) Z, int32(B) id) -> (double(4) Y) "
        "{ Y(i) = Z(i) Y(id(b)) max= 2 * X(b) }",
        {"B": 4},
    ),
    "scatters with steps": (
        "def f(double(B) X, double(K) W) -> (double(2*B+K) Y) { Y(2*i+k) +=! X(i) * W(k) }",
        {"B": 4, "K": 3},
    ),
    "scatters where it said before": (
        "def f(double(N) X) -> (double(N) T, double(N) Y) { T(i) = X(i) > 1.0 ? 1.0 : 0.0 "
        "Y(i) = 0.0 Y(min(int32(T(i)), N - 1)) += X(i) * X(i) T(i) = T(i) * X(i) }",
        N3,
    ),
    "branches": (
        "def f(double(N) X) -> (Y) { for i in N { if i == 0 { Y(i) = X(i) } "
        "else { if i % 2 == 0 { Y(i) = Y(i-1) * X(i) } else { Y(i) = Y(i-1) + X(i) } } } }",
        {"N": 5},
    ),
    "guarded steps": (
        "def f(double(T,N) A, double(T,N) B) -> (double(T,N) Y) { for t in T { "
        "if t == 0 { h(n,t) = A(t,n) * A(t,n) } else { h(n,t) = h(n,t-1) * B(t,n) } "
        "Y(t,n) = (t > 0 ? h(n,t-1) : h(n,t)) * (t > 0 ? h(n,t-1) : h(n,t)) } }",
        {"T": 3, "N": 2},
    ),
    "triangles": (
        "def f(double(N) X) -> (Y) { Y(i) +=! X(k) * X(p) where k in 0:i+1, p in k/2:k+1 }",
        {"N": 4},
    ),
    "windows": (
        "def f(double(N) X, double(R) W) -> (Y, M) { M(i) max=! X(k) where k in max(i-R,0):i+1 "
        "Y(i) +=! X(i-k) * W(k) where k in 0:min(i+1,R), i in 0:N }",
        {"N": 6, "R": 3},
    ),
    "comparisons as numbers": (
        "def f(double(N) X, double(N) Z) -> (Y) { Y(i) = X(i) * X(i) Y(i) max= (Z(i) > 1.0) "
        "Y(i) = Y(i) * min(Z(i), double(X(i) > 1.0)) }",
        {"N": 6},
    ),
    "causal attention": (
        "def f(double(L,D) Q, double(L,D) K, double(L,E) V) -> (O) { S(i,j) +=! Q(i,d) * K(j,d) "
        "m(i) max=! S(i,j) where j in 0:i+1 P(i,j) = exp(S(i,j) - m(i)) "
        "z(i) +=! P(i,j) where j in 0:i+1 "
        "O(i,e) +=! P(i,j) * V(j,e) where j in 0:i+1 O(i,e) = O(i,e) / z(i) }",
        {"L": 3, "D": 2, "E": 2},
    ),
}
# Loops whose states are kept at the starts of segments alone.
SEGMENTS = {
    "overwritten": (
        "def f(double(T,N) X, double a) -> (Y) { h(i) = double(0.0) where i in 0:N "
        "for t in T { h(i) = a * h(i) + X(t,i) Y(t,i) = h(i) * h(i) } }",
        ["h_2_start"],
    ),
    "several states": (
        "def f(double(T,N) X, double a) -> (double s) { h(n) = double(1.0) where n in 0:N "
        "c(n) = double(0.5) where n in 0:N for t in T { g(n) = tanh(X(t,n) + h(n)) "
        "c(n) = c(n) * g(n) + a h(n) = sin(c(n)) * g(n) } s +=! h(n) * c(n) }",
        ["c_2_start", "h_2_start"],
    ),
    "two steps back": (
        "def f(double(T,N) X, double(N) b) -> (double(N) y) { h(0,n) = b(n) h(1,n) = b(n) * b(n) "
        "for t in T { h(t+2,n) = sin(h(t+1,n)) + h(t,n) * X(t,n) } y(n) = h(T+1,n) }",
        ["h_start2", "h_start"],
    ),
    "two loops": (
        "def f(double(T,N) X, double(U,N) Z) -> (double(N) y) { h(n) = double(1.0) where n in 0:N "
        "for t in T { h(n) = tanh(h(n) * X(t,n)) } "
        "for u in U { h(n) = sin(h(n) + Z(u,n)) * h(n) } y(n) = h(n) }",
        ["h_2_start", "h_4_start"],
    ),
    "a loop inside": (
        "def f(double(T,N) X) -> (double(N) y) { h(n) = double(1.0) where n in 0:N "
        "for t in T { for k in t:T { h(n) = tanh(h(n) * X(t,n) + X(k,n)) } } y(n) = h(n) }",
        ["h_2_start"],
    ),
    "branches": (
        "def f(double(T,N) A, double(T,N) B) -> (double(T,N) Y) { for t in T { if t == 0 "
        "{ h(n,t) = A(t,n) * A(t,n) } else { h(n,t) = h(n,t-1) * B(t,n) } Y(t,n) = h(n,t) } }",
        ["h_start"],
    ),
    "sums, and what is not smooth": (
        "def f(double(V,H) E, int32(T) id, double(H,H) U) -> (double(H) y) { h(0,i) = double(0.1) "
        "where i in 0:H for t in T { z(i) +=! U(i,j) * h(t,j) m max=! U(i,j) * z(j) "
        "h(t+1,i) = tanh(z(i) + m * E(id(t),i)) } y(i) = h(T,i) }",
        ["h_start"],
    ),
    "positions that are no sums": (
        "def f(double(T,N) X, double(U) b) -> (double(N) y) { h(n) = double(1.0) where n in 0:N "
        "for t in T { h(n) = sin(h(n)) * b(min(t, U - 1)) + X(t,n) } y(n) = h(n) }",
        ["h_2_start"],
    ),
    "no state is kept, and the last is read under a condition": (
        "def f(double(T,N) X, int32(N) c) -> (double(N) y) { h(n) = double(1.0) where n in 0:N "
        "for t in T { g(n) = sin(X(t,n)) h(n) = 0.5 * h(n) + g(n) * g(n) } "
        "y(n) = c(n) > 0 ? h(n) : double(0.0) }",
        [],
    ),
    "all states are read behind": (
        "def f(double(T,N) X, double(N) b) -> (double s) { h(0,n) = b(n) for t in T "
        "{ g(n) = sin(h(t,n)) h(t+1,n) = tanh(g(n) * X(t,n)) } "
        "s +=! h(t,n) * h(t,n) where t in 0:T }",
        ["h"],
    ),
    "the first step is another": (
        "def f(double(N,N) X, double(N) b) -> (double(T,N) h) { for t in T { if t == 0 "
        "{ h(t,n) = b(n) } else { q(n) +=! h(t-1,k) * X(k,n) h(t,n) = tanh(q(n)) * 0.5 } } }",
        ["q_1_start"],
    ),
    "backwards, in a slice of a state": (
        "def f(double(T) X) -> (double(T) z) { y(i) = X(i) for t in T { b(T-t-1) +=! y(i) * X(i) "
        "y(T-t-1) += 0.5 * b(T-t-1) y(T-1) = 0.5 * y(T-1) } z(i) = y(i) * y(i) }",
        ["y_2_start", "b"],
    ),
}
RAGGED = {
    "rows": "double(B,3) X) -> (Y) { Y(b) +=! X(b,l) * X(b,l) where n = min(at(b), 3), l in 0:n }",
    "bag": "int32(5) id, double(4,2) X) -> (Y) "
    "{ Y(b,d) +=! X(id(j),d) * X(id(j),d) where j in at(b):at(b+1) }",
    "segments": "double(5,2) X, double(B) w) -> (Y) "
    "{ Y(b,d) +=! X(j,d) * w(b) where j in at(b):at(b+1) }",
    "pairs": "double(5) X) -> (Y) "
    "{ Y(b) max=! X(j) * X(k) where n = min(at(b), 4), j in n:5, k in j/2:j+1 }",
    "products": "double(5) X) -> (Y) { Y(b) *=! X(j) where j in 0:at(b) }",
    "longer": "double(9) W, double(5) X) -> (double(B-1) Y) "
    "{ Y(b) +=! W(b) * X(j) where j in at(b):at(b+1) }",
    "pairs of a row": "double(5) X, double(9) w) -> (double(B-1) Y) "
    "{ Y(b) +=! X(j) * X(k) * w(b) where j in at(b):at(b+1), k in j:at(b+1) }",
    "pairs under a guard": "double(5) X) -> (double(B-1) Y) "
    "{ Y(b) +=! j < k ? X(j) * X(k) : 0.0 where j in at(b):at(b+1), k in at(b):at(b+1) }",
    "pairs of what is padded": "int32(5) no, double(5) X, double(4) w) -> (double(B-1) Y) "
    "{ Y(b) +=! no(j) >= 0 ? X(j) * w(no(j)) * X(k) : 0.0 "
    "where j in at(b):at(b+1), k in at(b):at(b+1) }",
    "steps over pairs": "double(5) X) -> (double s) { s = double(1.0) for b in B-1 { "
    "c +=! X(j) * X(k) * s where j in at(b):at(b+1), k in at(b):at(b+1) s = s * 0.5 + c } }",
    "steps": "double(5) X, double a) -> (double s) { s = a for t in B "
    "{ c +=! X(j) * s where j in 0:at(t) s = s * 0.5 + c } }",
    "pairs of neighbours": "double(B) X, double(B,9) W) -> (double(5,B,2) Y) "
    "{ Y(0,b,c) = 1.0 where b in 0:B, c in 0:2 for t in 4 { "
    "Y(t+1,b,c) +=! X(j+1) * Y(t,j,c) * W(b,j+1) where j in 0:at(b)/2 } }",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_differences(name: str) -> None:
    text, sizes = PROGRAMS[name]
    assert disagreement(text, sizes) == ""
    recompute = ("all", "none", "cheap")[list(PROGRAMS).index(name) % 3]
    assert disagreement(text, sizes, recompute=recompute) == ""


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", SEGMENTS)
def test_gradients_from_states_of_some_steps(name: str) -> None:
    text, kept = SEGMENTS[name]
    assert [t.name for t in gradient(only(text), None, Recompute.SQRT).saved] == kept
    for steps, lengths in ((1, (0, 1, 3)), (2, (0, 1, 2, 3, 4, 5)), (7, (3,))):
        for n in lengths:
            sizes = {"T": n, "U": 3, "N": 2, "H": 2, "V": 2}
            sizes = {k: v for k, v in sizes.items() if k in only(text).sizes}
            assert disagreement(text, sizes, recompute="sqrt", steps=steps) == ""


def test_steps_of_segments_write_where_they_are() -> None:
    text, _ = SEGMENTS["backwards, in a slice of a state"]
    source = gradient_of(only(text), recompute="sqrt").source
    assert "    dy_2(S - u - 1, S + S*c + T + u - C*S) += " in source
    assert "C*S + p" not in source  # all positions, of which a condition keeps one


def test_gradients_from_states_of_some_steps_have_gradients() -> None:
    text, _ = SEGMENTS["overwritten"]
    twice = gradient_of(only(text), recompute="sqrt").source
    given = drawn(only(twice), {"T": 3, "N": 2, "C": 3}, np.random.default_rng(0))
    assert disagreement(twice, {"S": 2}, arrays=given) == ""


def test_states_of_segments_of_other_steps_are_refused() -> None:
    kernel = tcsym.define(
        """def f(double(T,N) X, double(N) a) -> (y) {
          h(i) = double(0) where i in 0:N
          for t in T { h(i) = tanh(a(i) * h(i) + X(t,i)) }
          y(i) = h(i)
        }"""
    ).f
    saving, grad = kernel.saving(recompute="sqrt"), kernel.grad(recompute="sqrt")
    X, a, dy = np.ones((10, 2)), np.array([0.5, 0.25]), np.ones(2)
    found = {}
    for steps in (2, 3, 10):
        _, starts = saving(X, a, sizes={"S": steps})
        found[steps] = grad(X, a, starts, dy, sizes={"S": steps})
        for other in {2, 3, 10} - {steps}:
            with pytest.raises(tcsym.TCError, match="out of range for these sizes"):
                grad(X, a, starts, dy, sizes={"S": other})
    for each in zip(*found.values(), strict=True):
        np.testing.assert_allclose(each[0], each[1], rtol=1e-12)
        np.testing.assert_allclose(each[0], each[2], rtol=1e-12)


def test_states_of_a_segment_take_its_memory() -> None:
    f = tcsym.define(PROGRAMS["last step"][0], target="cpu:avx2").f
    saving, back = f.saving(recompute="sqrt"), f.grad(recompute="sqrt")
    with pytest.raises(tcsym.SizeError, match="`S` must not be 0"):
        saving(np.ones((3, 2)), 0)
    sizes = {"T": 10_000, "N": 64, "S": 100}
    states, read_or_made = 8 * 64 * 10_000, 8 * 64 * 2 * 10_000
    assert saving.memory().at(1, **sizes) < read_or_made // 2 + states // 20
    assert back.memory().at(1, **sizes, C=101) < read_or_made + states // 10
    assert f.grad().memory().at(1, T=10_000, N=64) > read_or_made + states


@pytest.mark.parametrize("name", RAGGED)
def test_gradients_of_ragged_ranges(name: str) -> None:
    text = f"def f(int32(B) at, {RAGGED[name]}"
    given = drawn(only(text), {"B": 4}, np.random.default_rng(0))
    given |= {"at": np.array([0, 2, 2, 5], np.int32)}
    if "id" in given:
        given["id"] = np.array([1, 3, 1, 0, 2], np.int32)
    if "no" in given:
        given["no"] = np.array([1, -1, 1, -100, 2], np.int32)
    assert disagreement(text, {"B": 4}, arrays=given) == ""


def test_texts_of_gradients_invert_ranges() -> None:
    f = only("def f(float(N) X) -> (Y) { Y(i) +=! X(k) where k in 0:i+1 }")
    assert "dX(k) +=! dY(i) where i in k:N" in gradient_of(f).source
    bag = "def f(int32(B) at, int32(J) id, float(V) X) -> (Y) "
    bag += "{ Y(b) +=! X(id(j)) where j in at(b):at(b+1) }"
    assert "dX(id(j)) += dY(b2) where j in at(b2):at(b2 + 1)" in gradient_of(only(bag)).source
    segments = "def f(int32(B) at, double(J) X) -> (Y) { Y(b) +=! X(j) where j in at(b):at(b+1) }"
    gradient = gradient_of(only(segments))
    assert "dX(at2(j)) += dY(b2) where j in at(b2)" in gradient.source
    given = drawn(gradient, {"B": 4, "J": 5, "P": 3}, np.random.default_rng(0))
    given |= {"at": np.array([0, 2, 2, 5], np.int32)}
    assert disagreement(gradient.source, {}, arrays=given) == ""
    with pytest.raises(DerivativeError, match="the range of `j` has no bound"):
        gradient_of(
            only("def f(int32(B) n, float(B) X) -> (Y) { Y(b) +=! X(b) where j in 0:n(b) }")
        )


@pytest.mark.parametrize(
    "dtype, value",
    [
        ("uint8", "-C(k)"),
        ("uint32", "C(k) - 2 * C(i)"),
        ("bool", "C(k) + C(i)"),
        ("int32", "100000 * C(k) * C(i)"),
    ],
)
@pytest.mark.parametrize("form", ["A(i) * {}", "tanh(min(A(i) / C(i), {}))"])
def test_integers_keep_their_types_under_results_that_are_declared(
    dtype: str, value: str, form: str
) -> None:
    integer = f"double({value})" if dtype == "bool" else value
    body = form.format(integer).replace("/ C(i)", "/ double(C(i))")
    source = f"def f(double(K) A, {dtype}(K) C) -> (Y) {{ Y(i) +=! {body} }}"
    rng = np.random.default_rng(0)
    given = {"A": rng.uniform(0.5, 1.5, 3), "C": np.ones(3, dtype)}
    if dtype == "int32":
        given["C"] *= 1000
    assert disagreement(source, {"K": 3}, arrays=given) == ""
    forth = tangent_program(only(source), ["A"])
    back = gradient_of(only(source))
    weights, along = rng.uniform(-1, 1, (2, 3))
    gradient = run(back, {**given, "dY": weights}, {"K": 3})["dA"]
    tangent = run(forth, {**given, "dA": along}, {"K": 3})["dY"]
    assert gradient @ along == pytest.approx(weights @ tangent, rel=1e-12)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "double"])
def test_counts_of_conditions_are_of_the_type_that_is_declared(dtype: str) -> None:
    declared = f"def f(double(N) X) -> ({dtype}(N) T, Y) {{ T(i) +=! "
    given = f"def f(double(N) X, {dtype}(N) O) -> (Y) {{ T(i) = O(i) T(i) += "
    for start in (declared, given):
        text = start + "X(k) > 0.5 where i in 0:N Y(i) = X(i) * T(i) }"
        for recompute in ("all", "none"):
            assert disagreement(text, {"N": 4}, recompute=recompute) == ""


def test_texts_of_gradients_give_no_warnings() -> None:
    program = only(
        "def f(double(N) X, uint8(N) B) -> (Y) { s +=! B(i) + B(i) "
        "z(i) = i > 0 ? X(i-1) * (1 / N) : 0.0 Y(i) = exp(z(i) * (i / 2)) * s }"
    )
    assert {t.kind for t in program.traps} == {"division", "narrow"}
    assert gradient_of(program, recompute="all").traps == ()
    spread = only(
        "def f(double(N) X, double(K) W) -> (double(2*N) Y) { Y(2*i) *=! cos(min(X(i), i)) }"
    )
    twice = gradient_of(gradient_of(spread, recompute="none"), recompute="none")
    assert twice.traps == () and "int32(i/2)" in twice.source
    for value in ("sin(2 * i + 1)", "(3.0 + i * (N - i))"):
        text = f"def f(double(N) X) -> (double(N/2) Y) {{ Y(i) = X(2*i) * {value} }}"
        assert gradient_of(only(text)).traps == ()
    steps = only(
        "def f(double(N) X, double(K) W, double(K,K) U) -> (double(N+1,K) Y) { Y(0,k) = W(k) "
        "for t in N { Y(t+1,k) = W(k) * t Y(t+1,k) += Y(t,j) * U(k,j) "
        "Y(t+1,k) = tanh(Y(t+1,k)) * 0.5 } }"
    )
    assert gradient_of(steps, recompute="sqrt").traps == ()
    assert tangent_program(program, None).traps == ()


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", ["several outputs", "largest of a box", "last step", "products"])
def test_gradients_at_sizes_0_and_1(name: str, n: int) -> None:
    text, sizes = PROGRAMS[name]
    assert disagreement(text, dict.fromkeys(sizes, n)) == ""


@pytest.mark.parametrize("name", ["softmax", "conv2d_stride2", "embedding_bag", "lstm", "viterbi"])
def test_gradients_of_layers(name: str) -> None:
    program = only(doubled(library.source(name)))
    sizes = {
        s: 5 if s in "HW" and name == "conv2d_stride2" else 2 + (s in "TD") for s in program.sizes
    }
    assert disagreement(doubled(library.source(name)), sizes) == ""


def test_gradients_of_gradients() -> None:
    text = tcsym.define(
        "def f(double(N,M) X, double(M) w) -> (Y) "
        "{ e(i,j) = exp(X(i,j) * w(j)) s(i) +=! e(i,j) Y(i,j) = e(i,j) / s(i) }"
    )
    twice = text.grad(recompute="all")
    assert disagreement(twice.source, {"N": 2, "M": 3}) == ""
    assert disagreement(twice.grad(recompute="all").source, {"N": 2, "M": 3}) == ""


@pytest.mark.parametrize("name", ["chain", "several outputs", "products", "triangle", "branches"])
def test_tangents_and_gradients_agree(name: str) -> None:
    text, sizes = PROGRAMS[name]
    program, rng = only(text), np.random.default_rng(0)
    given = drawn(program, sizes, rng)
    results = run(program, given, sizes)
    weights = {f"d{n}": rng.uniform(-1, 1, y.shape) for n, y in results.items()}
    along = {f"d{n}": rng.uniform(-1, 1, x.shape) for n, x in given.items()}
    back = run(gradient_of(program), {**given, **results, **weights}, {})
    left = sum(float((back[n] * x).sum()) for n, x in along.items())
    for recompute in (Recompute.ALL, Recompute.AUTO):
        forth = run(tangent_program(program, None, recompute), {**given, **results, **along}, {})
        right = sum(float((weights[n] * y).sum()) for n, y in forth.items())
        assert left == pytest.approx(right, rel=1e-9)


def test_tangents_of_what_is_kept_sum_nothing_again() -> None:
    saving = library.load("softmax").saving()
    tangent = saving.jvp(recompute="auto")
    assert list(tangent.signature.inputs) == ["X", "Y", "s", "dX"]
    assert "exp(" not in tangent.source and "\n  s(n)" not in tangent.source
    with pytest.raises(OptionError, match="recompute"):
        saving.jvp(recompute="cheap")


def test_gradients_of_gradients_of_gates() -> None:
    text = tcsym.define(
        "def f(double(T,H) X, double(2,H) c) -> (double(T+1,H) S) { S(0,h) = 1.0 for t in T "
        "{ g(q,h) = S(t,h) * c(q,h) S(t+1,h) = tanh(g(0,h) + X(t,h)) * g(1,h) } }"
    )
    assert disagreement(text.grad().source, {"T": 2, "H": 1, "P": 3}) == ""


LINEAR = ("fabs", "fdim", "fmax", "fmin")  # piecewise


@pytest.mark.parametrize("function", sorted(ARITY))
def test_every_function_has_a_derivative(function: str) -> None:
    names = "ABCD"[: ARITY[function]]
    params = ", ".join(f"double(N) {x}" for x in names)
    reads = ", ".join(f"{x}(i)" for x in names)
    less = ("acos", "asin", "atanh", "erfinv", "normcdfinv")
    first = "1.0 + A(i)" if function == "acosh" else "0.5 * A(i)" if function in less else "A(i)"
    reads = reads.replace("A(i)", first)
    text = f"def f({params}) -> (Y) {{ Y(i) = {function}({reads}) }}"
    rng = np.random.default_rng(3)
    arrays = {x: rng.uniform(0.55, 1.45, 4) for x in names}
    assert disagreement(text, {"N": 4}, arrays=arrays) == ""
    back, arrays = gradient_of(only(text), recompute="all"), {**arrays, "dY": np.ones(4)}
    known = {t.name: arrays[t.name] for t in back.inputs}
    moving = [x for x in names if x in known]
    if function in LINEAR:
        with pytest.raises(tcsym.DerivativeError, match="no floating output"):
            gradient_of(back, moving)
    elif moving:
        assert disagreement(back.source, {"N": 4}, arrays=known) == ""


def test_derivatives_of_gamma_functions() -> None:
    """Of lgamma: -0.5772… at 1, with 15 digits; and on both sides of 1/2."""
    back = gradient_of(only("def f(double(N) X) -> (Y) { Y(i) = lgamma(X(i)) }"))
    given = {"X": np.array([1.0, 0.5, 0.25, 100.0, -1.5]), "dY": np.ones(5)}
    expected = [-0.5772156649015329, -1.9635100260214235, -4.2274535333762654]
    expected += [4.600161852738087, 0.7031566406452432]
    np.testing.assert_allclose(run(back, given, {})["dX"], expected, rtol=2e-15)


def test_ties_are_as_in_torch() -> None:
    text = (
        "def f(double(N) A, double(N) B) -> (X, F, G) "
        "{ X(i) = max(A(i), B(i)) F(i) = fmax(A(i), B(i)) G max=! A(i) }"
    )
    ones = {x: np.ones(2) for x in ("A", "B", "dX", "dF")} | {"dG": np.ones(())}
    program = only(text)
    found = run(gradient_of(program), {**ones, **run(program, ones, {})}, {})
    assert found["dA"].tolist() == [2.5, 1.5]
    assert found["dB"].tolist() == [0.5, 0.5]


def test_products_with_zeros() -> None:
    program = only("def f(double(N) X) -> (Y) { Y *=! X(i) }")
    for x, expected in (([2, 0, 3], [0, 6, 0]), ([0, 0, 3], [0, 0, 0]), ([2, 4, 3], [12, 6, 8])):
        given = {"X": np.array(x, float), "dY": np.ones(())}
        assert run(gradient_of(program), given, {})["dX"].tolist() == expected


def test_sigmoids_of_large_numbers_have_finite_gradients() -> None:
    program = only("def f(double(N) X) -> (Y) { Y(i) = 1.0 / (1.0 + exp(-X(i))) }")
    given = {"X": np.array([-1000.0, 0, 1000]), "dY": np.ones(3)}
    given |= run(program, given, {})
    assert run(gradient_of(program), given, {})["dX"].tolist() == [0, 0.25, 0]


def test_constants_are_those_of_the_type() -> None:
    gradient = gradient_of(only("def f(float(N) X) -> (Y) { Y(i) = log10(X(i)) + erf(X(i)) }"))
    assert "float(" not in gradient.source.split("\n", 1)[1]


def test_positions_and_ends_keep_their_types_in_conditions() -> None:
    text = """def f(double(N) X, int64(N) id, double(M) w) -> (double(M) Y, Z) {
      Y(id(i) % M) max=! X(i)
      Z(i) = i > 0 ? X(min(max(id(i) + i, 0), N - 1)) * w(0) : 0.0
    }"""
    given = {
        "X": np.array([0.5, 0.25, 0.75]),
        "id": np.array([3, 1, 2], np.int64),
        "w": np.array([1.5, 0.5]),
    }
    assert disagreement(text, {"N": 3, "M": 2}, arrays=given) == ""


def test_what_cannot_be_shown_right_is_no_derivative() -> None:
    text = """def f(double A, double(B) C) -> (T) {
      T(i, j) = sin(A) * C(i) where i in 0:B, j in 0:B
      for k in B {
        S(i) +=! tanh(T(i, l) * T(k, l)) where i in 0:B, l in 0:k
        T(i, k) = i >= k ? cos(S(i)) : T(i, k) where i in 0:B
      }
    }"""
    assert gradient_of(gradient_of(only(text), recompute="all"), recompute="sqrt").outputs

    def all_copied(items: tuple[Item, ...], *_: object) -> tuple[tuple[Item, ...], frozenset[str]]:
        return items, frozenset()

    with patch("tcsym.differentiate.single.kept_once", all_copied):
        back = gradient_of(only(text), recompute="all")
        with pytest.raises(tcsym.DerivativeError, match="cannot be shown right"):
            gradient_of(back, recompute="sqrt")
        assert gradient_of(back, recompute="all").outputs


def test_what_has_no_gradient_is_said() -> None:
    f = tcsym.define("def f(float(N) X, int32(N) k) -> (Y, n) { Y(i) = float(k(i)) n(i) = k(i) }").f
    with pytest.raises(DerivativeError, match="no floating output of `f` depends on `X`"):
        f.grad()
    with pytest.raises(DerivativeError, match="`k` in `wrt` has type int32"):
        f.grad(wrt="k")
    with pytest.raises(tcsym.OptionError, match="recompute"):
        f.grad(recompute="some")


@pytest.mark.parametrize("step", ["G + 1", "N*G"])
def test_results_whose_size_a_def_cannot_say(step: str) -> None:
    """It divides by what is no product of size parameters."""
    module = tcsym.define(
        "def every(double(P) X, size S) -> (double((P - 1)/S + 1) Y) { Y(p) = X(S*p) * X(S*p) }\n"
        f"def f(double(N) X, size G) -> (Y) {{ Y = every(X, {step}) }}"
    )
    X, dX = np.random.default_rng(0).uniform(0.5, 1.5, (2, 6))
    sizes = {"N": 6, "G": 1}
    forth = run(module.f.jvp().program, {"X": X, "dX": dX}, sizes)["dY"]
    (Y,) = run(module.f.saving().program, {"X": X}, sizes).values()
    back = run(module.f.grad().program, {"X": X, "Y": Y, "dY": Y}, sizes)["dX"]
    assert np.allclose((back * dX).sum(), (forth * Y).sum(), rtol=1e-12)


@pytest.mark.parametrize(
    ("header", "reads"),
    [
        ("double(N) X, size S", ""),
        ("size S, double(N) X", ""),
        ("double(N) X, size S, double(K) W, size R", ""),
        ("size S, double(N) X, size R", "S*"),
    ],
)
def test_saving_is_called_as_the_kernel_is(header: str, reads: str) -> None:
    """With all sizes that the call gives, in their places, whatever reads them."""
    text = f"def f({header}) -> (Y) {{ s +=! exp(X(i))  Y(i) = X({reads}i) / s where i in 0:1 }}"
    f = tcsym.define(text).f
    saving = f.saving()
    inputs = f"{f.signature}".partition(" -> ")[0].removeprefix("f")
    assert f"{saving.signature}".startswith(f"f_saving{inputs} -> ")
    given = {"size": 1, "double": np.ones(3)}
    args = [given[word.partition("(")[0].split()[0]] for word in header.split(", ")]
    assert np.array_equal(saving(*args).Y, f(*args))


def test_derivatives_beyond_the_limits_of_a_text_are_refused() -> None:
    f = only("def f(double(N) X) -> (Y) { Y(i) = sin(X(i) * X(i)) * cos(X(i)) }")
    with (
        patch("tcsym.frontend.limits.MAX_OPERATORS", 3),
        pytest.raises(DerivativeError, match="the derivative is too large: more than 3 operators"),
    ):
        gradient_of(f)


def test_names_that_are_taken() -> None:
    f = tcsym.define("def f(float(N) X, float(N) dX) -> (dY) { dY(i) = X(i) * dX(i) }").f
    gradient = f.grad()
    assert list(gradient.signature.inputs) == ["X", "dX", "ddY"]
    assert list(gradient.signature.outputs) == ["dX_", "ddX"]
    assert f.grad() is gradient
    assert list(tcsym.derivative(f)) == ["f_grad"]


@pytest.mark.parametrize("function, above", [("fmax", 1.0), ("fmin", 0.0)])
def test_bounds_that_are_constants_are_read_off_the_result(function: str, above: float) -> None:
    bound = tcsym.define(f"def f(double(N) X) -> (Y) {{ Y(i) = {function}(2.0, X(i)) }}")
    back = bound.f.grad()
    assert [t.name for t in back.program.inputs] == ["Y", "dY"]
    X = np.array([-np.inf, 1.0, 2.0, np.nan, np.nextafter(2.0, 3.0), np.inf])
    expected = [1 - above, 1 - above, 0.0, 0.0, above, above]
    assert np.array_equal(back(Y=bound.f(X), dY=np.ones(6)), expected)


def test_bounds_of_rounded_results_are_not() -> None:
    bound = tcsym.define("def f(half(N) X) -> (half(N) Y) { Y(i) = fmax(0.0, X(i) / 4096) }")
    X = np.array([0.0, 1e-4], np.float16)  # the second gives 0, rounded
    assert [t.name for t in bound.f.grad().program.inputs] == ["X", "dY"]
    assert bound.f(X)[1] == 0
    assert (bound.f.grad()(X=X, dY=np.full(2, 4096, np.float16)) == [0, 1]).all()


def test_of_windows_that_do_not_overlap_one_is_read() -> None:
    text = "def f(float(N) X) -> (Y) {{ Y(i) max=! X(2*i + k) where k in 0:{} }}"
    apart, overlapping = (tcsym.define(text.format(k)).f.grad().source for k in (2, 3))
    assert "dX(i) = " in apart and "dX(2*i + min(int32(Y_at(i)), 2)) +=! " in overlapping
    assert "uint8(3)" in overlapping


def test_gradients_that_are_0_are_not_made() -> None:
    softmax = library.load("softmax").grad(recompute="cheap")
    assert [t.name for t in softmax.program.inputs] == ["Y", "s", "dY"]
    for name in ("log_softmax", "cross_entropy", "attention", "causal_attention"):
        assert "m_at" not in library.load(name).grad().source, name
    norm = library.load("layer_norm").grad().source
    assert norm.count("dmean(n) +=") == 1 and norm.count("rsqrt") == 1


def test_parts_are_not_made_over_ranges_that_use_other_indices() -> None:
    text = "def f(double(L,L) A, double(L) m) -> (O) { "
    text += "O(l) +=! exp(A(l,s) - m(l)) * A(s,l) where s in 0:l+1 }"
    for n in (0, 1, 4):
        assert disagreement(text, {"L": n}) == ""


def test_one_index_that_has_all_of_a_gradient_gets_it_where_it_stands() -> None:
    text = """def f(double(T,S) E, double(S,S) A) -> (V) {
      for t in T {
        if t == 0 { V(t,j) = E(t,j) } else { V(t,j) max=! V(t-1,i) + A(i,j) }
      }
    }"""
    assert "dA(V_at(t, j), j) +=! " in tcsym.define(text).f.grad(recompute="none").source
    for n in (0, 1, 4):
        assert disagreement(text, {"T": 3, "S": n}) == ""


def test_counts_of_ranges_that_may_be_empty_cancel_nothing() -> None:
    text = "def f(double(N) X, double(N) Z) -> (Y) { c +=! X(0) where k in 0:N-2 "
    text += "Y(i) = (c - X(0) * (N - 2)) * Z(i) }"
    assert disagreement(text, {"N": 1}) == ""


def test_parts_of_sums_that_may_have_no_term() -> None:
    text = "def f(double(N) X, double(N) Z) -> (s) "
    text += "{ s +=! exp(X(k)) * Z(k) * Z(i) where k in 0:N-2, i in 0:N }"
    for n in (1, 4):
        assert disagreement(text, {"N": n}) == ""


def test_states_that_arms_begin_are_not_copied_whole() -> None:
    text = "def f(double(T,N) X, double(N,N) U) -> (double(T,N) S) { for t in T { "
    text += "if t == 0 { S(t,n) = X(t,n) } else { S(t,n) +=! S(t-1,k) * U(n,k) } "
    text += "S(t,n) = tanh(S(t,n) + X(t,n)) } }"
    assert disagreement(text, {"T": 3, "N": 2}) == ""
    made = gradient_of(only(text), recompute="none")
    assert max(len(t.shape) for t in made.tensors) == 2


@pytest.mark.parametrize(
    "steps",
    [
        "for t in T { if t > 0 { v = exp(X(t)) s = s * v } }",
        "for t in 1 { if t == 0 { s = s * X(0) } else { s = s + X(1) } } s = max(s, 0.5)",
    ],
)
def test_what_is_saved_in_part_is_given_whole(steps: str) -> None:
    text = f"def f(double(T) X) -> (double s) {{ s = 1.0 {steps} }}"
    assert disagreement(text, {"T": 3}, recompute="none") == ""


def test_what_sums_of_unnamed_sizes_scatter_is_defined_first() -> None:
    text = "def every(double(P) X, size S) -> (double((P - 1)/S + 1) Y) { Y(p) = X(S*p) }\n"
    text += "def f(double(N) X, double(K) A, size G) -> (Y) { Y = every(X, G*N) "
    text += "Y(int32(9 * A(k)) % ((N - 1)/(G*N) + 1)) min= A(k) }"
    f = tcsym.define(text).f
    X, A = np.full(4, 2.0), np.array([0.75, 0.5])
    kept = run(f.saving(recompute="none").program, {"X": X, "A": A}, {"N": 4, "K": 2, "G": 1})
    back = f.grad(recompute="none").program
    found = run(back, {"X": X, "A": A, **kept, "dY": np.ones(1)}, {"N": 4, "K": 2, "G": 1})
    assert found["dA"].tolist() == [0, 1] and not found["dX"].any()


@pytest.mark.parametrize("op", ["min=", "max="])
def test_nan_stays_in_what_is_saved(op: str) -> None:
    text = f"def f(double(N) X, double(N) Z) -> (Y) {{ Y(i) = X(i) Y(i) {op} Z(i) + Y(N-1-i) }}"
    f = tcsym.define(text).f
    X, Z = np.array([np.nan, 1.0, 2.0]), np.array([1.0, np.nan, 3.0])
    kept = run(f.saving().program, {"X": X, "Z": Z}, {"N": 3})
    np.testing.assert_array_equal(kept["Y"], run(f.program, {"X": X, "Z": Z}, {"N": 3})["Y"])


@pytest.mark.parametrize("recompute", ["auto", "all", "sqrt"])
def test_who_won_is_found_among_terms_of_sums_that_are_computed_again(recompute: str) -> None:
    """Sums of another kernel differ in their last bits: no term was the maximum that was given."""
    layer = tcsym.define("""
def f(float(N,K) A, float(K,M) B) -> (Y) {
  S(i,j) +=! A(i,k) * B(k,j)
  Y(i) max=! S(i,j) * 1.7 + 0.3
}""").f
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal(s, dtype=np.float32) for s in ((64, 257), (257, 3)))
    back = layer.grad(recompute=recompute)
    given = {"A": A, "B": B, "Y": layer(A, B), "dY": np.ones(64, np.float32)}
    dA, dB = back(**{name: given[name] for name in back.signature.inputs})
    at = (A.astype(float) @ B).argmax(1)
    assert np.allclose(dA, 1.7 * B[:, at].T, rtol=1e-5)
    assert np.allclose(dB, 1.7 * A.T @ np.eye(3)[at], atol=1e-3)


@pytest.mark.parametrize(
    ("term", "is_compared"),
    [
        ("X(i,k)", True),
        ("fabs(X(i,k)) + B(k)", True),
        ("X(i,k) * B(k) + 1", False),
        ("sin(X(i,k))", False),
        ("(X(i,k) + B(k)) / 3", False),
    ],
)
def test_a_maximum_is_taken_as_given_if_everybody_rounds_its_terms_alike(
    term: str, is_compared: bool
) -> None:
    """Else one of another library, or another machine, is no term's value."""
    layer = tcsym.define(f"def f(float(N,K) X, float(K) B) -> (Y) {{ Y(i) max=! {term} }}").f
    back = layer.grad(["X"])
    assert ("Y" in back.signature.inputs) == is_compared
    rng = np.random.default_rng(0)
    given = {"X": rng.random((5, 9), np.float32), "B": rng.random(9, np.float32)}
    given |= {"Y": layer.reference(**given), "dY": np.ones(5, np.float32)}
    assert (
        np.count_nonzero(back(**{n: given[n] for n in back.signature.inputs}), axis=1) == 1
    ).all()


def test_of_what_goes_to_positions_nothing_is_added_where_it_is_zero() -> None:
    source = (
        tcsym.define("""
def f(double(K,K,K) A, double(K) D) -> (double(K,K,4) T) {
  T(j, int32(D(x)) % K, l) min=! A(j,x,x) * 0 - 1.5 where l in 0:4
}""")
        .f.grad()
        .source
    )
    assert "+=!" not in source
