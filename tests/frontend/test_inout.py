# SPDX-License-Identifier: Apache-2.0
"""`inout` parameters in the front end: text, hash, definedness, calls."""

import pytest

from tcsym.compiler import analyse
from tcsym.errors import TCError
from tcsym.frontend.format import format_program
from tcsym.frontend.parser import parse
from tcsym.frontend.program import Program
from tcsym.frontend.program_json import programs_from_json, programs_to_json

ADD = "def add(inout float(N) Y, float(N) X) -> () { Y(i) += X(i) }\n"


def program(text: str, name: str = "f") -> Program:
    return analyse(text)[name]


def refused(text: str) -> TCError:
    with pytest.raises(TCError) as e:
        analyse(text)
    return e.value


def test_text_comes_back() -> None:
    text = "def f(inout float32(N) Y, inout int32 s) -> () {\n  g(Y, s, true)\n}\n"
    assert format_program(parse(text)) == text


def test_parameters_keep_their_order_and_are_no_results() -> None:
    p = program("def f(float(N) X, inout float(N) Y, float a) -> (Z) { Y(i) += a * X(i)  Z = a }")
    assert [t.name for t in p.inputs] == ["X", "Y", "a"]
    assert [t.name for t in p.inouts] == ["Y"]
    assert [t.name for t in p.outputs] == ["Z"]
    assert programs_from_json(programs_to_json([p])) == (p,)


def test_what_is_updated_is_part_of_the_meaning() -> None:
    one, other = (
        program(f"def f({word}float(N) Y, float(N) X) -> (Z) {{ Z(i) = X(i) + Y(i) }}")
        for word in ("", "inout ")
    )
    assert one.canonical != other.canonical


def test_all_elements_are_defined() -> None:
    text = """def f(inout float(N) Y, float(N) X, inout int32(M) H, int32(K) b) -> (s) {
      s +=! Y(i)
      Y(0) = X(0)
      for t in 1:N { Y(t) += Y(t-1) }
      H(b(k)) += 1
    }"""
    assert [c.kind for c in program(text).checks] == ["bounds"]  # of X(0)


def test_a_reserved_word_may_be_an_argument_but_no_subscript() -> None:
    call = "def g(inout bool y, bool x) -> () { y = x }\ndef f(bool x) -> (z) { z = x g(z, true) }"
    assert len(program(call).body) == 3
    assert refused("def f(float(N) X) -> (Y) { Y(true) = X(0) }").column == 30
    assert "unexpected" in refused("def f(float(N) X) -> (Y) { Y(i, NAN) += X(i) }").message


def test_a_missing_assignment_gets_a_hint() -> None:
    e = refused("def f(float(N) X) -> (Y) { Y(i) = X(i)  Y(i) X(i) }")
    assert (e.kind, e.column) == ("call", 41) and "Y(…) = …" in e.hint


def test_calls_update_the_tensors_of_the_caller() -> None:
    body = "Z(i) = X(i)  add(Z, X)  add(Y, Z)"
    p = program(ADD + f"def f(float(N) X, inout float(N) Y) -> (Z) {{ {body} }}")
    assert [s.target for s in p.body] == ["Z", "Z", "Y"]  # type: ignore[union-attr]


def test_a_number_by_value_is_no_second_use_of_what_is_updated() -> None:
    add = "def add(inout float y, float x) -> () { y += x }\n"
    program(add + "def f(float x) -> (z) { z = x  add(z, z + 1) }")
    e = refused(add + "def f(float x) -> (z) { z = x  add(z, z) }")
    assert (e.kind, e.line, e.column) == ("immutable", 2, 39)
