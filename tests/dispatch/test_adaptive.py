# SPDX-License-Identifier: Apache-2.0
"""Versions made beside the calls: when they are adopted; failures, forks, threads, exits."""

from __future__ import annotations

import gc
import os
import pickle
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.dispatch import compile_queue as beside
from tcsym.dispatch import hot_sizes
from tcsym.dispatch.compile_queue import compilations
from tcsym.dispatch.trial import PAIRS, ROUNDS, Trial
from tcsym.options import Options
from tcsym.process.helper import request
from tcsym.runtime.background import settle
from tcsym.strategy import Auto, Specialize
from tests.quiet_forks import QUIET_FORKS

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
EAGER = Auto(hot=0.0, share=1.0)


def operands(m: int, k: int, n: int) -> tuple[Any, Any]:
    return np.ones((m, k), F32), np.ones((k, n), F32)


def ready(kernel: Any, sizes: tuple[int, int, int], calls: int = 4) -> None:
    """Call until whatever is to happen beside the calls has happened."""
    for _ in range(calls):
        assert (kernel(*operands(*sizes)) == sizes[1]).all()
        settle()
        compilations.settle()


@pytest.fixture(autouse=True)
def settled() -> Iterator[None]:
    yield
    compilations.settle()


def states(kernel: Any) -> Any:
    return kernel._dispatcher.policy.hot.states


# ---- trials


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of a trial's clock, which only its functions move."""
    now = [0.0]
    monkeypatch.setattr("tcsym.dispatch.trial.perf_counter", lambda: now[0])
    return now


def alternating(
    clock: list[float], seconds: tuple[float, float], calls: int
) -> tuple[list[int], list[Any]]:
    ran: list[int] = []
    decided: list[Any] = []
    disturbed = random.Random(0)

    def function(which: int) -> Any:
        def run(x: int) -> list[int]:
            ran.append(which)
            clock[0] += seconds[which] * disturbed.choice((1.0, 1.1, 1.0, 3.0))
            return [x]

        return run

    trial = Trial(function(0), function(1), lambda *told: decided.append(told))
    results = [trial(k) for k in range(calls)]
    assert results == [[k] for k in range(calls)]
    assert len({id(r) for r in results}) == calls
    return ran, decided


def test_the_faster_version_wins_every_round(clock: list[float]) -> None:
    ran, decided = alternating(clock, (2e-4, 1e-4), 2 + 2 * PAIRS * ROUNDS + 5)
    assert [d[0] for d in decided] == [True]
    assert decided[0][1] > decided[0][2] > 0
    assert abs(ran.count(0) - ran.count(1)) <= 2
    assert ran[:8] in ([0, 1, 1, 0] * 2, [1, 0, 0, 1] * 2)


def test_the_slower_version_loses_at_once(clock: list[float]) -> None:
    _, decided = alternating(clock, (1e-4, 2e-4), 2 + 2 * PAIRS + 1)
    assert [d[0] for d in decided] == [False]


def test_errors_in_a_trial_are_the_callers() -> None:
    def fail(*_: Any) -> None:
        raise tc.SizeError("no")

    trial = Trial(fail, fail, lambda *_: None)
    for _ in range(3):
        with pytest.raises(tc.SizeError):
            trial(1)


# ---- auto


def test_hot_sizes_are_compiled_and_tried() -> None:
    kernel = tc.define(MM, strategy=EAGER).mm
    ready(kernel, (5, 6, 7))
    assert states(kernel) == {(5, 6, 7): "tried"}
    for _ in range(2 * PAIRS * ROUNDS + 5):
        kernel(*operands(5, 6, 7))
    (decision,) = kernel.stats.decisions
    assert decision.sizes == (("M", 5), ("K", 6), ("N", 7)) and len(decision.seconds) == 2
    assert states(kernel)[5, 6, 7] in ("adopted", "rejected")
    text = kernel.explain("variants", M=5, K=6, N=7)
    assert "decided: M = 5, K = 6, N = 7: " in text and " us" in text
    assert sum(kernel.stats.dispatch.values()) >= 2 * PAIRS * ROUNDS
    assert (kernel(*operands(3, 2, 1)) == 2).all()


