# SPDX-License-Identifier: Apache-2.0
"""Derivatives of generated programs: what is right is found so, and what is wrong is found."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest

from tcsym.differentiate import functions
from tests.differentiate.differences import gradient_of, only, run
from tests.fuzz.derivatives import TYPES, _Draws, _tried, drawn_case, tried
from tests.fuzz.slopes import Point, compared


def _said(text: str, at: list[float]) -> str:
    """Of y = f(x) along 1, with the gradient that the compiler makes."""
    program, X = only(text), np.array(at)
    Y = run(program, {"X": X}, {})["Y"]
    dY = np.ones_like(Y)
    dX = run(gradient_of(program), {"X": X, "Y": Y, "dY": dY}, {})["dX"]
    point = Point({"X": X}, {"X": np.ones_like(X)}, {"Y": dY}, {"N": len(at)})
    return compared(program, point, {"X": dX}, {"Y": dX})


def test_generated_programs_have_right_derivatives() -> None:
    said = Counter(tried(drawn_case(seed), seed).kind for seed in range(60))
    assert not any(kind.startswith("wrong") for kind in said), said
    assert said["right"] > 30


@pytest.mark.parametrize("types", [x for x in TYPES if x != "double"])
def test_other_types_have_right_derivatives(types: str) -> None:
    seeds = range(100, 115)
    said = Counter(tried(drawn_case(k, types), k, types=types).kind for k in seeds)
    assert not any(kind.startswith("wrong") for kind in said), said
    assert said["right"] > 5


@pytest.mark.parametrize("dtype", ["float", "half", "bfloat16"])
def test_wrong_derivatives_of_other_types_are_found(dtype: str) -> None:
    program = only(f"def f({dtype}(N) X) -> (Y) {{ Y(i) = sin(X(i)) * X(i) }}")

    def said() -> set[str]:
        draws = (_Draws(np.random.default_rng(k)) for k in range(4))
        return {_tried(program, x, False, False).kind for x in draws}

    assert said() == {"right"}
    with patch.dict(functions._TABLE, sin=functions._TABLE["cos"]):
        assert "wrong: differences" in said()


def test_kinks_are_known_by_what_is_decided() -> None:
    text = "def f(double(N) X) -> (Y) {{ Y(i) = {} }}"
    for kinked in ("fmax(1.0, X(i))", "fmin(X(i), 1.0)", "X(i) > 1.0 ? 5.0 * X(i) : X(i)"):
        assert _said(text.format(kinked), [0.5, 0.7]) == "right"
        assert _said(text.format(kinked), [0.5, 1.0]) == "at a kink"
    largest = "def f(double(N) X) -> (Y) { Y max=! X(i) * X(i) }"
    assert _said(largest, [1.0, 2.0]) == "right"
    assert _said(largest, [-1.0, 1.0]) == "at a kink"


@pytest.mark.parametrize("lost", ["X(i) + 1e17", "(X(i) + 1e17) * 1e-3"])
def test_differences_of_large_numbers_are_not_believed(lost: str) -> None:
    assert _said(f"def f(double(N) X) -> (Y) {{ Y(i) = {lost} }}", [0.5]) == "lost in rounding"


def test_of_terms_that_cancel_nothing_but_rounding_is_left() -> None:
    """Y is constant, by quotients of numbers near 1e-9."""
    text = "def f(double(M) A) -> (Y) { S(i) = A(i) * 1e-9 T(i) = 1e9 * S(i) "
    program = only(text + "Y(i) = (i % 2 == 0 ? T(i) : S(i)) / S(i) }")

    def is_wrong() -> bool:
        draws = (_Draws(np.random.default_rng(k)) for k in range(6))
        return any(_tried(program, x, False, False).is_wrong for x in draws)

    assert not is_wrong()
    with patch("tests.fuzz.derivatives.MARGIN", 0.0):
        assert is_wrong()


def test_wrong_derivatives_are_found() -> None:
    text = "def f(double(N) X) -> (Y) { Y(i) = sin(X(i)) * X(i) }"
    assert _said(text, [0.5]) == "right"
    with patch.dict(functions._TABLE, sin=functions._TABLE["cos"]):
        assert _said(text, [0.5]).startswith("wrong: differences")
