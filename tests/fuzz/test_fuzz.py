"""A short fuzz run: generated programs are valid; compiled code agrees with the interpreter."""

from __future__ import annotations

import random
from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tcsym.compiler import analyse
from tcsym.errors import TCError
from tcsym.frontend.interpret import interpret
from tests.fuzz.compare import kernel, run_case
from tests.fuzz.coverage import counted_passes, report
from tests.fuzz.generate import random_program
from tests.fuzz.model import Case
from tests.fuzz.thresholds import random_thresholds


def cases(level: int) -> st.SearchStrategy[Case]:
    """Random programs as a hypothesis strategy."""
    return st.integers(0, 2**32).map(lambda seed: random_program(random.Random(seed), level))


@pytest.mark.parametrize("level", [2, 3])
def test_nearly_all_generated_programs_are_accepted(level: int) -> None:
    rejected = 0
    for seed in range(60):
        try:
            analyse(random_program(random.Random(seed), level).source)
        except TCError:
            rejected += 1
    assert rejected <= 2


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_the_interpreter_runs_generated_programs(level: int) -> None:
    for seed in range(25):
        case = random_program(random.Random(seed), level)
        program = analyse(case.source)[case.name]
        for sizes in case.sizes:
            try:
                results = interpret(program, case.arrays(sizes), sizes)
            except TCError as error:
                assert error.kind in ("size", "bounds", "init")
                continue
            assert list(results) == [name for name, _ in case.outputs]
            assert all(isinstance(a, np.ndarray) for a in results.values())


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_compiled_code_agrees_with_the_interpreter(level: int) -> None:
    @settings(
        max_examples=8 if level < 3 else 4,  # these have many statements
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(level))
    def check(case: Case) -> None:
        report = run_case(case)
        assert not report.failures, case.source + report.failures[0].details

    check()


def test_layers_reach_the_schedules() -> None:
    """What the layered programs are for; the general ones seldom get there."""
    reached: set[str] = set()
    wanted = {"contraction, columns", "windows, columns", "strips along", "vectors along"}
    wanted |= {"guarded reads from a padded copy"}
    for seed in range(120):
        case = random_program(random.Random(seed), 3)
        notes = kernel(case, "symbolic", {}).explain("mapped").splitlines()
        reached |= {w for w in wanted for x in notes if x.startswith("#") and w in x}
        if reached == wanted:
            return
    raise AssertionError(f"not reached: {wanted - reached}")


def test_coverage_tells_the_passes_that_changed_a_program() -> None:
    applied: Counter[str] = Counter()
    case = random_program(random.Random(3), 3)
    with counted_passes(applied) as changed:
        kernel(case, "symbolic", {}).explain("mapped")
    assert {"accumulate.accumulate_privately", "roll_state.roll_state"} < applied.keys()
    assert changed <= applied.keys() and any(x.startswith("nest_schedule.") for x in changed)
    applied.update(changed)
    assert f"     1 of 1  {min(changed)}" in report(applied, 1).splitlines()


def test_thresholds_that_are_drawn_are_there() -> None:
    with (
        patch.object(random.Random, "random", return_value=0.0),
        random_thresholds(random.Random(0)),
    ):
        pass  # all of them
