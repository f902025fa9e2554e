# SPDX-License-Identifier: Apache-2.0
"""The tuner: candidates that misbehave, Ctrl-C, kill and resume, what it learns and keeps."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import tcsym as tc
from tcsym.cli.tune import short_text
from tcsym.compiler import analyse
from tcsym.errors import OptionError, SizeError, TCError
from tcsym.options import Options
from tcsym.process.helper import HelperError, HelperTimeout
from tcsym.target.names import resolve_target
from tcsym.tuning import lookup, shipped, trials, tune, warn
from tcsym.tuning.budget import Budget
from tcsym.tuning.choice import choice_of
from tcsym.tuning.database import Database
from tcsym.tuning.distribution import Distribution, distribution_of
from tcsym.tuning.evaluate import evaluate_job, fingerprint_of
from tcsym.tuning.evidence import Sample
from tcsym.tuning.machine import machine_key
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.report import TuningReport
from tcsym.tuning.request import DEFAULT, Request, baseline_job, template_job
from tcsym.tuning.rows import Trial, Tuned
from tcsym.tuning.survey import survey
from tcsym.tuning.times import SEARCH_TRIALS
from tcsym.tuning.tree import leaf_of
from tcsym.tuning.workers import WorkerPool
from tests.targets import with_level
from tests.tuning import faults
from tests.tuning.faults import MM, Inline, Modelled

TARGET = resolve_target("cpu:novector")
PROGRAM = analyse(MM)["mm"]
GIVEN = Options(min_work_per_thread=7)
FLAT, TALL = Options(min_work_per_thread=32768), Options(min_work_per_thread=1048576)
SIZES = [{"M": 8, "N": 8, "K": 8}, {"M": 64, "N": 32, "K": 16}, {"M": 256, "N": 64, "K": 128}]


@pytest.fixture(autouse=True)
def one_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "space_of", faults.cached_space_of)


@pytest.fixture(autouse=True)
def database(own_options: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("TCSYM_VERIFY", "0")
    monkeypatch.setattr(warn, "_warned", [])
    found = Database.at(str(tmp_path))
    assert found is not None
    return found


def distribution(sizes: Any = SIZES) -> Distribution:
    return distribution_of(PROGRAM, sizes, {}, None, 0)


def request(far: str | int = 40, **settings: Any) -> Request:
    """far: time, or a number of candidates."""
    limit = {"budget": far} if isinstance(far, str) else {"candidates": far}
    given = {"distribution": distribution(), "progress": False, **limit, **settings}
    return Request(PROGRAM, TARGET, **given)


# ---- candidates that misbehave


REASONS = {
    faults.CRASH: "crashed with SIGSEGV",
    faults.EXIT: "ended with exit code 3",
    faults.HUNGRY: "MemoryError",
    faults.WRONG_RESULT: "wrong `C`",
    faults.RAISE: "ZeroDivisionError: a bug of the compiler",
}


def with_faults(start: tuple[Options, ...], timeout: float) -> TuningReport:
    sizes = distribution(SIZES[:1])
    settings = {"start": start, "timeout": timeout, "memory": 2**30, "compile": faults.faulty}
    return tune.tune(request(2 * len(start), distribution=sizes, **settings))


def test_a_fault_costs_the_candidate_only(database: Database) -> None:
    report = with_faults(tuple(REASONS), 60.0)
    found = {a.options: a.reason for a in report.failures}
    assert found.keys() == REASONS.keys()
    for options, reason in REASONS.items():
        assert reason in found[options]
        assert reason in str(report)
    assert (report.trials[0].options, report.trials[0].state) == (DEFAULT, "measured")
    rows = [r for r in database.select(Trial) if r.state == "failed"]
    assert {Options.from_json(r.options): r.reason for r in rows} == found


def test_a_fault_in_a_survey_costs_the_candidate_only() -> None:
    """Many sizes at once: wrong results are told apart there, crashes one by one."""
    pool = WorkerPool(1, 60.0, 2**30)
    given = request(distribution=distribution(SIZES[:1]), compile=faults.faulty)
    race = Race(template_job(given), pool, 60.0, {})
    good = Options(chains=3)
    options = (DEFAULT, faults.WRONG_RESULT, good, faults.CRASH)
    attempts = [Attempt(o, "measured") for o in options]
    try:
        survey(race, attempts, [(5, 6, 7), (9, 9, 9)])
    finally:
        pool.shutdown()
    assert [a.state for a in attempts] == ["measured", "failed", "measured", "failed"]
    assert "wrong `C`" in attempts[1].reason
    assert "crashed with SIGSEGV" in attempts[3].reason
    assert attempts[2].ratios.keys() == {(5, 6, 7), (9, 9, 9)}


def test_a_hanging_candidate_is_killed() -> None:
    start = time.monotonic()
    report = with_faults((faults.HANG,), 4.0)
    assert report.failures[0].reason == "took more than 4 s"
    assert time.monotonic() - start < 100


def test_a_kernel_that_cannot_run_is_an_error() -> None:
    program = analyse("def g(float(N) x, int32(M) at) -> (y) { y(i) = x(at(i) + 5) }")["g"]
    given = distribution_of(program, [{"N": 3, "M": 4}], {}, None, 0)
    with pytest.raises(TCError, match="cannot tune g"):
        tune.tune(Request(program, TARGET, given, candidates=3, progress=False, executor=Inline()))


# ---- what it finds


def fast_rows(options: Options, values: tuple[int, ...]) -> float:
    """Tall: few threads are good. Flat: many. One field is bad everywhere, others do not matter."""
    rows = {32768: 2, 65536: 3, 262144: 6, 1048576: 8}.get(options.min_work_per_thread, 4)
    best = 8 if values[0] >= 128 else 2
    return 1e-4 * (1 + 0.1 * abs(rows - best) + 0.3 * (options.scheduler == "isl"))


def test_a_leaf_may_serve_only_sizes_that_were_not_tuned() -> None:
    """Both tuned sizes like the default, those between them another option."""

    def between(options: Options, values: tuple[int, ...]) -> float:
        if 10 < values[0] < 500:
            return 1e-4 * (1.5 - (options == GIVEN))
        return 1e-4 * (1.0 + 0.2 * (options != DEFAULT))

    ends = [{"M": m, "N": 64, "K": 64} for m in (9, 511)]
    executor = Modelled(between)
    given = {"distribution": distribution(ends), "executor": executor}
    report = tune.tune(request(30, start=(GIVEN,), **given))
    assert leaf_of(report.tree, (64, 64, 64)).options == GIVEN
    assert report.confirmed.keys() == report.weights.keys()
    assert leaf_of(report.tree, (9, 64, 64)).options == DEFAULT


@pytest.mark.parametrize("search", ["guided", "genetic"])
def test_it_finds_what_is_best_where(search: Any, database: Database) -> None:
    wide = [{"M": m, "N": 64, "K": 64} for m in (8, 16, 64, 192, 256, 512)]
    executor = Modelled(fast_rows)
    report = tune.tune(
        request(260, distribution=distribution(wide), executor=executor, search=search)
    )
    for values in report.weights:
        options = leaf_of(report.tree, values).options
        assert fast_rows(options, values) <= 1.2e-4
    assert report.gain > 1.15
    regions = lookup(PROGRAM.canonical, TARGET, PROGRAM.sizes)
    assert {r.origin for r in regions} == {"user"}
    assert len(regions) >= 2
    assert executor.confirmed  # which timed the way to the region, too
    assert all(len(job.regions) >= len(regions) for job in executor.confirmed)
    assert report.regret(40).mean < 1.1
    assert "if " in report.options


def test_nothing_better_means_the_default() -> None:
    report = tune.tune(request(60, executor=Modelled(lambda o, v: 1e-3 + 1e-4 * (o != DEFAULT))))
    assert report.options.strip() == "defaults"
    assert (report.gain, report.interval) == (1.0, (1.0, 1.0))


def test_a_winner_that_wins_no_second_time_is_dropped() -> None:
    """Luck once: measured longer, it is slower than the default."""

    def lucky(options: Options, values: tuple[int, ...]) -> float:
        return 1.0 if options == DEFAULT else 0.5 if precision[-1] > 0.005 else 1.5

    precision: list[float] = []

    executor = Modelled(lucky, lambda job: precision.append(job.precision))
    report = tune.tune(request(30, executor=executor))
    assert report.options.strip() == "defaults"


def test_given_options_are_tried_first() -> None:
    executor = Modelled(fast_rows)
    tune.tune(request(5, executor=executor, start=(GIVEN,)))
    others = [job.candidate for job in executor.jobs if job.candidate != DEFAULT]
    assert others[0] == GIVEN


def test_options_of_near_sizes_and_like_programs_are_tried_early() -> None:
    first = tune.tune(request(60, executor=Modelled(fast_rows)))
    best = leaf_of(first.tree, (256, 128, 64)).options
    other = analyse(MM.replace("C(m,n) +=! A(m,k) * B(k,n)", "C(m,n) +=! B(k,n) * A(m,k)"))["mm"]
    for program in (other, PROGRAM):
        executor = Modelled(fast_rows)
        given = distribution_of(program, [{"M": 300, "N": 50, "K": 70}], {}, None, 0)
        small = Request(program, TARGET, given, candidates=6, executor=executor, progress=False)
        tune.tune(small)
        early = [job.candidate for job in executor.jobs][:6]
        assert best in early


def test_the_seed_decides() -> None:
    def tried(seed: int) -> list[Options]:
        executor = Modelled(fast_rows)
        tune.tune(request(25, executor=executor, seed=seed))
        return [job.candidate for job in executor.jobs]

    os.environ["TCSYM_OPTIONS"] = "0"  # nothing is resumed
    try:
        assert tried(1) == tried(1) != tried(2)
    finally:
        del os.environ["TCSYM_OPTIONS"]


def test_what_was_tuned_with_one_thread_serves_one(database: Database) -> None:
    import tcsym.process.threads

    tc.set_num_threads(1)
    try:
        tune.tune(request(60, executor=Modelled(fast_rows)))
        assert database.select(Tuned)[0].machine.endswith(" threads=1")
        origins = []
        for n in (1, 2, 3):
            tc.set_num_threads(n)
            origins.append(lookup(PROGRAM.canonical, TARGET, PROGRAM.sizes)[0].origin)
        assert origins == ["user", "analytic", "analytic"]
        tc.set_num_threads(2)
        region = lookup(PROGRAM.canonical, TARGET, PROGRAM.sizes)[0]
        told = str(choice_of(PROGRAM.canonical, TARGET, region, (4, 4, 4)))
        assert told.endswith(" threads=1, which does not serve here")
        tune.tune(request(60, executor=Modelled(fast_rows)))
        tc.set_num_threads(3)
        assert lookup(PROGRAM.canonical, TARGET, PROGRAM.sizes)[0].origin == "user"
        assert len(database.select(Tuned)) == 2
    finally:
        tcsym.process.threads._chosen.value = 0


# ---- interrupted, killed, resumed


def test_ctrl_c_returns_the_best_so_far() -> None:
    def interrupt(job: Any) -> None:
        if len(executor.jobs) == 150:
            executor.before = lambda _: None
            raise KeyboardInterrupt

    executor = Modelled(fast_rows, interrupt)
    report = tune.tune(request(10_000, executor=executor))
    assert report.stopped == "interrupted"
    assert report.gain > 1.1
    assert lookup(PROGRAM.canonical, TARGET, PROGRAM.sizes)[0].origin == "user"


def test_ctrl_c_while_the_default_is_measured_gives_a_report() -> None:
    def interrupt(job: Any) -> None:
        raise KeyboardInterrupt

    executor = Modelled(fast_rows, interrupt)
    report = tune.tune(request(10_000, executor=executor))
    assert report.stopped == "interrupted" and report.trials == () and report.gain == 1
    assert "trials: none, interrupted before the default was measured" in str(report)
    assert lookup(PROGRAM.canonical, TARGET, PROGRAM.sizes)[0].origin == "analytic"


def test_a_second_ctrl_c_ends_the_confirmation() -> None:
    def interrupt(job: Any) -> None:
        if len(executor.jobs) >= 60:
            raise KeyboardInterrupt

    executor = Modelled(fast_rows, interrupt)
    report = tune.tune(request(10_000, executor=executor))
    assert report.stopped == "interrupted"
    assert set(report.confirmed) == set(report.weights)


KILLED = """
import sys
from tests.tuning.faults import MM
from tests.tuning.test_tune import request
from tcsym.tuning import tune
tune.tune(request("1000s"))
"""


def test_a_killed_tune_goes_on_from_the_store(database: Database) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED], start_new_session=True)
    deadline = time.monotonic() + 120
    while len(database.select(Trial)) < 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    rows = [r for r in database.select(Trial) if r.state in ("measured", "raced")]
    known = {r.options for r in rows}
    assert len(known) > 3
    executor = Modelled(fast_rows)
    report = tune.tune(request(4 * len(known) + 20, executor=executor))
    resumed = {a.options.to_json() for a in report.trials}
    assert known <= resumed
    assert f"; {report.n_resumed} of these by an earlier tune" in str(report)
    jobs = executor.jobs[1:6]  # after the default; an interrupted race goes on at other sizes
    asked = {(job.candidate.to_json(), json.dumps(v)) for job in jobs for v in job.sizes}
    assert not asked & {(r.options, r.sizes) for r in rows}


def test_trials_of_another_compiler_are_not_resumed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune.tune(request(20, executor=Modelled(fast_rows)))
    monkeypatch.setattr(trials, "compiler_version", lambda: "another")
    report = tune.tune(request(1, executor=Modelled(fast_rows)))
    assert len(report.trials) < 15


def test_workers_that_die_with_their_tuner(database: Database) -> None:
    """A worker whose tuner is gone reads the end of its input and ends."""
    pool = WorkerPool(1)
    pid = pool.submit(os.getpid).result()
    assert pid != os.getpid()
    pool.shutdown()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_store_that_cannot_be_written_is_said_in_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Database, "put", lambda *_: False)
    report = tune.tune(request(120, executor=Modelled(fast_rows)))
    assert not report.is_kept
    assert "could not be written" in str(report)
    assert report.gain > 1.0


# ---- other executors


class Threads(ThreadPoolExecutor):
    """Jobs out of order, and one whose worker is lost on the way."""

    def __init__(self) -> None:
        super().__init__(2)
        self.model = Modelled(fast_rows)
        self.n_lost = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(self._run, *args)

    def _run(self, job: Any) -> Any:
        if len(self.model.jobs) == 9 and not self.n_lost:
            self.n_lost += 1
            raise BrokenExecutor("a worker was killed")
        return self.model.submit(lambda: None, job).result()


def test_any_executor_of_concurrent_futures_will_do() -> None:
    with Threads() as executor:
        report = tune.tune(request(200, executor=executor))
    assert executor.n_lost == 1
    assert [a.reason for a in report.failures] == ["a worker was killed"]
    assert report.gain > 1.05


def test_what_is_no_executor_is_refused() -> None:
    kernel = tc.define(MM, target="cpu:novector").mm
    with pytest.raises(OptionError, match="executor"):
        kernel.tune(SIZES, candidates=3, executor="localhost")


def test_a_machine_of_another_kind_is_told() -> None:
    other = replace(TARGET, machine=with_level(TARGET.machine, "l2", 12345 * 1024))
    given = Request(PROGRAM, other, distribution(), candidates=3, executor=Inline(), progress=False)
    with pytest.raises(TCError, match="l2=12345K"):
        tune.tune(given)


class Mangling(Inline):
    """What it is sent arrives as something else."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(fn, replace(args[0], candidate=Options(parallelize=False)))


