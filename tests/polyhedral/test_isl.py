"""isl's scheduler, its AST as loops, and the wall-clock limit on isl."""

from __future__ import annotations

import time

import islpy as isl
import pytest

from tcsym.compiler import analyse
from tcsym.index.presburger import Presburger
from tcsym.ir.loops import Loop
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.polyhedral.deadline import Deadline, TimeLimit, isl_within
from tcsym.polyhedral.dependence import scop_dependences
from tcsym.polyhedral.isl_schedule import constraints
from tcsym.polyhedral.relations import Relations
from tcsym.polyhedral.scop import program_to_scop
from tcsym.rewrite.bind import bind_program
from tcsym.schedule.proved import schedule_program
from tests.polyhedral.programs import SOURCES, program


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


def test_isl_fuses_matmul_with_its_epilogue() -> None:
    s = schedule_program(program("matmul_bias_relu"), Options(scheduler="isl"), {})
    loops = [n for n, _ in walk(s.kernel.body) if isinstance(n, Loop)]
    assert [(x.variable, x.order) for x in loops][:2] == [("m", "parallel"), ("n", "parallel")]


def test_a_long_call_is_aborted() -> None:
    """isl needs half a minute for three layers of constant size; the context remains usable."""
    sizes = {"B": 128, "M": 1024, "N": 1024, "O": 512, "P": 256}
    mlp = bind_program(program("mlp3"), sizes)
    presburger = Presburger(mlp.sizes)
    scop = program_to_scop(mlp)
    dependences = scop_dependences(scop, Relations(scop, presburger, Deadline.after(60)))
    hard = constraints(scop, dependences)
    start = time.perf_counter()
    with pytest.raises(TimeLimit), isl_within(presburger.context, Deadline.after(0.2)):
        hard.compute_schedule()
    assert time.perf_counter() - start < 10
    assert not isl.Set.read_from_str(presburger.context, "{ [i] : 0 <= i < 5 }").is_empty()


def test_time_limit_bounds_the_isl_scheduler() -> None:
    for limit in (1e-3, 5e-3, 2e-2):
        took = []
        for _ in range(3):  # a busy machine may stop any of them
            start = time.perf_counter()
            schedule_program(program("attention"), Options(scheduler="isl", time_limit=limit), {})
            took.append(time.perf_counter() - start)
        assert min(took) < limit + 0.2


def test_a_null_object_of_an_aborted_call_is_the_time_limit() -> None:
    """islpy reads the text of a value as None then: not an isl error, but a TypeError."""
    context = isl.Context()
    value = isl.Val.int_from_si(context, 3)
    with pytest.raises(TimeLimit), isl_within(context, Deadline.after(60)):
        context.abort()
        int(value.to_str())
    assert value.to_str() == "3"


def test_what_an_aborted_call_has_found_is_not_used() -> None:
    context = isl.Context()
    with pytest.raises(TimeLimit), isl_within(context, Deadline.after(60)):
        context.abort()
    assert not context.aborted()


def test_an_error_within_the_time_remains_itself() -> None:
    context = isl.Context()
    with pytest.raises(ZeroDivisionError), isl_within(context, Deadline.after(60)):
        _ = 1 // 0


@pytest.mark.parametrize("name", ("cholesky", "mlp", "branches_cover"))
def test_no_time_limit_is_an_error(name: str) -> None:
    """Wherever the limit falls, also while isl's AST is read, the next strategy takes over."""
    for step in range(16):
        options = Options(scheduler="isl", time_limit=1e-3 * 1.4**step)
        assert list(walk(schedule_program(program(name), options, {}).kernel.body))


def test_a_program_that_does_nothing_is_given_up() -> None:
    (nothing,) = analyse("def f(inout float(N) A) -> () { }").values()
    notes = schedule_program(nothing, Options(scheduler="isl"), {}).notes
    assert any("there is nothing to order" in note for note in notes)
