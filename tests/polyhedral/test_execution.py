# SPDX-License-Identifier: Apache-2.0
"""Naive loop IR against the interpreter: acceptance programs, all strategies, sizes 0 and 1."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcsym.compiler import analyse
from tcsym.errors import TCError
from tcsym.frontend.interpret import interpret
from tcsym.frontend.program import Program
from tcsym.index.values import evaluate
from tcsym.options import Options
from tcsym.proved import schedule_program
from tests.polyhedral.execute import execute
from tests.polyhedral.programs import SOURCES

SHARED = Path(__file__).resolve().parents[3] / "shared" / "programs"
ACCEPTANCE = Path(os.environ.get("TCSYM_PROGRAMS", SHARED)) / "programs.jsonl"


@lru_cache(None)
def _sources() -> dict[str, tuple[str, str]]:
    found = {name: (source, "") for name, source in SOURCES.items()}
    if ACCEPTANCE.exists():
        for line in ACCEPTANCE.read_text().splitlines():
            record = json.loads(line)
            if record["valid"]:
                found[record["name"]] = (record["source"], record.get("entry", ""))
    return found


def _program(name: str) -> Program:
    source, entry = _sources()[name]
    programs = analyse(source)
    return programs[entry] if entry else next(reversed(programs.values()))


def _size_sets(program: Program, rng: np.random.Generator) -> Iterator[dict[str, int]]:
    """Small sizes for which the program is defined: mixed, all 1, all 0, one 0."""
    tries = [
        *({s: int(rng.integers(1, 6)) for s in program.sizes} for _ in range(12)),
        dict.fromkeys(program.sizes, 1),
        dict.fromkeys(program.sizes, 0),
        *({s: 0 if s == zero else 3 for s in program.sizes} for zero in program.sizes),
    ]
    mixed = 0
    for k, sizes in enumerate(tries):
        mixed += k < 12
        if k < 12 and mixed > 2:
            continue
        try:
            interpret(program, _inputs(program, sizes, rng), sizes)
        except (TCError, KeyError):
            mixed -= k < 12
            continue
        yield sizes


def _inputs(program: Program, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for t in program.inputs:
        shape = tuple(evaluate(x, sizes) for x in t.shape)
        if t.dtype.is_float:
            out[t.name] = rng.standard_normal(shape).astype(t.dtype.numpy)
        else:
            out[t.name] = rng.integers(0, 2, shape).astype(t.dtype.numpy)
    return out


def _compare(got: Any, want: Any, name: str) -> None:
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    tolerance = {2: 2e-2, 4: 1e-4, 8: 1e-10}[want.dtype.itemsize]
    a, b = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", sorted(_sources()))
def test_matches_the_interpreter(name: str) -> None:
    program = _program(name)
    rng = np.random.default_rng(sum(map(ord, name)))
    options = [Options(fusion=f) for f in ("max", "preserve-coincident", "min")]
    options.append(Options(scheduler="isl", max_operations=200_000))
    kernels = [schedule_program(program, o, {}).kernel for o in options]
    for sizes in _size_sets(program, rng):
        inputs = _inputs(program, sizes, rng)
        try:
            want = interpret(program, inputs, sizes)
        except TCError:
            continue
        for k, kernel in enumerate(kernels):
            for seed in (None, 1) if k == 0 else (1,):
                got = execute(kernel, inputs, sizes, seed)
                for tensor in want:
                    _compare(got[tensor], want[tensor], f"{tensor} at {sizes}, shuffle {seed}")