def test_workers_that_compile_other_code_are_told() -> None:
    given = Request(
        PROGRAM, TARGET, distribution(), candidates=3, executor=Mangling(), progress=False
    )
    with pytest.raises(TCError, match="other code than calls run"):
        tune.tune(given)


def test_the_code_of_calls_is_what_workers_compile() -> None:
    """In a process with other hashes, from a pickle: the fingerprint that a tune expects."""
    job = baseline_job(request())
    pool = WorkerPool()
    try:
        outcome = pool.submit(evaluate_job, replace(job, expected="none")).result()
    finally:
        pool.shutdown()
    assert outcome.state == "failed" and outcome.fingerprint == job.expected
    kernel = tc.define(MM, target="cpu:novector").mm.precompile()
    (version,) = kernel._dispatcher.versions
    (variant,) = version.variants.made
    assert fingerprint_of(variant.compiled) == job.expected


def test_a_dask_cluster_one_worker_of_which_is_killed(distributed: Any) -> None:
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    kernel = tc.define(MM, target="cpu:novector").mm
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        pids = client.run(os.getpid)
        victim = threading.Timer(3.0, os.kill, (next(iter(pids.values())), signal.SIGKILL))
        victim.start()
        report = kernel.tune(SIZES[:2], candidates=12, executor=client, progress=False)
        victim.join()
        again = kernel.tune(SIZES[:2], candidates=14, executor=client, progress=False)
    assert len(report.trials) >= SEARCH_TRIALS * 12  # more only if one of them wins
    assert any(a.state == "measured" for a in again.trials[1:])


