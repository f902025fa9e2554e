# SPDX-License-Identifier: Apache-2.0
"""A short fuzz run: generated programs are valid; compiled code agrees with the interpreter."""

from __future__ import annotations

import random
from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import tcsym
from tcsym.compiler import analyse
from tcsym.errors import TCError
from tcsym.frontend.interpret import interpret
from tcsym.index.expr import var
from tcsym.index.values import evaluate
from tcsym.runtime.plan import CallPlan
from tcsym.target import llvm
from tcsym.types import DType
from tests.fuzz.compare import Failure, _Run, difference, run_case
from tests.fuzz.coverage import counted_passes, report
from tests.fuzz.effort import drawn_effort
from tests.fuzz.generate import random_program
from tests.fuzz.layouts import GARBAGE, LAYOUTS, MARGIN, laid, relaid
from tests.fuzz.model import Case, Input, TensorModel
from tests.fuzz.modes import DRAWN_MODES, WEIGHTS, drawn_modes, kernel
from tests.fuzz.thresholds import random_thresholds
from tests.fuzz.updates import results_of


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
        try:
            program = analyse(case.source)[case.name]
        except TCError:
            continue  # the test above counts them
        for sizes in case.sizes:
            try:
                results = interpret(program, case.arrays(sizes), sizes)
            except TCError as error:
                assert error.kind in ("size", "bounds", "init")
                continue
            assert list(results) == results_of(case)
            assert all(isinstance(a, np.ndarray) for a in results.values())


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_compiled_code_agrees_with_the_interpreter(level: int) -> None:
    @settings(
        max_examples=4 if level < 3 else 2,  # these have many statements
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
    wanted = {"panels", "rows in place", "single rows", "row by row", "parts of a row"}
    wanted |= {"stages a padded copy of guarded reads"}
    for seed in range(120):
        case = random_program(random.Random(seed), 3)
        made = kernel(case, "symbolic", {})
        notes = (made.explain("mapped") + made.explain("plan")).splitlines()
        reached |= {w for w in wanted for x in notes if "#" in x and w in x}
        if reached == wanted:
            return
    raise AssertionError(f"not reached: {wanted - reached}")


def test_coverage_tells_the_passes_that_changed_a_program() -> None:
    applied: Counter[str] = Counter()
    case = random_program(random.Random(3), 3)
    with counted_passes(applied) as changed:
        tcsym.define(case.source)[case.name].explain("mapped")
    passes = {"combine.accumulate.accumulate_privately", "storage.storage_folding.fold_storage"}
    assert passes < applied.keys()
    assert changed <= applied.keys() and any(
        x.startswith("tcsym.mapping.map_cpu.") for x in changed
    )
    applied.update(changed)
    assert f"     1 of 1  {min(changed)}" in report(applied, 1).splitlines()


def test_a_program_is_tried_in_a_few_ways_of_all() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(200):
        modes = drawn_modes(random_program(random.Random(seed), 0))
        assert len(set(modes)) == len(modes) == DRAWN_MODES
        drawn.update(modes)
    assert drawn.keys() == WEIGHTS.keys()


def test_results_are_what_the_generator_knows() -> None:
    for seed in range(40):
        case = random_program(random.Random(seed), seed % 4)
        program = analyse(case.source)[case.name]
        known = {name: (shape, dtype) for name, shape, dtype in case.expected}
        for output in program.outputs:
            shape, dtype = known[output.name]
            assert dtype in (None, output.dtype)
            for sizes in case.sizes:
                assert tuple(evaluate(e, sizes) for e in output.shape) == tuple(
                    evaluate(e, sizes) for e in shape
                )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_around_an_array_is_known(layout: str) -> None:
    made = laid((3, 4), np.float32, layout)
    made.array[...] = 1
    assert made.is_garbage_around()
    np.testing.assert_array_equal(relaid(made.array, "dense"), made.array)
    gap = np.flatnonzero(made.memory == GARBAGE)[-MARGIN]
    made.memory[gap] = 0
    assert not made.is_garbage_around()


def _adding(values: str = "tame") -> Case:
    n, m = var("N"), var("M")
    shapes = {"A": (n, m), "B": (n,)}
    models = (TensorModel(name, DType.FLOAT32, shape) for name, shape in shapes.items())
    inputs = tuple(Input(t, values, "plain") for t in models)
    item = "C(i, j) = A(i, j) + B(i)"
    expected = (("C", (n, m), DType.FLOAT32),)
    sizes = ({"N": 3, "M": 5}, {"N": 4, "M": 17})
    return Case((), inputs, (("C", "C"),), (item,), sizes, (), 1, expected)


def test_a_case_at_one_of_its_sizes_is_as_it_was_among_them() -> None:
    for seed in range(10):
        case = random_program(random.Random(seed), 3)
        for k, sizes in enumerate(case.sizes):
            alone = case.at(sizes)
            assert alone.turn(sizes) == case.turn(sizes) == case.sizes.index(sizes) <= k
            for name, x in case.arrays(sizes).items():
                np.testing.assert_array_equal(x, alone.arrays(sizes)[name])


def test_values_are_of_other_kinds_at_other_sizes() -> None:
    case = replace(_adding(), inputs=tuple(replace(i, varies=True) for i in _adding().inputs))
    every = [replace(case, seed=seed).at(case.sizes[0]).inputs[0].values for seed in range(60)]
    assert len(set(every)) > 3


def test_llvm_does_little_for_most_programs() -> None:
    levels = set()
    for seed in range(9):
        with drawn_effort(random.Random(seed)):
            levels.add(llvm._LEVEL)
    assert levels == {0, llvm._LEVEL} and llvm._LEVEL > 0


def test_what_the_language_says_to_the_bit_has_no_tolerance() -> None:
    sizes = {"N": 3, "M": 5}
    for exact, found in ((frozenset(), False), (frozenset({"C"}), True)):
        run = _Run(replace(_adding(), exact=exact), kernel(_adding(), "symbolic", {}))
        at = run.at(sizes)
        assert not isinstance(at.want, TCError)
        got = {"C": np.nextafter(at.want["C"], np.float32(9))}
        assert bool(difference(got, at.want, at.allowed)[0]) is found


def test_every_mode_serves_a_plain_program() -> None:
    report = run_case(_adding(), tuple(WEIGHTS))
    assert not report.failures, report.failures[0].details


def test_a_wrong_result_is_found_in_the_first_call_and_in_later_ones() -> None:
    first = patch("tests.fuzz.compare.called", lambda f, *_: lambda **given: f(**given) + 1)
    later = patch("tests.fuzz.compare.called_again", lambda *given: {"C": given[3]["C"] + 1})
    for wrong in (first, later):
        with wrong:
            report = run_case(_adding(), ("cpu:novector",))
        assert {f.kind for f in report.failures} == {"values"}


def test_a_result_of_another_shape_than_known_is_found() -> None:
    case = replace(_adding(), expected=(("C", (var("N"), var("M") + 1), DType.FLOAT32),))
    report = run_case(case, ("symbolic",))
    assert {f.kind for f in report.failures} == {"unexpected result"}


def test_code_of_other_settings_is_found() -> None:
    from tcsym.runtime import cache

    def same_key(*given: str) -> str:
        return cache.hexdigest(given[0].encode())

    with patch("tcsym.runtime.variants.code_key", same_key):
        report = run_case(_adding(), ("cached",))
    assert report.failures


def test_a_call_that_should_be_refused_is_found() -> None:
    def other(plan: CallPlan, *_: object) -> TCError:
        return plan.error("call", "", plan.program.span)

    with patch("tcsym.runtime.arguments._contradiction", other):
        kinds = {f.kind for seed in range(8) for f in _wrong_at(seed)}
    assert "call instead of size" in kinds


def _wrong_at(seed: int) -> tuple[Failure, ...]:
    return run_case(replace(_adding(), seed=seed), ("wrong",)).failures


def test_thresholds_that_are_drawn_are_there() -> None:
    with (
        patch.object(random.Random, "random", return_value=0.0),
        random_thresholds(random.Random(0)),
    ):
        pass  # all of them
