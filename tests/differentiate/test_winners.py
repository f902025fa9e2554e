# SPDX-License-Identifier: Apache-2.0
"""Gradients of minima and maxima go to the elements that won, through what these were made of."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.sizes.work import estimated_work

from .differences import disagreement, drawn, gradient_of, only

CHAMFER = """def f(double(N,D) X, double(M,D) Z) -> (double s, double(N) a) {
  d(n,m) +=! (X(n,k) - Z(m,k)) * (X(n,k) - Z(m,k))
  a(n) min=! d(n,m)
  b(m) min=! d(n,m)
  s +=! a(n) * a(n)
  q +=! b(m)
  s = s + q
}"""
PAIRS = """def f(double(N,D) X, double(M,D) Z, double(M) w) -> (double s, double(N) a) {{
  p(n,m) +=! X(n,k) * Z(m,k)
  {}
  a(n) max=! d(n,m) * w(m)
  s +=! a(n)
}}"""
PROGRAMS = {
    "of pairs": CHAMFER,
    "of roots": PAIRS.format("d(n,m) = sqrt(p(n,m)) + w(m)"),
    "of a choice": PAIRS.format("d(n,m) = m % 2 == 0 ? p(n,m) * p(n,m) : p(n,m) * m"),
    "of shifts": PAIRS.format("d(n,m) = p(n,m) * w(M - 1 - m) + n"),
    "of steps": """def f(double(N,D) X, double(M,D) Z) -> (double s, double(N) a) {
      d(n,m) +=! X(n,k) * Z(m,k)
      a(n) max=! d(n,m)
      s = 1.0
      for n in N { s = s * 0.5 + a(n) * s }
    }""",
    "of all pairs": """def f(double(N,D) X, double(M,D) Z) -> (double s, double a) {
      d(n,m) +=! X(n,k) * Z(m,k)
      a max=! d(n,m)
      s = a * a
    }""",
}
SIZES = [{"N": 3, "M": 4, "D": 2}, {"N": 1, "M": 1, "D": 3}, {"N": 4, "M": 2, "D": 1}]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_differences(name: str) -> None:
    for recompute in ("auto", "cheap", "all"):
        for sizes in SIZES:
            assert disagreement(PROGRAMS[name], sizes, recompute=recompute) == "", sizes


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_of_pairs_have_one_term_each(name: str) -> None:
    """Where places are kept."""
    made = gradient_of(only(PROGRAMS[name]), recompute="cheap")
    long = {"N": 1000, "M": 1000, "D": 4, "P": 1001}
    assert estimated_work(made, long) < 1000 * 1000, made.source


def test_rows_without_elements_have_no_winner() -> None:
    k = tcsym.define(CHAMFER.replace("double", "float")).f
    x, z = np.ones((3, 2), "f4"), np.ones((0, 2), "f4")
    back = k.grad(recompute="all")
    found = back(x, z, np.float32(1), np.ones(3, "f4"))
    want = back.reference(x, z, np.float32(1), np.ones(3, "f4"))
    assert not found[0].any() and found[1].shape == want[1].shape == (0, 2)


def test_windows_of_what_was_computed_get_a_gradient_as_a_whole() -> None:
    """They have few elements, and whole gradients of convolutions are computed in vectors."""
    program = only(
        """def f(double(C,N) I, double(O,C,K) F) -> (P) {
          Y(o,n) +=! I(c,n+k) * F(o,c,k)
          P(o,n) max=! Y(o,2*n+k) where k in 0:2
        }"""
    )
    assert "dY(o, n) = " in gradient_of(program, recompute="cheap").source


WINNERS = {
    "two ranges": "Y(i) max=! X(j,k) * W(i,j) where i in 0:3, j in 0:2, k in 0:4",
    "of one": "Y(i) max=! X(j,k) * W(i,j) where j in 1:2, k in 0:1",
    "of one in one": "Y(i) max=! X(j,2*i+k) * W(i,j) where j in 0:1, k in 0:M, i in 0:1",
    "two symbols": "Y(i) max=! X(j,k) * W(i,j) where j in 0:N",
    "three symbols": "Y max=! X(j,k) * W(i,j) where j in 0:N",
    "from one on": "Y(i) min=! X(j,k) * W(i,j) where j in 1:N, k in 2:M",
    "a triangle": "Y(i) max=! X(j,k) * W(i,j) where j in 0:N, k in j:M",
    "a range of a row": "Y(i) max=! X(i,k) * W(i,0) where i in 0:N, k in i:M",
}


@pytest.mark.parametrize("name", WINNERS)
def test_winners_are_found_by_their_number(name: str) -> None:
    text = f"def f(double(N,M) X, double(P,N) W) -> (Y) {{ {WINNERS[name]} }}"
    for sizes in ({"N": 2, "M": 4, "P": 3}, {"N": 3, "M": 5, "P": 3}):
        known = {n: v for n, v in sizes.items() if n in only(text).sizes}
        assert name == "two ranges" or disagreement(text, known) == ""
    assert disagreement(text, {"N": 2, "M": 4, "P": 3}) == ""


def test_winners_of_ragged_rows() -> None:
    text = """def f(int32(B) at, double(N,D) X, double(D) w) -> (double(B-1) Y, double s) {
      z(j) +=! X(j,d) * w(d)
      m(b) max=! z(j) * z(j) where b in 0:B-1, j in at(b):at(b+1)
      Y(b) = at(b) < at(b+1) ? m(b) : 0.0
      s +=! Y(b) * Y(b)
    }"""
    given = drawn(only(text), {"B": 4, "N": 5, "D": 2}, np.random.default_rng(0))
    given["at"] = np.array([0, 2, 2, 5], np.int32)
    assert disagreement(text, {"B": 4}, arrays=given) == ""
    assert "dz(m_at(b)) +=! " in gradient_of(only(text), recompute="cheap").source


def test_a_position_that_is_the_same_for_all_terms() -> None:
    """With `!`, that position alone would be set."""
    text = "def f(double(N,M) X, int32 p) -> (Y) { Y(i) = X(p,i) * X(p,i) }"
    given = {"X": np.arange(6.0).reshape(3, 2), "p": np.array(1, np.int32)}
    assert disagreement(text, {}, arrays=given) == ""


@pytest.mark.parametrize(
    "statement",
    ["Y(p) += p >= 0 ? X(0) * X(1) : 0.0", "Y(p) += p >= 0 ? X(i) * X(i) : 0.0", "Y(p) *= X(i)"],
)
def test_what_is_added_at_one_position(statement: str) -> None:
    text = f"def f(double(N) X, int32 p) -> (Y) {{ Y(i) = X(i) * X(i) {statement} }}"
    for p in (2, -1) if "?" in statement else (2,):
        given = {"X": np.arange(1.0, 4.0), "p": np.array(p, np.int32)}
        assert disagreement(text, {}, arrays=given) == ""
        made = gradient_of(only(text), recompute="all")
        known = given | {"dY": np.ones(3)}
        taken = {t.name: known[t.name] for t in made.inputs}
        assert disagreement(made.source, {}, arrays=taken) == ""


SHIFTED = {
    "log-sum-exp": "Y(b) = log(s(b)) + m(b)",
    "softmax": "Y(b) +=! exp(x(j) - m(b)) / s(b) * v(j) where b in 0:B-1, j in at(b):at(b+1)",
    "both ends": "Y(b) = log(s(b)) + m(b) + 0.5 * x(at(b))",
}


@pytest.mark.parametrize("name", SHIFTED)
def test_what_shifts_ragged_rows_has_no_gradient(name: str) -> None:
    text = f"""def f(int32(B) at, double(N) x, double(N) v) -> (double(B-1) Y) {{
      m(b) max=! x(j) where b in 0:B-1, j in at(b):at(b+1)
      s(b) +=! exp(x(j) - m(b)) where b in 0:B-1, j in at(b):at(b+1)
      {SHIFTED[name]}
    }}"""
    given = drawn(only(text), {"B": 4, "N": 6}, np.random.default_rng(0))
    given["at"] = np.array([0, 2, 3, 6], np.int32)
    assert disagreement(text, {}, arrays=given, recompute="cheap") == ""
    assert "m_at" not in gradient_of(only(text), recompute="cheap").source


def test_what_shifts_other_rows_has_one() -> None:
    text = """def f(int32(B) at, double(N) x) -> (double(B-1) Y) {
      m(b) max=! x(j) where b in 0:B-1, j in at(b):at(b+1)
      s(b) +=! exp(x(j) - m(b)) where b in 0:B-1, j in 0:at(b+1)
      Y(b) = log(s(b)) + 2.0 * m(b)
    }"""
    given = drawn(only(text), {"B": 4, "N": 6}, np.random.default_rng(0))
    given["at"] = np.array([0, 2, 3, 6], np.int32)
    assert disagreement(text, {}, arrays=given, recompute="cheap") == ""
    assert "m_at" in gradient_of(only(text), recompute="cheap").source