# ---- the user's side


def test_kernel_tune_serves_the_next_call_and_the_next_kernel(database: Database) -> None:

    def prefers(options: Options, values: tuple[int, ...]) -> float:
        return 1e-4 * (1.5 - 0.5 * (options.parallel_loops == 2))

    kernel = tc.define(MM, target="cpu:novector").mm
    assert kernel.options_for(M=4, N=4, K=4).origin == "analytic"
    report = kernel.tune(SIZES, candidates=60, executor=Modelled(prefers), progress=False)
    assert report.gain > 1.2
    for found in (kernel, tc.define(MM, target="cpu:novector").mm):
        choice = found.options_for(M=16, N=8, K=8)
        assert choice.options.parallel_loops == 2
        assert (choice.origin, choice.nearest, choice.distance) == (
            "user",
            (8, 8, 8),
            pytest.approx(0.9175, abs=1e-3),
        )
        assert "measured at (8, 8, 8), 0.9 doublings away" in str(choice)
        a, b = np.ones((4, 3), np.float32), np.ones((3, 5), np.float32)
        np.testing.assert_array_equal(found(a, b), a @ b)
    assert database.select(Tuned)[0].text == MM
    for given, expected in (
        (None, ("user", 2)),
        (Options(), ("given", 3)),  # the defaults, so that a gain can be measured
        (Options(min_work_per_thread=2), ("given", 3)),
        (Options(bind="after"), ("user", 2)),
        (Options(bind={"K": "after"}), ("user", 2)),
    ):
        choice = tc.define(MM, target="cpu:novector", options=given).mm.options_for(M=16, N=8, K=8)
        assert (choice.origin, choice.options.parallel_loops) == expected, given
    with pytest.raises(SizeError, match="`K`"):
        kernel.options_for(M=1, N=1)


