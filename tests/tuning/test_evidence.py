# SPDX-License-Identifier: Apache-2.0
"""What counts as a win: paired ratios, the sign test, copies of the default as control."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcsym.compiler import analyse
from tcsym.options import Options
from tcsym.runtime.native import native
from tcsym.target.names import resolve_target
from tcsym.tuning import confirm
from tcsym.tuning.called import call_of
from tcsym.tuning.confirm import LATE, Confirmation, Given, RoundsJob, evaluate_rounds
from tcsym.tuning.evaluate import Job, compile_dense, evaluate_job, inputs_at, loaded
from tcsym.tuning.evidence import (
    CROWDED,
    NOISY,
    SLOWER,
    Sample,
    Verdict,
    median_interval,
    verdict_of,
    wins,
)
from tcsym.tuning.timing import LEAST_BATCH, batch_of, rounds_of
from tcsym.tuning.tree import Box, Leaf, Split, contexts
from tests.tuning.faults import MM, Inline, Modelled

TARGET = resolve_target("cpu")
PROGRAM = analyse(MM)["mm"]
FAST, WIDE = Options(min_work_per_thread=2), Options(parallel_loops=2)
SIZES = (8, 8, 8)


def sample(gain: float, noise: float = 0.0, seed: int = 0, n: int = 60, **more: Any) -> Sample:
    """Times with log-normal noise of their own, below a drift that all of a round share."""
    rng = random.Random(seed)
    rounds = []
    for _ in range(n):
        drift = rng.choice((1.0, 1.0, 3.0))
        a, b, c = (drift * math.exp(rng.gauss(0.0, noise)) for _ in range(3))
        rounds.append((a, b, c * math.exp(gain)))
    return Sample(tuple(rounds), **more)


def test_a_drift_that_all_share_is_no_noise() -> None:
    verdict = verdict_of([sample(-0.1), sample(-0.1, seed=1)])
    assert verdict.is_won and verdict.log == pytest.approx(-0.1) and verdict.noise < 1e-9


def test_a_gain_below_what_copies_of_the_default_differ_by_is_none() -> None:
    systematic = [Sample(((1.0, 1.04, 0.99),) * 20)] * 2
    verdict = verdict_of(systematic)
    assert verdict.noise == pytest.approx(math.log(1.04)) and verdict.log < 0
    assert not verdict.is_won and not verdict.is_noisy


def test_a_candidate_must_win_in_every_process() -> None:
    assert verdict_of([sample(-0.2), sample(-0.2, seed=1)]).is_won
    assert not verdict_of([sample(-0.2), sample(0.01, seed=1)]).is_won


def test_nothing_is_believed_on_a_noisy_machine() -> None:
    loud = verdict_of([sample(-0.3, noise=0.5, n=12)])
    assert loud.noise > NOISY and loud.is_noisy and not loud.is_won
    crowded = verdict_of([sample(-0.3), sample(-0.3, waited=2 * CROWDED)])
    assert crowded.is_noisy and not crowded.is_won


def test_few_rounds_say_nothing() -> None:
    assert verdict_of([sample(-0.5, n=5)]).is_noisy
    assert verdict_of([sample(-0.5, n=6)]).is_won


def test_copies_of_the_default_hardly_ever_win() -> None:
    found = [
        verdict_of([sample(0.0, 0.05, 2 * k), sample(0.0, 0.05, 2 * k + 1)]) for k in range(300)
    ]
    assert sum(v.is_won for v in found) <= 1


@pytest.mark.parametrize("n", [6, 7, 12, 13, 60, 201])
def test_the_interval_covers_the_median_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(n)
    ends = [median_interval(rng.standard_normal(n).tolist()) for _ in range(600)]
    covered = sum(low <= 0.0 <= high for low, _, high in ends) / len(ends)
    assert covered > 0.93
    assert median_interval([3.0, 1.0, 2.0]) == (-math.inf, 2.0, math.inf)


def verdict(log: float, noise: float = 0.01) -> Verdict:
    return Verdict(log, log - 0.005, log + 0.005, noise, 1e-6)


def test_a_region_wins_in_the_mean_and_loses_nowhere() -> None:
    assert wins([(1.0, verdict(-0.1)), (1.0, verdict(0.0))])
    assert not wins([(1.0, verdict(-0.5)), (0.01, verdict(2 * SLOWER))])
    assert not wins([(1.0, verdict(-0.5)), (0.01, verdict(-0.1, 2 * NOISY))])
    assert not wins([(1.0, verdict(-0.01))])
    assert not wins([])


# ---- how it is measured


class Clock:
    """Moved by calls only."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[int] = []

    def perf_counter(self) -> float:
        return self.now

    def call(self, k: int, *seconds: float) -> Callable[[], None]:
        """A call that takes these seconds, one after another, then always the last."""
        left = list(seconds)

        def run() -> None:
            self.order.append(k)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("tcsym.tuning.timing.time", made)
    return made


