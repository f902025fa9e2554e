# SPDX-License-Identifier: Apache-2.0
"""Programs, scheduled and mapped, against the interpreter: loops shuffled as their orders allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcsym.errors import TCError
from tcsym.frontend.interpret import interpret
from tcsym.frontend.program import Program
from tcsym.index.expr import ONE
from tcsym.index.values import evaluate
from tcsym.ir.loops import Loop
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.map_cpu import map_cpu
from tcsym.target.machine import Machine
from tests.polyhedral.execute import execute
from tests.polyhedral.programs import SOURCES, program
from tests.schedule.targets import AVX2, SCALAR


def inputs_of(p: Program, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, Any]:
    return {
        t.name: rng.integers(0, 4, tuple(evaluate(x, sizes) for x in t.shape)).astype(t.dtype.numpy)
        for t in p.inputs
    }


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", SOURCES)
def test_mapped_program_agrees_with_the_interpreter(name: str) -> None:
    p = program(name)
    rng = np.random.default_rng(len(name))
    kernel = schedule_program(p, Options(), {}).kernel
    mapped = [map_cpu(kernel, t, Options()).kernel for t in (AVX2, SCALAR)]
    for k in mapped:
        verify(k)
    for most in (1, 4, 10):
        sizes = {s: int(rng.integers(1, most + 1)) for s in p.sizes}
        inputs = inputs_of(p, sizes, rng)
        try:
            want = interpret(p, inputs, sizes)
        except TCError:
            continue
        for k in mapped:
            got = execute(k, inputs, sizes, shuffle=1)
            for tensor, x in want.items():
                np.testing.assert_allclose(
                    got[tensor].astype(np.float64).reshape(x.shape), x, 1e-3, 1e-3
                )


@pytest.mark.parametrize("machine", [AVX2, SCALAR], ids=["avx2", "scalar"])
def test_loops_on_threads_have_an_estimate(machine: Machine) -> None:
    """Of an iteration with a loop inside: else such a loop never gets a thread."""
    unknown = []
    for name in SOURCES:
        kernel = map_cpu(schedule_program(program(name), Options(), {}).kernel, machine, Options())
        for x, _ in walk(kernel.kernel.body):
            is_unknown = isinstance(x, Loop) and x.kind == "parallel" and x.work == ONE
            inside = (y for y, _ in walk(x) if isinstance(y, Loop) and y.kind == "serial")
            if is_unknown and any(inside):
                unknown.append(f"{name}: {x}")
    assert not unknown