def test_report_prints_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tune.tune(request(30, executor=Modelled(fast_rows)))
    text = str(report)
    assert "times as fast as the default" in text
    assert all(word in text for word in ("gain", "M", "trials: ", "options:"))
    assert f"other sizes: {report.n_visited} visited\n" in text
    report.held_out = {(1, 1, 1): 0.0, (2, 2, 2): 0.2}
    assert "held out" in str(report) and "10.5 %" in str(report) and "worst 22 %" in str(report)
    assert str(report.trials[0]).startswith("defaults: measured, 1.000 times as fast at ")
    gains = [gain for _, gain in report.convergence()]
    assert gains == sorted(gains)
    figure = report.plot(str(tmp_path / "picture.png"))
    assert (tmp_path / "picture.png").stat().st_size > 1000
    assert figure.axes[0].get_title() == report.plot().axes[0].get_title() == report.name
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(TCError, match="matplotlib"):
        report.plot()


def test_progress_tells_trials_and_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[tuple[str, float | None]]()
    monkeypatch.setattr(tune.Progress, "tell", lambda self, *state: told.append(state))
    report = tune.tune(request(20, executor=Modelled(fast_rows), progress=True))
    assert len(told) > 1 and told[0][0].startswith("1 trials, 0 failed, 1.00x: defaults")
    shares = [share for _, share in told]
    assert shares == sorted(shares) and 0 < shares[0] < shares[-1] <= 1
    counts = [int(state.split()[0]) for state, _ in told]
    assert counts == sorted(counts) and counts[-1] <= len(report.trials)


