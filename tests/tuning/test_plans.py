# SPDX-License-Identifier: Apache-2.0
"""Plans of directives that a search may ask for: each is carried out, and changes no result."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.options import Options
from tcsym.target.names import resolve_target
from tcsym.tuning.space import space_of, value_of

TEXTS = {
    "two nests": """def f(float(N,D) X, float(D) w) -> (Y, S) {
        s(n) +=! X(n,d) * X(n,d)
        Y(n,d) = X(n,d) * rsqrt(s(n) / D) * w(d)
        S(d) +=! X(n,d)
    }""",
    "columns": "def f(float(N,D) X) -> (S) { S(d) +=! X(n,d) }",
}


@pytest.mark.parametrize("name", TEXTS)
def test_each_is_carried_out_and_right(name: str) -> None:
    program = analyse(TEXTS[name])["f"]
    space = space_of(program, resolve_target("cpu:avx2"), Options(), 2)
    axes = {axis: values for axis, values in space.axes if axis.startswith("plan[")}
    assert axes and all(values[0] == "" and len(values) > 3 for values in axes.values())
    rng, inputs = random.Random(0), _inputs()
    for axis, values in axes.items():
        for text in (values[1], *rng.sample(values[1:], 4)):
            options = space.at({axis: text})
            assert value_of(options, axis) == text
            assert space.at({axis: ""}, options) == Options()
            f = tcsym.define(TEXTS[name], target="cpu:avx2", options=options).f
            given = inputs[: len(program.inputs)]
            for got, want in zip(_all(f(*given)), _all(f.reference(*given)), strict=True):
                np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg=text)
            assert "no " not in f.explain("plan").partition("\n")[0]


def test_numbers_are_searched() -> None:
    """Several plans of one version, that differ in a number; each version is tried first."""
    program = analyse(TEXTS["columns"])["f"]
    space = space_of(program, resolve_target("cpu:avx2"), Options(), 2)
    ((axis, values),) = [x for x in space.axes if x[0].startswith("plan[")]
    tried = {value_of(o, axis) for o in space.starts} - {""}
    assert tried < {*values} and len(tried) < len(values) / 2
    assert set(map(_without_numbers, tried)) == set(map(_without_numbers, values)) - {""}


def _without_numbers(text: str) -> str:
    return "".join(c for c in text if not c.isdigit())


def _inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in ((37, 21), (21,))]


def _all(x: object) -> tuple[np.ndarray, ...]:
    return x if isinstance(x, tuple) else (x,)  # type: ignore[return-value]
