# SPDX-License-Identifier: Apache-2.0
"""A program's gradient and tangent beside each other and beside differences, at one point.

Whatever a program does, its gradient and its tangent are transposes of each other. Differences
along a random direction must be the tangent; where none of several steps says so, there must be a
reason: the program decides otherwise beside the point (`decisions`), differences of several steps
differ, or both are no more alike with every rounding disturbed (`Noise`). Differences are those of
the program's twin, in which every float is a double.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from tcsym.errors import TCError
from tcsym.frontend.program import Program
from tests.differentiate.differences import run
from tests.fuzz.decisions import decisions

Array = Any
Arrays = Mapping[str, Array]

Noise = Callable[[], tuple[float, float]]
"""How far roundings may move the difference of gradient and tangent, and the tangent."""

STEPS = (1e-5, 2e-5, 1e-4, 1e-6, 1e-7, 1e-3, 1e-8)
FINEST = 5e-6
IDENTITY, DIFFERENCE = 1e-9, 1e-5  # allowed, relative to the terms along a direction
UNITS = 16  # in the last place, allowed where these are coarser


class Point(Struct, frozen=True):
    """Where a program is tried. along: directions of inputs. weights: gradients of outputs, zero
    where these are infinite. unit: the coarsest rounding of its floats."""

    given: Arrays
    along: Arrays
    weights: Arrays
    sizes: Mapping[str, int]
    unit: float = 2.0**-53

    def moved(self, step: float) -> Arrays:
        further = {n: wide(self.given[n]) + step * wide(v) for n, v in self.along.items()}
        return {**self.given, **further}

    def run(self, program: Program, step: float) -> Arrays:
        """Results of the twin a step along the direction."""
        moved = self.moved(step)
        given = {t.name: moved[t.name].astype(t.dtype.numpy) for t in program.inputs}
        return run(program, given, self.sizes)


def wide(x: Array) -> Array:
    return x.astype(np.float64)


def transposed(point: Point, gradients: Arrays, tangents: Arrays) -> tuple[float, float, float]:
    """Both sides of <gradient, direction> = <weights, tangent>, and the size of their terms."""
    products = [wide(gradients[n]) * wide(v) for n, v in point.along.items()]
    forth = [wide(tangents[n]) * wide(w) for n, w in point.weights.items()]
    scale = 1 + sum(float(np.abs(x).sum()) for x in (*products, *forth))
    return sum(float(x.sum()) for x in products), sum(float(x.sum()) for x in forth), scale


def compared(
    program: Program,
    point: Point,
    gradients: Arrays,
    tangents: Arrays,
    noise: Noise = lambda: (0.0, 0.0),
) -> str:
    """ "right", "wrong: ..." or why differences say nothing, such as that the twin `program` is
    refused beside the point."""
    back, forth, scale = transposed(point, gradients, tangents)
    if not (np.isfinite(back) and np.isfinite(forth)):
        return "not finite"
    if abs(back - forth) > max(IDENTITY, UNITS * point.unit) * scale:
        if abs(back - forth) <= noise()[0]:
            return "lost in rounding"
        return f"wrong: no transposes: gradient {back}, tangent {forth}"
    try:
        return _beside_differences(program, point, forth, scale, noise)
    except TCError:
        return "at a kink"


def _beside_differences(
    program: Program, point: Point, forth: float, scale: float, noise: Noise
) -> str:
    allowed = max(DIFFERENCE, UNITS * point.unit) * scale
    for step in STEPS:
        if abs(_difference(program, point, step) - forth) <= allowed:
            return "right"
    alike, largest = _beside(program, point, 1e-7)
    if not alike:
        return "at a kink"
    found = _agreed(program, point)
    if found is None:
        return "steep"
    lost = 100 * largest * 2.0**-53 / FINEST
    if not abs(found - forth) > lost or abs(found - forth) <= noise()[1] + allowed:
        return "lost in rounding"
    return f"wrong: differences: tangent {forth}, differences {found}"


def _difference(program: Program, point: Point, step: float) -> float:
    before, behind = (point.run(program, h) for h in (-step, step))
    with np.errstate(invalid="ignore"):
        parts = [
            float(((behind[n] - before[n])[w != 0] * wide(w)[w != 0]).sum())
            for n, w in point.weights.items()
        ]
    return sum(parts) / (2 * step)


def _agreed(program: Program, point: Point) -> float | None:
    """What differences of four steps say alike."""
    found = [_difference(program, point, k * FINEST) for k in (1, 2, 3, 4)]
    alike = np.isfinite(found).all() and np.ptp(found) <= 1e-6 * (1 + abs(found[0]))
    return found[0] if alike else None


def _beside(program: Program, point: Point, step: float) -> tuple[bool, float]:
    """Whether it decides alike at the point and on both sides of it; the largest number there."""
    places = [k * step for k in (-2, -1, 0, 1, 2)]
    every = [decisions(partial(point.run, program, x)) for x in places]
    return len({decided for decided, _ in every}) == 1, max(x for _, x in every)