@pytest.mark.parametrize(
    "budget", ["", "fast", "-3s", "0s", "1.2.3s", 0, -1, True, [], "10 days", "1e9"]
)
def test_a_budget_is_time(budget: Any) -> None:
    with pytest.raises(OptionError, match="budget"):
        tune.tune(request(budget=budget, candidates=None, executor=Modelled(fast_rows)))


@pytest.mark.parametrize("candidates", [0, -1, True, 2.5, "3"])
def test_candidates_are_a_number(candidates: Any) -> None:
    with pytest.raises(OptionError, match="candidates"):
        tune.tune(request(candidates=candidates, executor=Modelled(fast_rows)))


def test_a_number_alone_is_seconds() -> None:
    for given, seconds in ((20, 20.0), (0.5, 0.5), ("20", 20.0), ("2min", 120.0), (None, 60.0)):
        assert (Budget(given).seconds, Budget(given).trials) == (seconds, None)
    assert (Budget(candidates=20).seconds, Budget(candidates=20).trials) == (None, 20)
    with pytest.raises(OptionError, match="not both"):
        Budget("20s", 20)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([], "empty"),
        ([{"M": 1, "N": 2}], "`K`"),
        ([{"M": 1, "N": 2, "K": 3, "L": 4}], "`L`"),
        ([{"M": -1, "N": 2, "K": 3}], "`M`"),
        ("M=3", "expected a list"),
        ([3], "mapping"),
        ({"M": "x"}, "`M`"),
    ],
)
def test_sizes_are_checked(sizes: Any, message: str) -> None:
    with pytest.raises(SizeError, match=message):
        distribution(sizes)


