"""A program's gradient and tangent beside each other and beside differences, at one point.

Whatever a program does, its gradient and its tangent are transposes of each other. Differences
along a random direction must be the tangent; where none of several steps says so, there must be a
reason: the program decides otherwise beside the point (`decisions`), or differences of several
steps differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from tcsym.errors import TCError
from tcsym.frontend.program import Program
from tests.differentiate.differences import run
from tests.fuzz.decisions import decisions

Array = Any
Arrays = Mapping[str, Array]

STEPS = (1e-5, 2e-5, 1e-4, 1e-6, 1e-7, 1e-3, 1e-8)
FINEST = 5e-6
IDENTITY, DIFFERENCE = (
    1e-9,
    1e-5,
)  # allowed, relative to the terms of the gradient along a direction


class Point(Struct, frozen=True):
    """Where a program is tried. along: directions of inputs. weights: gradients of outputs, zero
    where these are infinite."""

    given: Arrays
    along: Arrays
    weights: Arrays
    sizes: Mapping[str, int]

    def moved(self, step: float) -> Arrays:
        return {**self.given, **{n: self.given[n] + step * v for n, v in self.along.items()}}


def transposed(point: Point, gradients: Arrays, tangents: Arrays) -> tuple[float, float, float]:
    """Both sides of <gradient, direction> = <weights, tangent>, and the size of their terms."""
    products = [gradients[n] * v for n, v in point.along.items()]
    forth = [tangents[n] * w for n, w in point.weights.items()]
    scale = 1 + sum(float(np.abs(x).sum()) for x in (*products, *forth))
    return sum(float(x.sum()) for x in products), sum(float(x.sum()) for x in forth), scale


def compared(program: Program, point: Point, gradients: Arrays, tangents: Arrays) -> str:
    """ "right", "wrong: ..." or why differences say nothing, such as that the program is refused
    beside the point."""
    back, forth, scale = transposed(point, gradients, tangents)
    if not (np.isfinite(back) and np.isfinite(forth)):
        return "not finite"
    if abs(back - forth) > IDENTITY * scale:
        return f"wrong: no transposes: gradient {back}, tangent {forth}"
    try:
        return _beside_differences(program, point, forth, scale)
    except TCError:
        return "at a kink"


def _beside_differences(program: Program, point: Point, forth: float, scale: float) -> str:
    for step in STEPS:
        if abs(_difference(program, point, step) - forth) <= DIFFERENCE * scale:
            return "right"
    alike, largest = _beside(program, point, 1e-7)
    if not alike:
        return "at a kink"
    found = _agreed(program, point)
    if found is None:
        return "steep"
    if not abs(found - forth) > 100 * largest * 2.0**-53 / FINEST:
        return "lost in rounding"
    return f"wrong: differences: tangent {forth}, differences {found}"


def _difference(program: Program, point: Point, step: float) -> float:
    before, behind = (run(program, point.moved(h), point.sizes) for h in (-step, step))
    parts = [
        float(((behind[n] - before[n])[w != 0] * w[w != 0]).sum()) for n, w in point.weights.items()
    ]
    return sum(parts) / (2 * step)


def _agreed(program: Program, point: Point) -> float | None:
    """What differences of four steps say alike."""
    found = [_difference(program, point, k * FINEST) for k in (1, 2, 3, 4)]
    alike = np.isfinite(found).all() and np.ptp(found) <= 1e-6 * (1 + abs(found[0]))
    return found[0] if alike else None


def _beside(program: Program, point: Point, step: float) -> tuple[bool, float]:
    """Whether it decides alike at the point and on both sides of it; the largest number there."""
    every = [
        decisions(lambda x: run(program, x, point.sizes), point.moved(k * step))
        for k in (-2, -1, 0, 1, 2)
    ]
    return len({decided for decided, _ in every}) == 1, max(x for _, x in every)
