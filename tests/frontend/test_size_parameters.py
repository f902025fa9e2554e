# SPDX-License-Identifier: Apache-2.0
"""Size parameters through the front end: names, ranges, what a call checks (LANGUAGE F1)."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym as tc
from tcsym.errors import TCError
from tcsym.frontend import parser
from tcsym.frontend.canonical import canonical_hash
from tcsym.frontend.check import resolve
from tcsym.frontend.format import format_program
from tcsym.frontend.program import SizeParameter
from tcsym.frontend.program_json import programs_from_json, programs_to_json
from tests.frontend.test_infer_ranges import checks, inferred, ranges, shapes

CALLED = "def g(size S) -> (int32(S) Y) { Y(i) = i }\n"
CONV = "def f(float(N) X, size S, float(K) W, size D) -> (Y) { Y(i) +=! X(S*i+D*k) * W(k) }"


def test_places_and_order() -> None:
    program = inferred(CONV)
    assert program.sizes == ("N", "S", "K", "D") and program.free_sizes == ("S", "D")
    assert program.size_parameters == (SizeParameter("S", 1), SizeParameter("D", 3))
    assert [p.name for p in program.parameters] == ["X", "S", "W", "D"]
    assert program.arguments("xw", {"S": 2, "D": 3, "M": 4}) == (["x", 2, "w", 3], {"M": 4})
    assert programs_from_json(programs_to_json([program])) == (program,)
    assert parser.parse(format_program(parser.parse(CONV))) == parser.parse(CONV)


def test_places_are_part_of_the_meaning() -> None:
    def digest(header: str) -> str:
        return canonical_hash(
            resolve(parser.parse(f"def f({header}) -> (Y) {{ Y(i) = X(S*i) }}"))["f"]
        )

    given, renamed = digest("float(N) X, size S"), digest("float(M) X, size S")
    assert given == renamed != digest("size S, float(N) X")
    assert given != digest("float(N) X, float(S) W")


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        ("float(N) X, size S", "Y(i) = X(S*i)", "Y((N - 1)/S + 1)"),
        ("float(N) X, size S, size D", "Y(i) +=! X(S*i + D*k) where k in 0:3", "Y((N-2*D-1)/S+1)"),
        ("float(N) X, size S", "Y(i) = X(i/S) where i in 0:N*S", "Y(N*S)"),
        ("float(N) X, size S", "Y(i) = 0.0 where i in 0:(N + S - 1)/S", "Y((N + S - 1)/S)"),
        ("size N", "Y(i) = i where i in 0:N%3", "Y(N - 3*(N/3))"),
    ],
)  # fmt: skip
def test_extents(header: str, body: str, expected: str) -> None:
    found = shapes(inferred(f"def f({header}) -> (Y) {{ {body} }}"))
    assert found.replace(" ", "") == expected.replace(" ", "")


def test_a_declared_window_needs_no_check_of_accesses() -> None:
    body = "{ Y(i) +=! X(S*i+k) where k in 0:K }"
    text = f"def f(float(N) X, size K, size S) -> (float((N+S-K)/S) Y) {body}"
    program = inferred(text)
    assert ranges(program) == "i in 0:(N - K)/S + 1, k in 0:K"
    assert [c for c in checks(program) if not c.startswith("size")] == []


def test_what_a_call_asks_of_a_size_stands_at_the_parameter() -> None:
    body = "{\n Y(i) = X(S*i)\n for t in 0:N/T { Y(t) = 0.0 } }"
    text = f"def f(float(N) X, size S, size T) -> (Y) {body}"
    assert checks(inferred(text))[:2] == ["size 1:32 T >= 1", "size 1:24 S >= 1"]
    assert all(c.startswith(("size 1:", "bounds")) for c in checks(inferred(text)))


def test_a_bound_that_was_not_found_by_a_size_asks_nothing() -> None:
    text = "def f(float(N) X, size D) -> (Y) { Y(i,k) = X(i + D*k) where k in 0:2 }"
    assert checks(inferred(text)) == ["size 1:36 N >= D"]


def test_calls_pass_size_expressions() -> None:
    g = "def g(float(N) X, size S) -> (float(N/S) Y) { Y(i) +=! X(S*i + k) where k in 0:S }\n"
    program = inferred(g + "def f(float(M) X, size T) -> (Y, Z) { Y = g(X, 2*T)  Z = g(Y, 3) }")
    assert shapes(program) == "Y(M/(2*T)) Z((M/(2*T))/3)"
    assert checks(program) == ["size 2:24 2*T >= 1"]


@pytest.mark.parametrize(
    ("text", "kind", "column"),
    [
        (CALLED + "def f(float(N) X) -> (Y) { Y = g(N - 4) }", "", 0),
        (CALLED + "def f(float(N) X) -> (Y) { Y = g(X) }", "call", 34),
        (CALLED + "def f(float(N) X) -> (Y) { Y = g(0.5) }", "type", 34),
        (CALLED + "def f(float(N) X) -> (Y) { Y = g(Q) }", "affine", 34),
        (CALLED + "def f(float(N) X) -> (Y) { Y = g(-1) }", "size", 34),
        ("\ndef f(size S, float(S) X) -> (Y) { Y(i) = X(i) }", "duplicate", 21),
        ("\ndef f(float(S) X, size S) -> (Y) { Y(i) = X(i) }", "duplicate", 24),
        ("\ndef f(size S, size S) -> (int32(S) Y) { Y(i) = i }", "duplicate", 20),
        ("\ndef f(float(N) size) -> (Y) { Y(i) = size(i) }", "syntax", 16),
        ("\ndef f(size float S) -> (Y) { Y = S }", "syntax", 12),
        ("\ndef f(size exp) -> (Y) { Y = 1 }", "name", 12),
    ],
)  # fmt: skip
def test_errors(text: str, kind: str, column: int) -> None:
    if not kind:
        assert checks(inferred(text)) == ["size 2:23 N >= 4"]
        return
    with pytest.raises(TCError) as e:
        inferred(text)
    assert (e.value.kind, e.value.line, e.value.column) == (kind, 2, column)


def test_loops_over_segments_are_checked() -> None:
    """Products of a size and a loop variable are the same where a state is written and read."""
    text = """
    def f(double(T,N) X, size S) -> (double(N) y) {
      h(0,n) = double(0.0) where n in 0:N
      H(0,n) = h(0,n)
      for c in (T + S - 1)/S {
        s(0,n) = H(c,n)
        for u in S {
          if S*c + u < T { s(u+1,n) = 0.5 * s(u,n) + X(S*c + u,n) } else { s(u+1,n) = s(u,n) }
        }
        H(c+1,n) = s(S,n)
      }
      y(n) = H((T + S - 1)/S,n)
    }"""
    f = tc.define(text).f
    for t, s in ((0, 1), (1, 3), (6, 3), (7, 3), (5, 9)):
        X = np.arange(2.0 * t).reshape(t, 2)
        expected = sum((0.5 ** (t - 1 - k) * X[k] for k in range(t)), np.zeros(2))
        assert np.allclose(f(X, S=s), expected) and np.allclose(f.reference(X, S=s), expected)
    with pytest.raises(tc.InitError, match="cannot be decided"):
        tc.define(text.replace("else { s(u+1,n) = s(u,n) }", ""))