@pytest.mark.parametrize("sizes", [[(4, 5, 6)], (4, 5, 6), [[4, 5, 6, 7]], [(4,)], 4, ["x"]])
def test_sizes_without_names_show_a_mapping(sizes: Any) -> None:
    with pytest.raises(SizeError) as caught:
        distribution(sizes)
    call = caught.value.hint.split("`")[1]
    given = eval(call.removeprefix("tune"))
    found = distribution(given)
    if sizes not in (4, ["x"], [(4,)]):
        assert found.sizes == ((4, 5, 6),)


def test_arguments_of_kernel_tune_are_checked() -> None:
    kernel = tc.define(MM, target="cpu:novector").mm
    with pytest.raises(OptionError, match="search"):
        kernel.tune(SIZES, candidates=3, search="best")
    with pytest.raises(OptionError, match="start"):
        kernel.tune(SIZES, candidates=3, start="fast")
    with pytest.raises(SizeError, match="weights"):
        kernel.tune(SIZES, candidates=3, weights=[1.0])


def test_a_tune_with_no_time_keeps_what_an_earlier_one_found(database: Database) -> None:
    first = tune.tune(request(120, executor=Modelled(fast_rows)))
    found = leaf_of(first.tree, (64, 16, 32)).options
    assert found != DEFAULT
    other = [{"M": 40, "N": 30, "K": 20}]
    settings = {"executor": Modelled(fast_rows), "distribution": distribution(other)}
    again = tune.tune(request(1, **settings))
    assert leaf_of(again.tree, (40, 20, 30)) == leaf_of(first.tree, (40, 20, 30))
    assert leaf_of(again.tree, (64, 16, 32)).options == found
    (row,) = database.select(Tuned)
    measured = json.loads(row.measured)
    assert [40, 20, 30] in measured and [64, 16, 32] in measured


def test_a_first_tune_with_no_time_keeps_nothing(database: Database) -> None:
    """Or `defaults` would be told to be the user's choice, and would hide what is shipped."""
    report = tune.tune(request(1, executor=Modelled(fast_rows)))
    assert database.select(Tuned) == [] and database.select(Trial)
    assert "there was time for the default only" in str(report)
    tune.tune(request(60, executor=Modelled(fast_rows)))
    assert len(database.select(Tuned)) == 1


