# SPDX-License-Identifier: Apache-2.0
"""Derivatives of half types: computed in float, rounded once."""

from __future__ import annotations

import numpy as np
import pytest

from tcsym import library
from tcsym.differentiate.derive import tangent_program
from tcsym.differentiate.names import gradient_names

from .differences import doubled, drawn, gradient_of, only, run


def test_halves_are_summed_in_float() -> None:
    program = only("def f(half(N,M) X, half(M) w) -> (Y) { Y(i) +=! X(i,j) * w(j) }")
    gradient = gradient_of(program)
    given = {
        "X": np.full((4096, 1), 1, np.float16),
        "w": np.ones(1, np.float16),
        "dY": np.full(4096, 1, np.float16),
    }
    found = run(gradient, given, {})
    assert found["dw"].dtype == np.float16
    assert found["dw"].tolist() == [4096]


def test_tangents_of_halves_are_summed_in_float() -> None:
    program = only("def f(half(M) X) -> (Y) { Y +=! X(j) * X(j) }")
    X = np.full(4096, 1.001, np.float16)
    found = run(tangent_program(program, None), {"X": X, "dX": np.full(4096, 0.5, np.float16)}, {})
    assert found["dY"] == np.float16(4096 * np.float32(X[0]))


@pytest.mark.parametrize("recompute", ["auto", "all"])
def test_the_largest_of_halves_is_found_again(recompute: str) -> None:
    """It is compared before it is rounded."""
    program = only("def f(half(K) X) -> (Y) { Y max=! X(k) * X(k) }")
    X = np.array([1, 3.001, 2], np.float16)
    given = {"X": X, "Y": X[1] * X[1], "dY": np.float16(1)}
    found = run(gradient_of(program, recompute=recompute), given, {})
    assert found["dX"].tolist() == [0, 2 * X[1], 0]


@pytest.mark.parametrize("recompute", ["auto", "all"])
@pytest.mark.parametrize("name", ["attention", "lstm", "max_pool_2x2", "nearest_distance"])
def test_gradients_of_halves_are_those_of_doubles(name: str, recompute: str) -> None:
    wide = only(doubled(library.source(name)))
    half = only(doubled(library.source(name)).replace("double", "half"))
    rng = np.random.default_rng(1)
    given = {
        n: x.astype(np.float16) for n, x in drawn(wide, dict.fromkeys(wide.sizes, 4), rng).items()
    }
    found = []
    for program in (wide, half):
        own = {t.name: given[t.name].astype(t.dtype.numpy) for t in program.inputs}
        results = run(program, own, {})
        weights = {
            gradient_names(program)[t.name]: np.ones(results[t.name].shape, t.dtype.numpy)
            for t in program.outputs
        }
        back = gradient_of(program, recompute=recompute)
        sizes = dict.fromkeys(back.free_sizes, 4)
        found.append(run(back, {**own, **results, **weights}, sizes))
    for n, x in found[0].items():
        np.testing.assert_allclose(
            found[1][n].astype(float), x, rtol=0.02, atol=0.02 * abs(x).max()
        )
