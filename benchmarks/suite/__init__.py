# SPDX-License-Identifier: Apache-2.0
"""All kernels, by family. `CALL` is a kernel with no work: what it takes is the cost of a call.

`LARGE` are programs of many statements: their start-up is measured, not their speed. `STEPS` are
recurrent layers over a grid of steps and batches, measured by `--part recurrent`.
`RAGGED` have ranges and positions that are data: `--part ragged`. `TRAINING` are backward passes
of them all: `./dev bench train`. `LAYERS` are forward and backward passes of the gallery's layers:
`./dev bench train --part layers`.
"""

from __future__ import annotations

from benchmarks.case import Case, normal
from benchmarks.suite import (
    contractions,
    convolutions,
    large,
    layers,
    memory,
    norms,
    ragged,
    recurrent,
    steps,
    training,
)

CALL = Case(
    "call",
    "others",
    "def add(float(N) x, float(N) y) -> (z) { z(i) = x(i) + y(i) }",
    (normal("N"), normal("N")),
    lambda x, y: x + y,
    "N",
    {"call_add_4": {"N": 4}},
    {"N": (1, 16)},
    part="other",
)

CASES: tuple[Case, ...] = (
    *contractions.CASES,
    *convolutions.CASES,
    *norms.CASES,
    *recurrent.CASES,
    *memory.CASES,
)
LARGE = large.CASES
STEPS = steps.CASES
RAGGED = ragged.CASES
SUITE = tuple(case for case in CASES if case.part == "suite")
TRAINING = training.backward_cases(CASES)
LAYERS = layers.LAYERS
TRAINED = ("training", "layers")  # parts of which gradients are measured
BY_NAME = {c.name: c for c in (*CASES, *LARGE, *STEPS, *RAGGED, *TRAINING, *LAYERS, CALL)}