def test_what_is_shipped_serves_where_nothing_was_measured(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({"options": {"chains": 3}})
    given = (
        PROGRAM.canonical,
        machine_key(TARGET),
        "2p1r",
        text,
        "[[9, 9, 9]]",
        1.1,
        "2026-01-01",
        "mm",
        MM,
    )
    (tmp_path / shipped.file_name("mm", PROGRAM.canonical)).write_text(
        shipped.tuned_text([Tuned(*given)])
    )
    monkeypatch.setattr(shipped.shipped, "__defaults__", (str(tmp_path),))

    def prefers(options: Options, values: tuple[int, ...]) -> float:
        return 1e-4 * (1.5 - 0.5 * (options == TALL))

    report = tune.tune(request(60, executor=Modelled(prefers), start=(TALL,)))
    assert leaf_of(report.tree, (256, 128, 64)).options == TALL
    assert leaf_of(report.tree, (100_000, 1, 1)).options == Options(chains=3)


# ---- workers that are killed, budgets that are too small


def killed(times: int) -> Callable[[Any], None]:
    """Jobs whose worker is killed, the first ones."""
    left = iter(range(times))

    def before(_: Any) -> None:
        if next(left, None) is not None:
            raise HelperError("crashed with SIGKILL")

    return before


class Dying(Modelled):
    """`before` fails as a job of a worker does."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().submit(fn, *args, **kwargs)
        except HelperError as error:
            future: Future[Any] = Future()
            future.set_exception(error)
            return future


def test_a_worker_killed_while_it_measures_the_default_is_replaced() -> None:
    report = tune.tune(request(12, executor=Dying(fast_rows, killed(1))))
    assert report.trials[0].state == "measured" and report.failures == ()
    assert len(report.trials) > 8


def test_two_workers_killed_over_the_default_are_an_error() -> None:
    with pytest.raises(TCError, match=r"cannot tune mm: two workers .* lost: crashed with SIGKILL"):
        tune.tune(request(12, executor=Dying(fast_rows, killed(2))))


def test_a_default_that_takes_too_long_is_not_tried_again() -> None:
    def slow(_: Any) -> None:
        asked.append(1)
        raise HelperTimeout("took more than 300 s")

    asked: list[int] = []
    with pytest.raises(TCError, match="cannot tune mm: took more than 300 s"):
        tune.tune(request(12, executor=Dying(fast_rows, slow)))
    assert len(asked) == 1


def test_an_executor_that_takes_no_jobs_any_more_is_told() -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(TCError, match=r"cannot tune mm: two workers .* after shutdown"):
        tune.tune(request(12, executor=executor))


def test_a_real_worker_killed_while_it_measures_the_default(database: Database) -> None:
    def kill() -> None:
        while not hasattr(pool, "victim"):
            time.sleep(0.01)
        os.kill(pool.victim, signal.SIGKILL)

    class Watched(WorkerPool):
        victim: int

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not hasattr(self, "victim"):
                victim = super().submit(os.getpid).result()
                future = super().submit(fn, *args, **kwargs)
                self.victim = victim
                return future
            return super().submit(fn, *args, **kwargs)

    pool = Watched()
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        report = tune.tune(request(3, executor=pool))
    finally:
        killer.join()
        pool.shutdown()
    assert report.trials[0].state == "measured"


class Ticking:
    """A clock that only jobs move, as `Budget` reads it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 1.0) -> None:
        self.now, self.seconds = 0.0, seconds
        monkeypatch.setattr(Budget, "elapsed", property(lambda _: self.now))

    def tick(self, _: Any) -> None:
        self.now += self.seconds

    def tuned(self, budget: float, **settings: Any) -> TuningReport:
        self.now = 0.0
        executor = Modelled(fast_rows, self.tick)
        return tune.tune(request(f"{budget}s", executor=executor, **settings))


@pytest.mark.parametrize(("budget", "seconds"), [(1, 0.9), (3, 0.3), (10, 0.9), (60, 0.3)])
def test_a_budget_is_a_promise(
    monkeypatch: pytest.MonkeyPatch, budget: float, seconds: float
) -> None:
    """Of the time of jobs, at most one that has begun is more than was promised."""
    clock = Ticking(monkeypatch, seconds)
    report = clock.tuned(budget, start=(FLAT, TALL))
    assert clock.now <= budget + seconds
    assert report.seconds <= 1.1 * budget or seconds > 0.1 * budget
    if budget == 60 and seconds == 0.3:
        assert report.gain > 1.0


