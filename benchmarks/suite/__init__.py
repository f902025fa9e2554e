"""All kernels, by family. `CALL` is a kernel with no work: what it takes is the cost of a call."""

from __future__ import annotations

from benchmarks.case import Case, normal
from benchmarks.suite import contractions, convolutions, memory, norms, recurrent

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
BY_NAME = {case.name: case for case in (*CASES, CALL)}
SUITE = tuple(case for case in CASES if case.part == "suite")