def test_a_batch_is_long_enough_whatever_its_first_call_takes(clock: Clock) -> None:
    """The first call of all loads pages, and any call may be interrupted for milliseconds."""
    assert 512 <= batch_of(clock.call(0, 4e-3, 4e-3, 4e-7)) <= 1024
    assert batch_of(clock.call(0, 2 * LEAST_BATCH)) == 1


def test_rounds_are_in_turning_order(clock: Clock) -> None:
    calls = [clock.call(k, 1e-3 * (k + 1)) for k in range(3)]
    rounds = rounds_of(calls, 10.0, 6)
    assert rounds == (pytest.approx((1e-3, 2e-3, 3e-3)),) * 6
    last = clock.order[-18:]
    assert len({tuple(last[k : k + 3]) for k in range(0, 18, 3)}) >= 4


def test_a_reversed_job_tells_times_in_the_usual_order(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def rounds(calls: Any, *_: Any) -> Any:
        asked.append(calls)
        return ((1.0, 2.0, 3.0),) * 6

    monkeypatch.setattr(confirm, "rounds_of", rounds)
    job = RoundsJob(PROGRAM, TARGET, FAST, SIZES, 1)
    assert evaluate_rounds(job).rounds[0] == (1.0, 2.0, 3.0)
    turned = RoundsJob(PROGRAM, TARGET, FAST, SIZES, 1, is_reversed=True)
    assert evaluate_rounds(turned).rounds[0] == (3.0, 2.0, 1.0)
    assert len(set(map(id, asked[0]))) == 3


def test_what_is_timed_is_a_call_with_its_result() -> None:
    """As `kernel(A, B)`: a new array each time, by the code of the candidate."""
    kernel = loaded(PROGRAM, TARGET, Options(), compile_dense)
    inputs = inputs_at(PROGRAM, SIZES, 0)
    call: Any = call_of(PROGRAM, TARGET, kernel, (), SIZES, inputs, 1)
    first, second = call(), call()
    assert first is not second
    np.testing.assert_allclose(first, inputs[0] @ inputs[1], rtol=1e-5)
    assert isinstance(call.func, native.Entry)


def test_a_call_finds_its_region_where_others_have_options_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was kept once made a product of 4 x 4 a third slower: the way there was not timed."""
    timed: list[Any] = []

    def rounds(calls: Any, *_: Any) -> Any:
        timed.extend(calls)
        return ((1.0, 1.0, 1.0),) * 6

    monkeypatch.setattr(confirm, "rounds_of", rounds)
    tree = Split(Box(((1, 9), (1, 9), (1, 9))), Leaf(FAST), Leaf(Options()))
    regions = tuple(context for context, _ in contexts(tree, PROGRAM.sizes))
    evaluate_rounds(RoundsJob(PROGRAM, TARGET, FAST, SIZES, 1, regions=regions))
    *defaults, candidate = [call.func for call in timed]
    assert all(isinstance(call, native.Entry) for call in defaults)
    assert isinstance(candidate, native.Switch)
    a, b = inputs_at(PROGRAM, SIZES, 0)
    np.testing.assert_allclose(timed[-1](), a @ b, rtol=1e-5)
    monkeypatch.setattr("tcsym.tuning.called.switch_image", lambda *_: None)
    evaluate_rounds(RoundsJob(PROGRAM, TARGET, WIDE, SIZES, 1, regions=regions))
    assert not isinstance(timed[-1].func, native.Switch | native.Entry)
    np.testing.assert_allclose(timed[-1](), a @ b, rtol=1e-5)


def test_calls_with_free_sizes_and_those_through_python_are_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "def pad(float(N) A) -> (float(P) O) { O(i) = i < N ? A(i) : 0.0 }"
    program = analyse(text)["pad"]
    values = tuple({"N": 3, "P": 5}[name] for name in program.sizes)
    for image in (None, "native"):
        if image is None:
            monkeypatch.setattr("tcsym.tuning.called.entry_image", lambda *_: None)
        kernel = loaded(program, TARGET, Options(), compile_dense, copy=2 if image else 3)
        inputs = inputs_at(program, values, 0)
        result: Any = call_of(program, TARGET, kernel, (), values, inputs, 1)()
        assert result.tolist() == [*inputs[0].tolist(), 0.0, 0.0]
        monkeypatch.undo()


def test_a_job_of_the_search_times_calls_too(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Any] = []

    def compare(*given: Any) -> Any:
        timed.extend(given[:2])
        raise ZeroDivisionError

    monkeypatch.setattr("tcsym.tuning.evaluate.compare", compare)
    evaluate_job(Job(PROGRAM, TARGET, FAST, Options(), (SIZES,), 1))
    assert [np.asarray(call()).shape for call in timed] == [(8, 8)] * 2


# ---- who measures


def confirmation(executor: Any, left: float = math.inf) -> Confirmation:
    job = Job(PROGRAM, TARGET, Options(), Options(), (), 1)
    return Confirmation(job, executor, 0, lambda: left)


def test_both_orders_are_asked_for() -> None:
    executor = Modelled(lambda o, v: 1e-3 * (1 - 0.2 * (o == FAST)))
    found = confirmation(executor).verdict(FAST, SIZES)
    assert isinstance(found, Verdict) and found.is_won
    assert [job.is_reversed for job in executor.confirmed] == [False, True]


def test_without_time_there_is_no_verdict() -> None:
    executor = Modelled(lambda o, v: 1e-3)
    assert confirmation(executor, 0.1).verdict(FAST, SIZES) == LATE
    assert not executor.confirmed


def test_options_that_fail_in_the_end_have_no_verdict() -> None:
    def fails(_: Any) -> None:
        raise ZeroDivisionError("a bug")

    class Failing(Inline):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            return super().submit(fails, *args)

    found = confirmation(Failing()).verdict(FAST, SIZES)
    assert isinstance(found, str) and "ZeroDivisionError: a bug" in found


def test_its_processes_are_new_ones_and_end_with_it() -> None:
    judge = confirmation(None)
    try:
        judge.begin(1)
        found = judge.verdict(FAST, SIZES)
        workers = [worker for pool in judge._own for worker in pool._running]
        assert isinstance(found, Verdict) and len(workers) == 2
    finally:
        judge.close()
    assert all(worker.process.returncode is not None for worker in workers)


def test_code_that_was_measured_is_not_compiled_again() -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    code = compile_dense(PROGRAM, TARGET, FAST)
    assert Given(((FAST, code),), never)(PROGRAM, TARGET, FAST) is code
    with pytest.raises(AssertionError):
        Given(((FAST, code),), never)(PROGRAM, TARGET, Options())


def test_threads_that_wait_for_a_core_are_seen() -> None:
    idle, before = (5.0, 9.0), {"7": (1.0, 1.0), "8": (5.0, 9.0)}
    assert confirm._waited(before, {"7": (1.5, 1.5), "8": idle}, 1.0) == pytest.approx(0.5)
    assert confirm._waited(before, before, 1.0) == 0.0