def test_time_is_set_aside_to_confirm(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the budget, what was searched for is not lost for want of time."""
    for budget in (6, 10, 20):
        clock = Ticking(monkeypatch, 0.2)
        report = clock.tuned(budget, start=(FLAT,))
        assert len(report.trials) > 1 and not report.notes


def test_what_hangs_is_ended_with_the_budget() -> None:
    """A worker that never answers: the time is the budget's, not the worker's."""
    hang = {"start": (faults.HANG,), "timeout": 900.0, "compile": faults.faulty}
    start = time.monotonic()
    report = tune.tune(request("9s", distribution=distribution(SIZES[:1]), **hang))
    assert time.monotonic() - start < 90
    assert report.options.strip() == "defaults" and report.failures == ()


def test_a_default_that_there_is_no_time_for_is_told(database: Database) -> None:
    report = tune.tune(request("0.01s", distribution=distribution(SIZES[:1])))
    assert report.trials == () and report.gain == 1.0 and database.select(Tuned) == []
    assert "there was no time before the default was measured" in str(report)
    assert "nothing was compared" in str(report) and "times as fast" not in str(report)
    assert "nothing was compared" in report._repr_html_()
    assert "too little time for mm" in str(report)
    assert report.regret(3).unknown and report.convergence() == []


def test_nothing_is_known_of_what_is_lost_where_nothing_was_tried() -> None:
    report = tune.tune(request(1, executor=Modelled(fast_rows)))
    regret = report.regret(5)
    assert math.isnan(regret.mean) and math.isnan(regret.worst) and regret.sizes == ()
    assert str(regret).startswith("nothing is known of what is lost: no candidate was measured")
    one = distribution([{"M": 8, "N": 8, "K": 8}])
    tried = tune.tune(request(30, executor=Modelled(fast_rows), distribution=one)).regret(5)
    assert "no sizes other than the tuned ones" in str(tried)


def test_a_tuned_size_governs_no_other() -> None:
    one = distribution([{"M": 8, "N": 8, "K": 8}])
    report = tune.tune(request(120, executor=Modelled(fast_rows), distribution=one))
    assert report.gain > 1.05 and leaf_of(report.tree, (8, 8, 8)).options != DEFAULT
    for near in ((9, 8, 8), (8, 8, 16), (7, 7, 7)):
        assert leaf_of(report.tree, near).options == DEFAULT


def test_a_noisy_machine_keeps_the_default(database: Database) -> None:
    class Noisy(Modelled):
        def _outcome(self, job: Any) -> Any:
            found = super()._outcome(job)
            if not isinstance(found, Sample):
                return found
            return Sample(tuple((a, b * (2 if k % 2 else 1), c) for k, (a, b, c) in _each(found)))

    report = tune.tune(request(60, executor=Noisy(fast_rows)))
    assert report.options.strip() == "defaults" and report.gain == 1.0
    assert any(note.startswith("too noisy: copies of the default") for note in report.notes)
    assert report.notes[-1] in str(report)


def _each(sample: Sample) -> Any:
    return enumerate(sample.rounds)


def test_code_that_was_measured_serves_calls(database: Database) -> None:
    """A tune leaves code for the options that it keeps; calls after it compile nothing."""
    kernel = tc.define(MM, target="cpu:novector").mm
    report = kernel.tune(SIZES[:1], candidates=2, progress=False)
    assert DEFAULT in report.code
    made = kernel.stats.compilations
    ones = np.ones((8, 8), np.float32)
    assert (kernel(ones, ones) == 8).all() and kernel.stats.compilations == made
    again = tc.define(MM, target="cpu:novector").mm
    assert (again(ones, ones) == 8).all() and again.stats.compilations == 0


def test_too_little_time_is_told_with_how_much_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only jobs take time, a second each."""

    def tick(_: Any) -> None:
        clock[0] += 1.0

    def tuned(seconds: float) -> TuningReport:
        clock[0] = 0.0
        return tune.tune(request(f"{seconds}s", executor=Modelled(fast_rows, tick)))

    clock = [0.0]
    monkeypatch.setattr(Budget, "elapsed", property(lambda _: clock[0]))
    reports = {seconds: tuned(seconds) for seconds in (1.5, 8, 60)}
    assert [r.is_short for r in reports.values()] == [True, True, False]
    told = "too little time for mm: 1.0 s; a first round of candidates needs at least 3 s"
    assert told in str(reports[1.5]).splitlines()
    assert "too little time for mm: " in str(reports[8])
    assert "too little time" not in str(reports[60])
    by_trials = tune.tune(request(3, executor=Modelled(fast_rows, tick)))
    assert not by_trials.is_short
    needed = short_text(list(reports.values()))
    assert needed.startswith("too little time for mm, mm: all need a budget of at least ")
    assert short_text([by_trials]) == ""
