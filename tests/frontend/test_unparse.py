# SPDX-License-Identifier: Apache-2.0
"""Typed programs written as texts: what is read back is an equal program, whatever its names."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from tcsym import library
from tcsym.compiler import analyse
from tcsym.errors import TCError
from tcsym.frontend.interpret import interpret
from tcsym.frontend.program import Program
from tcsym.frontend.unparse import is_same, source_of
from tests.fuzz.generate import random_program
from tests.programs.records import records


def written_alike(text: str) -> int:
    """How many defs of a text say the same in the text that is written of them."""
    found = 0
    for program in analyse(text).values():
        made = source_of(program)
        if "_sum" not in made.source:  # as of halves that accumulate floats
            assert is_same(program, made), f"{text}\n{made.source}"
        assert {c.kind for c in program.checks} == {c.kind for c in made.checks}
        found += 1
    return found


@pytest.mark.parametrize("name", library.names())
def test_library_kernels_are_written_as_they_are(name: str) -> None:
    assert written_alike(library.source(name)) >= 1


def test_acceptance_programs_are_written_as_they_are() -> None:
    assert sum(map(written_alike, _defined(r["source"] for r in records()))) > 100


def _defined(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        try:
            analyse(text)
        except TCError:
            continue
        yield text


def test_generated_programs_are_written_as_they_are() -> None:
    texts = [random_program(random.Random(seed), seed % 4).source for seed in range(80)]
    assert sum(map(written_alike, texts)) > 70


def _rewritten(text: str) -> str:
    (program,) = analyse(text).values()
    made: Program = source_of(program)
    assert is_same(program, made)
    return made.source


def test_no_more_is_written_than_is_needed() -> None:
    text = (
        "def f(float(N,K) X, int32(K) id) -> (float(N) Y) {\n  Y(i) +=! 0.5 * X(i, k) * id(k)\n}\n"
    )
    assert _rewritten(text) == text
    assert _rewritten(text.replace("0.5 * X(i, k)", "float(0.5) * float(X(i, k))")) == text
    wide = text.replace("(float(N) Y)", "(double(N) Y)")
    assert _rewritten(wide) == wide
    assert "float(0.5 * X(i, k) * id(k))" in _rewritten(
        wide.replace("0.5 * X(i, k) * id(k)", "float(0.5 * X(i, k) * id(k))")
    )


def test_orders_of_sums_are_said() -> None:
    text = "def f(float(K,L) X) -> (float Y) { Y +=! X(k, l) where l in 0:L, k in 0:K }"
    assert "where l in 0:L, k in 0:K" in _rewritten(text)
    text = "def f(float(L,4) X, float(K) w) -> (Y) { Y(j,i) *=! X(j + k, 3*i + l) "
    assert "where k in 0:K, l in 0:3" in _rewritten(text + "where k in 0:K, l in 0:3 }")


def test_integers_keep_their_types() -> None:
    for value in (
        "int8(a(i) + b(i))",
        "a(i) / b(i) * 2",
        "int64(a(i)) + (i + 1)",
        "-int32(2147483647) - a(i)",
        "float(i / 2) + a(i) % 3",
        "float(a(i)) < NAN ? -0.0 : -INFINITY",
        "(a(i) & 3) < (b(i) << 2) ? 1 : ~a(i)",
    ):
        for result in ("Y", "int64(N) Y", "double(N) Y"):
            if result == "int64(N) Y" and "float" in value:
                continue
            text = f"def f(int8(N) a, int8(N) b) -> ({result}) {{ Y(i) = {value} }}"
            assert written_alike(text) == 1, text


def test_names_that_inlining_made_can_be_written() -> None:
    text = "def g(float(N) X) -> (Y) { t(i) = X(i)\nY(i) = t(i) }\n"
    text += "def f(float(N) X) -> (Z) { A = g(X)\nZ = g(A) }"
    assert "." not in source_of(analyse(text)["f"]).source.replace("0.", "")


@pytest.mark.parametrize(
    "body",
    [
        "T(i,k) = X(i,k) * X(i,k)  Y(i) max=! T(i,k)",
        "T(i,k) = X(i,k) * 3  Y(at(i)) *=! T(i,k)",
        "Y(i) max=! X(i,k) % 1.5",
        "Y(i) = X(i,0) for t in 2 { T(i) = Y(i) * 0.3  Y(i) += T(i) * X(i,t) }",
    ],
)
def test_halves_accumulate_floats(body: str) -> None:
    """Temporaries of half types are floats, which no text says of what is accumulated."""
    header = "def f(half(N,K) X, int32(N) at) -> (half(N) Y)"
    (program,) = analyse(f"{header} {{ {body} }}").values()
    made = source_of(program)
    rng = np.random.default_rng(0)
    X, at = rng.uniform(1, 2, (5, 7)).astype(np.float16), rng.integers(0, 5, 5, np.int32)
    found = [interpret(p, {"X": X, "at": at}, {"N": 5, "K": 7})["Y"] for p in (program, made)]
    np.testing.assert_array_equal(*found)