@pytest.mark.parametrize("adopt", [True, False])
def test_what_is_decided_serves(adopt: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcsym.dispatch.trial.is_faster", lambda *_: adopt)
    kernel = tc.define(MM, strategy=EAGER).mm
    ready(kernel, (4, 3, 2))
    for _ in range(2 * PAIRS * ROUNDS + 5):
        kernel(*operands(4, 3, 2))
    chosen = "specialised" if adopt else "symbolic"
    assert kernel.stats.decisions[-1].chosen == chosen
    assert kernel.explain("variants", M=4, K=3, N=2).startswith(chosen)
    assert (kernel(*operands(4, 3, 2)) == 3).all()


def test_counting_ends_where_nothing_is_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcsym.dispatch.trial.is_faster", lambda *_: False)
    monkeypatch.setattr(hot_sizes, "GIVE_UP_AFTER", 1)
    kernel = tc.define(MM, strategy=EAGER).mm
    ready(kernel, (4, 3, 2))
    for _ in range(2 * PAIRS + 5):
        kernel(*operands(4, 3, 2))
    assert str(kernel.stats.decisions[-1]) == "all sizes: symbolic, specialising gained nothing"
    total = kernel._dispatcher.switch.total
    kernel(*operands(4, 3, 2))
    assert kernel._dispatcher.switch.total == total


def test_cold_sizes_stay_symbolic() -> None:
    kernel = tc.define(MM).mm
    ready(kernel, (5, 6, 7), 200)
    assert not states(kernel) and not kernel.stats.decisions
    assert kernel.stats.compilations + kernel.stats.cache_hits == 1


def test_precompile_measures_declared_sizes() -> None:
    sizes = {"M": tc.Dim(1, 2), "K": 3, "N": tc.Dim(4, 8, 4)}
    kernel = tc.define(MM, sizes=sizes).mm.precompile()
    measured = [d for d in kernel.stats.decisions if d.sizes]
    assert len(measured) == 4 and all(len(d.seconds) == 2 for d in measured)
    adopted = {tuple(v for _, v in d.sizes) for d in measured if d.chosen == "specialised"}
    assert set(kernel._dispatcher.table.points) == adopted
    wide = tc.define(MM, sizes={n: tc.Dim(1, 64) for n in "MKN"}).mm.precompile()
    assert [dict(d.sizes)["M"] for d in wide.stats.decisions if d.sizes] == [1, 8, 64]


def test_no_call_waits_for_other_layouts() -> None:
    kernel = tc.define(MM).mm
    ready(kernel, (5, 6, 7), 1)
    held = threading.Event()
    original = compilations._compiled
    compilations._compiled = lambda work: (held.wait(), original(work))[1]  # type: ignore
    a, b = np.arange(30, dtype=F32).reshape(6, 5).T, np.ones((6, 7), F32)
    out = np.zeros((7, 5), F32).T
    try:
        for _ in range(2):
            np.testing.assert_array_equal(kernel(a, b), a @ b)
            assert kernel(a, b, out=out) is out
            np.testing.assert_array_equal(out, a @ b)
        assert len(kernel.stats.variants) == 1
    finally:
        held.set()
        compilations.settle()
        del compilations._compiled  # type: ignore[method-assign]
    assert len(kernel.stats.variants) == 3
    np.testing.assert_array_equal(kernel(a, b, out=out), a @ b)
    settle()
    np.testing.assert_array_equal(kernel(a, b, out=out), a @ b)


def test_nothing_is_compiled_for_kernels_that_exist_no_more() -> None:
    one, other = tc.define(MM).mm, tc.define(MM.replace("mm", "other")).other
    for kernel in (one, other):
        ready(kernel, (5, 6, 7), 1)
    held, begun = threading.Event(), list[Any]()
    original = compilations._compiled
    compilations._compiled = lambda work: (begun.append(work), held.wait(), original(work))[2]  # type: ignore
    across, along = np.ones((6, 5), F32).T, np.ones((6, 7), F32)
    out = np.zeros((7, 5), F32).T
    try:
        one(across, along)
        while not begun:
            time.sleep(1e-3)
        for kernel in (one, other):
            kernel(across, along, out=out)
        del kernel, other
        gc.collect()
    finally:
        held.set()
        compilations.settle()
        del compilations._compiled  # type: ignore[method-assign]
    assert len(begun) == 2
    assert len(one.stats.variants) == 3


# ---- specialise in the background


def test_the_symbolic_version_answers_meanwhile() -> None:
    kernel = tc.define(MM, strategy=Specialize(background=True, max_variants=1)).mm
    go = threading.Event()
    original = compilations._compiled

    def wait(work: Any) -> Any:
        go.wait()
        return original(work)

    compilations._compiled = wait  # type: ignore[method-assign]
    try:
        assert (kernel(*operands(5, 6, 7)) == 6).all()
        assert kernel.explain("variants", M=5, K=6, N=7).startswith("symbolic")
    finally:
        go.set()
        compilations.settle()
        del compilations._compiled  # type: ignore[method-assign]
    assert kernel.explain("variants", M=5, K=6, N=7).startswith("specialised")
    ready(kernel, (5, 6, 7))
    ready(kernel, (1, 2, 3))
    assert kernel.stats.evictions == 1
    assert kernel.explain("variants", M=5, K=6, N=7).startswith("symbolic")


def test_failures_are_told_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        return False, RuntimeError("the compiler is on strike")

    monkeypatch.setattr(compilations, "_exchange", fail)
    monkeypatch.setattr("tcsym.runtime.variants.Variants.cached", lambda *_: None)
    kernel = tc.define(MM, strategy=Specialize(background=True)).mm
    ready(kernel, (5, 6, 7))
    assert states(kernel) == {(5, 6, 7): "failed"}
    assert "on strike" in kernel.stats.failures[0] and "on strike" in str(kernel.stats)


@pytest.mark.parametrize("crash", ["import os; os._exit(3)", "import time; time.sleep(60)"])
def test_a_process_that_dies_or_hangs(crash: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen

    def popen(command: list[str], **how: Any) -> Any:
        return real([command[0], "-c", crash], **how)

    compilations.settle()
    compilations._stop()
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(beside, "LONGEST_SECONDS", 0.5)
    monkeypatch.setattr("tcsym.process.helper.START_SECONDS", 0.5)
    monkeypatch.setattr("tcsym.runtime.variants.Variants.cached", lambda *_: None)
    kernel = tc.define(MM, strategy=Specialize(background=True)).mm
    ready(kernel, (5, 6, 7))
    assert "the compiling process failed" in kernel.stats.failures[0]


def test_the_process_reports_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcsym.runtime.variants.Variants.cached", lambda *_: None)
    broken = request(Options.from_json, "{")
    monkeypatch.setattr(beside, "asked", lambda _: broken)
    kernel = tc.define(MM, strategy=Specialize(background=True)).mm
    ready(kernel, (5, 6, 7))
    assert "OptionError: options are not JSON" in kernel.stats.failures[0]


# ---- processes and threads


def run_script(text: str, **environment: str) -> str:
    script = f"import numpy as np, tcsym as tc, os, sys, time\nMM = {MM!r}\n"
    script += "A, B = np.ones((5, 6), np.float32), np.ones((6, 7), np.float32)\n"
    done = subprocess.run(
        [sys.executable, *QUIET_FORKS, "-c", script + textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_the_interpreter_ends_without_waiting() -> None:
    start = time.perf_counter()
    run_script(
        """
        k = tc.define(MM, strategy=tc.strategy.Specialize(background=0.01)).mm
        for n in range(1, 30):
            k(A, np.ones((6, n), np.float32))
        """,
        TCSYM_CACHE="0",
    )
    assert time.perf_counter() - start < 20  # the queue alone would take minutes


def test_forks() -> None:
    run_script(
        """
        from tcsym.dispatch.compile_queue import compilations
        k = tc.define(MM, strategy=tc.strategy.Specialize(background=1.0)).mm
        for n in range(1, 6):
            k(A, np.ones((6, n), np.float32))
            child = os.fork()
            if child == 0:
                assert (k(A, B) == 6).all()
                compilations.settle()
                assert (k(A, B) == 6).all()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        compilations.settle()
        """
    )


def test_spawned_processes() -> None:
    kernel = tc.define(MM, strategy=EAGER).mm
    ready(kernel, (5, 6, 7))
    again = pickle.loads(pickle.dumps(kernel))
    ready(again, (5, 6, 7))


@pytest.mark.parametrize(
    "strategy", [EAGER, Specialize(background=1.0, max_variants=3), Specialize(max_variants=3)]
)
def test_many_threads(strategy: Any) -> None:
    kernel = tc.define(MM, strategy=strategy).mm
    start = threading.Barrier(16)

    def call(t: int) -> None:
        start.wait()
        for step in range(150):
            k = 1 + (t + step // 40) % 6
            a, b = operands(4, k, 3)
            assert (kernel(a, b) == k).all()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(call, range(16)))
    compilations.settle()
    assert not kernel.stats.failures


# ---- free sizes

ROWS = "def rows(float(N) x) -> (float(N,P) y) { y(i,j) = x(i) + 2 }"


@pytest.mark.parametrize("strategy", [EAGER, Specialize(background=1.0), Specialize()])
def test_free_sizes_are_specialised(strategy: Any) -> None:
    kernel = tc.define(ROWS, strategy=strategy).rows
    x = np.arange(3, dtype=F32)

    def call(p: int, repeat: int = 1) -> None:
        for _ in range(repeat):
            assert (kernel(x, sizes={"P": p}) == np.repeat(x[:, None] + 2, p, 1)).all()

    for _ in range(4):
        call(5)
        settle()
        compilations.settle()
    call(5, 2 * PAIRS * ROUNDS + 5)
    for p in (0, 1, 5, 6):
        call(p, 3)
    if isinstance(strategy, Auto):
        assert states(kernel)[3, 5] in ("adopted", "rejected")
    else:
        assert "specialised, N == 3 && P == 5" in kernel.explain("variants", N=3, P=5)
    for wrong in (None, {}, {"P": -1}, {"P": 2.5}, {"N": 4, "P": 5}):
        with pytest.raises(tc.SizeError):
            kernel(x, sizes=wrong)


# ---- the table of states

WAYS = {
    None: {"compiling", "adopted"},
    "compiling": {"tried", "adopted", "failed"},
    "tried": {"adopted", "rejected"},
    "adopted": {"tried"},
    "rejected": set(),
    "failed": set(),
}


@pytest.mark.parametrize("state", WAYS, ids=str)
def test_only_what_the_table_has_comes_next(state: Any) -> None:
    hot = tc.define(MM, strategy=EAGER).mm._dispatcher.policy.hot  # type: ignore[attr-defined]
    for following in ("compiling", "tried", "adopted", "rejected", "failed"):
        hot.states = {} if state is None else {(1, 2, 3): state}
        assert hot._move((1, 2, 3), following) == (following in WAYS[state])
        expected = following if following in WAYS[state] else state
        assert hot.states.get((1, 2, 3)) == expected


def test_what_was_given_up_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_sizes, "MOST_STATES", 4)
    hot = tc.define(MM, strategy=EAGER).mm._dispatcher.policy.hot  # type: ignore[attr-defined]
    hot.states = {(1,): "compiling", (2,): "rejected", (3,): "failed", (4,): "tried"}
    assert hot._move((5,), "compiling")
    assert hot.states == {(1,): "compiling", (4,): "tried", (5,): "compiling"}


def test_a_trial_decided_after_its_version_made_room_changes_nothing() -> None:
    kernel = tc.define(MM, strategy=EAGER).mm
    ready(kernel, (5, 6, 7))
    hot = kernel._dispatcher.policy.hot  # type: ignore[attr-defined]
    (version,) = kernel._dispatcher.table.tried
    del hot.states[5, 6, 7]
    hot._reject((5, 6, 7), 1.0, 2.0)
    assert not kernel.stats.decisions and hot._lost == 0 and not version.is_gone
