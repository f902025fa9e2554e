# SPDX-License-Identifier: Apache-2.0
"""isl's scheduler, its AST as loops, and bounds of proofs."""

from __future__ import annotations

import time
from itertools import count
from typing import get_args

import islpy as isl
import pytest

from tcsym.compiler import analyse
from tcsym.index.effort import STEP_OPERATIONS, Effort, Exhausted
from tcsym.index.presburger import Presburger
from tcsym.ir.loops import Loop
from tcsym.ir.text import kernel_text
from tcsym.ir.traverse import walk
from tcsym.options import Options, Scheduler
from tcsym.polyhedral.dependence import scop_dependences
from tcsym.polyhedral.isl_schedule import constraints
from tcsym.polyhedral.relations import Relations
from tcsym.polyhedral.scop import program_to_scop
from tcsym.proved import schedule_program
from tcsym.rewrite.bind import bind_program
from tests.polyhedral.programs import SOURCES, program

SCHEDULERS: tuple[Scheduler, ...] = get_args(Scheduler)


@pytest.mark.parametrize("name", SOURCES)
def test_isl_schedules_are_proved_or_given_up(name: str) -> None:
    s = schedule_program(program(name), Options(scheduler="isl"), {})
    assert all("scheduler isl" in note for note in s.notes)
    variables = [n.variable for n, _ in walk(s.kernel.body) if isinstance(n, Loop)]
    assert len(variables) == len(set(variables))


def test_isl_makes_no_loops_over_ranges_that_it_cannot_tell() -> None:
    text = "def f(float(B,N) C, size G) -> (T) { T(i,l) +=! C(k,l) where i in 0:B, k in i%G:i+1 }"
    s = schedule_program(analyse(text)["f"], Options(scheduler="isl"), {})
    assert all("cannot tell the bounds" in note for note in s.notes)
    lower = {n.variable: str(n.lower) for n, _ in walk(s.kernel.body) if isinstance(n, Loop)}
    assert lower["k"] == "i%G"


def test_numbers_of_more_than_64_bits() -> None:
    """A call with such sizes is refused, but a thread may have begun to make code for them."""
    text = "def f(float(N) X, size G) -> (Y) { T(i) = X(i) Y(i) = T(G*G*i % N) where i in 0:9 }"
    bound = bind_program(analyse(text)["f"], {"G": 2**61 - 1, "N": 2})
    text = kernel_text(schedule_program(bound, Options(), {}).kernel)
    assert str((2**61 - 1) ** 2) in text


def test_isl_fuses_matmul_with_its_epilogue() -> None:
    s = schedule_program(program("matmul_bias_relu"), Options(scheduler="isl"), {})
    loops = [n for n, _ in walk(s.kernel.body) if isinstance(n, Loop)]
    assert [(x.variable, x.order) for x in loops][:2] == [("m", "parallel"), ("n", "parallel")]


def test_a_long_call_is_cut_short_and_the_context_remains_usable() -> None:
    """isl counts 150,000 operations or so for three layers of constant size."""
    sizes = {"B": 128, "M": 1024, "N": 1024, "O": 512, "P": 256}
    mlp = bind_program(program("mlp3"), sizes)
    presburger = Presburger(mlp.sizes)
    scop, effort = program_to_scop(mlp), Effort(presburger.context, 10_000)
    dependences = scop_dependences(scop, Relations(scop, presburger, effort))
    hard = constraints(scop, dependences)
    for _ in range(2):
        with pytest.raises(Exhausted), effort.bounded():
            hard.compute_schedule()
    assert not isl.Set.read_from_str(presburger.context, "{ [i] : 0 <= i < 5 }").is_empty()


def test_a_null_object_of_a_call_cut_short_is_no_other_error() -> None:
    """islpy reads the text of a value as None then: not an isl error, but a TypeError."""
    context = isl.Context()
    value = isl.Val.int_from_si(context, 3)
    effort = Effort(context, 1)
    with pytest.raises(Exhausted), effort.bounded():
        value.add(value)
        int(value.to_str())
    assert value.to_str() == "3"


def test_what_a_call_cut_short_has_found_is_not_used() -> None:
    context = isl.Context()
    effort = Effort(context, 1)
    with pytest.raises(Exhausted), effort.bounded():
        isl.Val.int_from_si(context, 3)
    with effort.bounded():
        pass


def test_steps_of_ours_count() -> None:
    effort = Effort(isl.Context(), 10 * STEP_OPERATIONS)
    for _ in range(2):
        with effort.bounded():
            for _ in range(10):
                effort.step()
        with pytest.raises(Exhausted), effort.bounded():
            while True:
                effort.step()
    effort.step()  # outside of proofs all is allowed


def test_an_error_of_a_proof_remains_itself() -> None:
    with pytest.raises(ZeroDivisionError), Effort(isl.Context(), 100).bounded():
        _ = 1 // 0


@pytest.mark.parametrize("name", ("cholesky", "mlp", "branches_cover", "rnn"))
def test_no_bound_is_an_error(name: str) -> None:
    """Wherever the bound falls, also while isl's AST is read, the next strategy takes over."""
    for scheduler in SCHEDULERS:
        for step in range(40):
            options = Options(scheduler=scheduler, max_operations=int(1.4**step))
            made = schedule_program(program(name), options, {})
            assert list(walk(made.kernel.body))
            again = schedule_program(program(name), options, {})
            assert (again.kernel, again.notes) == (made.kernel, made.notes)


def test_clocks_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped for hours in between has the schedule of any other."""
    want = {name: schedule_program(program(name), Options(), {}) for name in SOURCES}
    now = count(step=3600)
    for clock in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        monkeypatch.setattr(time, clock, lambda: float(next(now)))
        monkeypatch.setattr(time, f"{clock}_ns", lambda: next(now) * 10**9)
    for name, expected in want.items():
        found = schedule_program(program(name), Options(), {})
        assert (found.kernel, found.tree, found.notes) == (
            expected.kernel,
            expected.tree,
            expected.notes,
        )


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_bounds_are_far_above_what_programs_take(name: str) -> None:
    for scheduler in SCHEDULERS:
        most = Options(scheduler=scheduler).max_operations
        usual = schedule_program(program(name), Options(scheduler=scheduler), {})
        less = Options(scheduler=scheduler, max_operations=most // 8)
        assert schedule_program(program(name), less, {}).kernel == usual.kernel


def test_a_program_that_does_nothing_is_given_up() -> None:
    (nothing,) = analyse("def f(inout float(N) A) -> () { }").values()
    notes = schedule_program(nothing, Options(scheduler="isl"), {}).notes
    assert any("there is nothing to order" in note for note in notes)
