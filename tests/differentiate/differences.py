# SPDX-License-Identifier: Apache-2.0
"""Gradients and tangents of a text beside finite differences, all by the interpreter in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tcsym.compiler import analyse
from tcsym.differentiate.derive import Recompute, gradient, gradient_program, saving_program
from tcsym.differentiate.names import gradient_names
from tcsym.frontend.interpret import interpret
from tcsym.frontend.program import Program
from tcsym.index.values import evaluate

Array = Any
STEP = 1e-5


def only(text: str) -> Program:
    (program,) = analyse(text).values()
    return program


def doubled(source: str) -> str:
    """The text with every float as a double."""
    return source.replace("float(", "double(").replace("float ", "double ")


def gradient_of(program: Program, wrt: list[str] | None = None, recompute: str = "auto") -> Program:
    made = gradient(program, wrt, Recompute(recompute))
    return gradient_program(made)


def saving_of(program: Program, wrt: list[str] | None = None, recompute: str = "none") -> Program:
    made = gradient(program, wrt, Recompute(recompute))
    return saving_program(made)


def bound(program: Program, arrays: Mapping[str, Array]) -> dict[str, int]:
    """Sizes that the arrays say."""
    sizes: dict[str, int] = {}
    for t in program.inputs:
        for e, n in zip(t.shape, arrays[t.name].shape, strict=True):
            if e.terms:
                assert sizes.setdefault(str(e), n) == n, f"{e} of {t.name}"
    return sizes


def run(
    program: Program, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, Array]:
    given = {t.name: arrays[t.name] for t in program.inputs}
    return interpret(program, given, {**bound(program, given), **sizes})


def drawn(program: Program, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
    """Inputs: floats in 0.5 .. 1.5, integers that are positions in anything not empty."""
    arrays = {}
    least = max(1, min([n for n in sizes.values() if n > 0], default=1))
    for t in program.inputs:
        shape = tuple(evaluate(e, sizes) for e in t.shape)
        if t.dtype.is_float:
            arrays[t.name] = rng.uniform(0.5, 1.5, shape).astype(t.dtype.numpy)
        else:
            arrays[t.name] = rng.integers(0, least, shape).astype(t.dtype.numpy)
    return arrays


def disagreement(
    source: str,
    sizes: Mapping[str, int],
    *,
    recompute: str = "auto",
    seed: int = 0,
    arrays: Mapping[str, Array] | None = None,
    wrt: list[str] | None = None,
    steps: int = 2,
) -> str:
    """'' if the gradient is what differences along random directions say; else what it is not.

    steps: of a segment, for recompute="sqrt".
    """
    program = only(source)
    rng = np.random.default_rng(seed)
    given = dict(drawn(program, sizes, rng) if arrays is None else arrays)
    made = gradient_of(program, wrt, recompute)
    results = run(program, given, sizes)
    weights = {n: rng.uniform(-1, 1, y.shape) for n, y in results.items()}
    called = gradient_names(program)
    arguments = {**given, **results, **{called[n]: w for n, w in weights.items() if n in called}}
    own = {p.name: steps for p in made.size_parameters if p.name not in program.sizes}
    if recompute in ("none", "cheap", "sqrt"):
        saving = saving_of(program, wrt, recompute)
        known = {**sizes, **own}
        kept = run(saving, given, {k: v for k, v in known.items() if k in saving.sizes})
        assert all(np.allclose(kept[n], y, rtol=1e-12, atol=1e-12) for n, y in results.items())
        arguments = kept | arguments
    found = run(made, arguments, {k: v for k, v in {**sizes, **own}.items() if k in made.sizes})
    for _ in range(2):
        along = {
            t.name: rng.uniform(-1, 1, given[t.name].shape)
            for t in program.inputs
            if t.dtype.is_float and (wrt is None or t.name in wrt)
        }
        moved = []
        for step in (STEP, -STEP):
            shifted = {**given, **{n: given[n] + step * v for n, v in along.items()}}
            after = run(program, shifted, sizes)
            moved.append(
                sum(
                    float((after[t.name] * weights[t.name]).sum())
                    for t in program.outputs
                    if t.dtype.is_float
                )
            )
        expected = (moved[0] - moved[1]) / (2 * STEP)
        actual = sum(float((found[called[n]] * v).sum()) for n, v in along.items())
        if not abs(expected - actual) <= 2e-7 * (1 + abs(expected)):
            return f"{actual} instead of {expected}"
    return ""
