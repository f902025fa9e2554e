"""`python -m tests.fuzz.derivatives --minutes 5 --seed 0`: derivatives of random programs.

Every float is a double. Gradient and tangent must be transposes of each other, whatever the program
does; where differences of two steps agree (no kink is near), they must be the tangent, too.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np

import tcsym
from tcsym.batch.functional import functional_source
from tcsym.differentiate.derive import Recompute, gradient, gradient_text, saving_text, tangent_text
from tcsym.differentiate.names import gradient_names
from tcsym.errors import DerivativeError, TCError
from tcsym.frontend.program import Program
from tests.differentiate.differences import drawn, run
from tests.differentiate.differences import only as analysed
from tests.fuzz.generate import random_program

_FLOATS = re.compile(r"\b(float32|float16|bfloat16|half|float)\b")
_MOST_POINTS = 4  # of a size
_LARGE = 1e8
_COMPILED = 0.01  # of the programs, by machine code, too
Array = Any
only = lru_cache(8)(analysed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--level", type=int, default=2)
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    totals: Counter[str] = Counter()
    seed = arguments.seed
    while time.monotonic() < deadline:
        case = random_program(random.Random(seed), arguments.level)
        source = functional_source(case.source, case.name) if case.updated else case.source
        source = _FLOATS.sub("double", source)
        said = tried(source, seed)
        totals[said.split(":")[0]] += 1
        if said.startswith("wrong"):
            print(f"---- seed {seed} {said}\n{source}", flush=True)
        seed += 1
    print(dict(totals))
    return int(totals["wrong"] > 0)


def tried(source: str, seed: int) -> str:
    """What became of a program: "right", "wrong: ...", or why there was nothing to compare."""
    try:
        program = only(source)
    except (TCError, ValueError):
        return "not a program of doubles"
    rng = np.random.default_rng(seed)
    sizes = {n: int(rng.integers(0, _MOST_POINTS + 1)) for n in program.sizes}
    given = drawn(program, sizes, rng)
    try:
        results = run(program, given, sizes)
    except TCError:
        return "refused at these sizes"
    try:
        recompute = list(Recompute)[seed % len(Recompute)]
        made = gradient(program, None, recompute)
        back = only(gradient_text(made, analyse=only))
        saving = only(saving_text(made, analyse=only)) if made.saved else program
        forth = only(tangent_text(program, None, analyse=only))
    except DerivativeError as error:
        return f"no derivative: {error.message}"
    except Exception as error:
        return f"wrong: {type(error).__name__}: {error}"
    try:
        steps = {p.name: 1 + seed % 3 for p in back.size_parameters if p.name not in sizes}
        kept = run(saving, given, sizes | steps) if made.saved else results
        return compared(program, back, forth, given, kept, sizes, steps, rng)
    except Exception as error:
        return f"wrong: {type(error).__name__}: {error}\n{back.source}\n{forth.source}"


def compared(
    program: Program,
    back: Program,
    forth: Program,
    given: dict[str, Array],
    kept: dict[str, Array],
    sizes: dict[str, int],
    steps: dict[str, int],
    rng: np.random.Generator,
) -> str:
    """steps: sizes of the gradient's own."""
    for made in (back, forth):
        if made.traps:
            return f"wrong: warns {made.traps[0].message}\n{made.source}"
    called = gradient_names(program)
    results = {t.name: kept[t.name] for t in program.outputs}
    weights = {n: rng.uniform(-1, 1, y.shape) for n, y in results.items() if n in called}
    along = {n: rng.uniform(-1, 1, x.shape) for n, x in given.items() if n in called}
    known = {**given, **kept}
    dy = {called[n]: w for n, w in weights.items()}
    dx = {called[n]: v for n, v in along.items()}
    left_sizes = {k: v for k, v in (sizes | steps).items() if k in back.sizes}
    gradients = run(back, {**known, **dy}, left_sizes)
    if rng.random() < _COMPILED:
        said = _compiled(back, {**known, **dy}, left_sizes, gradients)
        if said:
            return f"wrong: {said}\n{back.source}"
    tangents = run(forth, {**given, **dx}, {k: v for k, v in sizes.items() if k in forth.sizes})
    a = sum(float((gradients[n] * v).sum()) for n, v in dx.items())
    b = sum(float((dy[n] * t).sum()) for n, t in tangents.items())
    if not (np.isfinite(a) and np.isfinite(b)):
        return "not finite"
    scale = 1 + sum(float(np.abs(gradients[n] * v).sum()) for n, v in dx.items())
    if abs(a - b) > 1e-9 * scale:
        return f"wrong: gradient {a}, tangent {b}\n{back.source}\n{forth.source}"
    steps = [_difference(program, given, along, weights, sizes, h) for h in (1e-5, 2e-5)]
    if not abs(steps[0] - steps[1]) <= 1e-7 * scale:
        return "right, differences are not smooth"
    if max((float(np.abs(y).max(initial=0)) for y in results.values()), default=0) > _LARGE:
        return "right, differences are lost in rounding"
    if abs(steps[0] - b) > 1e-5 * scale:
        return f"wrong: tangent {b}, differences {steps[0]}\n{forth.source}"
    return "right"


def _compiled(
    back: Program, arrays: dict[str, Array], sizes: dict[str, int], expected: dict[str, Array]
) -> str:
    """Where the gradient as machine code is not that of the interpreter."""
    kernel = tcsym.define(back.source)[back.name]
    free = {n: v for n, v in sizes.items() if n in back.free_sizes}
    given, left = back.arguments([arrays[t.name] for t in back.inputs], free)
    found = kernel(*given, **({"sizes": left} if left else {}))
    results = found if isinstance(found, tuple) else (found,)
    for t, x in zip(back.outputs, results, strict=True):
        if not np.allclose(x, expected[t.name], rtol=1e-9, atol=1e-9, equal_nan=True):
            return f"compiled {t.name} differs"
    return ""


def _difference(
    program: Program,
    given: dict[str, Array],
    along: dict[str, Array],
    weights: dict[str, Array],
    sizes: dict[str, int],
    step: float,
) -> float:
    before, behind = (
        run(program, {**given, **{n: given[n] + h * v for n, v in along.items()}}, sizes)
        for h in (-step, step)
    )
    parts = [float(((behind[n] - before[n]) * w).sum()) for n, w in weights.items()]
    return sum(parts) / (2 * step)


if __name__ == "__main__":
    raise SystemExit(main())
