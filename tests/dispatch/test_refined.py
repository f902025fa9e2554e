# SPDX-License-Identifier: Apache-2.0
"""Auto at single sizes: all tuned options are measured there, and the fastest serve."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.dispatch import adaptive, refine
from tcsym.dispatch.compile_queue import compilations
from tcsym.dispatch.refine import Contest, Refined
from tcsym.dispatch.refined import RefinedSizes
from tcsym.dispatch.requests import Refining
from tcsym.index.expr import TRUE
from tcsym.process.threads import get_num_threads
from tcsym.runtime.background import settle
from tcsym.strategy import Auto, Symbolic
from tcsym.tuning.machine import machine_key
from tcsym.tuning.rows import Fastest, Tuned
from tcsym.tuning.stores import sizes_database, user_database
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Leaf, Predicate, Split, candidates_from_json, kept_json

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SMALL, LARGE, OTHER = (tc.Options(min_work_per_thread=n) for n in (1, 8, 2))
TREE = Split(Predicate((0,), 8), Leaf(LARGE), Leaf(SMALL))
EAGER = Auto(hot=1e-6, share=1.0)
SIZES = (16, 3, 4)


@pytest.fixture(autouse=True)
def tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A store in which `mm` is tuned; no process works beside that knows another one."""
    compilations.settle()
    compilations._stop()
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    keep_tuned()
    yield
    compilations.settle()
    compilations._stop()


def keep_tuned(others: tuple[tc.Options, ...] = (OTHER,)) -> None:
    kernel = tc.define(MM).mm
    machine = machine_key(kernel._dispatcher.making.target, get_num_threads())
    kept = json.dumps(kept_json(TREE, (LARGE, *others)))
    row = Tuned(kernel.program.canonical, machine, "", kept, "[[8, 8, 8]]", 1.0, "2026", "mm", MM)
    database = user_database()
    assert database is not None and database.put([row])


def answer_measuring(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Any], Any]) -> None:
    """What the process is asked to measure is answered like this."""
    other = compilations._answered
    is_asked = lambda work: isinstance(work, Refining)  # noqa: E731
    answered = lambda work: answer(work) if is_asked(work) else other(work)  # noqa: E731
    monkeypatch.setattr(compilations, "_answered", answered)


@pytest.fixture
def fastest(monkeypatch: pytest.MonkeyPatch) -> tc.Options:
    """Whatever is measured, these options win; no process is asked."""
    monkeypatch.setattr(Contest, "fastest", lambda *_: Refined(OTHER, 2e-6, 1e-6))

    def measured(work: Any) -> Refined:
        found = Contest(work.making).fastest(work.sizes, work.threads)
        assert found is not None
        refine.keep(work.making, work.sizes, found)
        return found

    answer_measuring(monkeypatch, measured)
    return OTHER


def called(kernel: Any, sizes: tuple[int, int, int], times: int) -> None:
    m, k, n = sizes
    a, b = np.ones((m, k), F32), np.ones((k, n), F32)
    for _ in range(times):
        assert (kernel(a, b) == k).all()
    for _ in range(2):  # what was compiled may ask for an entry, and the other way round
        compilations.settle()
        settle()


def test_candidates_are_kept_beside_the_tree() -> None:
    data = kept_json(TREE, (tc.Options(), LARGE, OTHER))
    assert data["candidates"] == [{}, {"min_work_per_thread": 2}]
    assert candidates_from_json(data, TREE) == (LARGE, SMALL, tc.Options(), OTHER)
    assert candidates_from_json({"options": {}}, Leaf(SMALL)) == (SMALL,)
    for wrong in ({"candidates": 3}, {"candidates": [{"no such": 1}]}):
        with pytest.raises(tc.OptionError):
            candidates_from_json(wrong, TREE)


def test_the_fastest_must_win_again_by_more_than_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    making = tc.define(MM).mm._dispatcher.making
    assert making.candidates == (LARGE, SMALL, OTHER)
    logs: list[float] = []
    again: list[tuple[float, float, float]] = []
    monkeypatch.setattr(refine, "compare_all", lambda *_: [Ratio(x, 0.0, 1e-6) for x in logs])
    turned = iter([False, True] * 9)

    def rounds(calls: Any, *_: Any) -> Any:
        assert len(set(map(id, calls))) == 3
        one = again[0][::-1] if next(turned) else again[0]
        return (one,) * 20

    monkeypatch.setattr(refine, "rounds_of", rounds)
    contest = Contest(making)
    logs[:] = [0.0, -0.01, 0.3]
    assert contest.fastest(SIZES, get_num_threads()) == Refined(LARGE, 1e-6, 1e-6)
    logs[:] = [0.0, -0.1, -0.2]
    again[:] = [(1.0, 1.0, 0.9)]
    assert getattr(contest.fastest(SIZES, get_num_threads()), "options", None) == OTHER
    for lucky in ((1.0, 1.0, 1.1), (1.0, 1.03, 0.99), (1.0, 1.0, 0.99), (1.0, 1.3, 0.7)):
        again[:] = [lucky]
        assert contest.fastest(SIZES, get_num_threads()) == Refined(LARGE, 1e-6, 1e-6)
    assert (
        contest.fastest((1 << 13, 1 << 13, 1), get_num_threads()) is None
    )  # too large to be made up


@pytest.mark.parametrize("strategy", [EAGER, Symbolic()])
def test_calls_go_on_with_what_was_measured(strategy: Any, fastest: tc.Options) -> None:
    kernel = tc.define(MM, strategy=strategy).mm
    called(kernel, SIZES, 1)
    before = kernel.explain("variants", M=16, K=3, N=4)
    assert before.startswith("symbolic") and "min_work_per_thread=8" in before
    called(kernel, SIZES, 80)
    called(kernel, SIZES, 80)
    after = kernel.explain("variants", M=16, K=3, N=4)
    if strategy == Symbolic():
        assert after.splitlines()[:2] == before.splitlines()[:2]
        return
    assert after.startswith("refined") and "options min_work_per_thread=2" in after
    assert "2.00 us with the region's options, 1.00 us with the best" in after
    assert "the fastest of 3, measured beside the calls" in after
    choice = kernel.options_for(M=16, K=3, N=4)
    assert (choice.options, choice.origin, choice.distance) == (fastest, "measured", 0.0)
    assert kernel.options_for(M=15, K=3, N=4).origin == "user"
    assert sum(n for v, n in kernel.stats.dispatch.items() if v.startswith("refined")) >= 80
    assert sum(kernel.stats.dispatch.values()) == 161
    called(kernel, (3, 3, 4), 5)
    called(kernel, (16, 2, 5), 5)
    assert not kernel.stats.failures


@pytest.mark.usefixtures("fastest")
def test_one_region_is_refined_too() -> None:
    kernel = tc.define(MM, strategy=EAGER, sizes={"M": tc.Dim(8, 64)}).mm
    assert len(kernel._dispatcher.making.regions) == 1
    for _ in range(3):
        called(kernel, SIZES, 70)
    assert kernel.explain("variants", M=16, K=3, N=4).startswith("refined")
    assert kernel.explain("variants", M=17, K=3, N=4).startswith("symbolic")
    called(kernel, (17, 3, 4), 3)
    assert sum(kernel.stats.dispatch.values()) == 213


@pytest.mark.usefixtures("fastest")
def test_a_later_process_knows_it_at_its_first_call() -> None:
    kernel = tc.define(MM, strategy=EAGER).mm
    for _ in range(2):
        called(kernel, SIZES, 70)
    code = f"""
        import numpy as np, tcsym as tc
        kernel = tc.define({MM!r}).mm
        assert (kernel(np.ones((16, 3), "f4"), np.ones((3, 4), "f4")) == 3).all()
        assert (kernel(np.ones((16, 5), "f4"), np.ones((5, 4), "f4")) == 5).all()
        print(*[f"{{n}} {{v.split(',')[0]}}" for v, n in kernel.stats.dispatch.items() if n])
        print("islpy" in __import__("sys").modules)
    """
    ran = [sys.executable, "-c", textwrap.dedent(code)]
    out = subprocess.run(ran, capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["1 symbolic 1 refined", "False"]


@pytest.mark.usefixtures("fastest")
def test_other_candidates_are_measured_anew() -> None:
    called(kernel := tc.define(MM, strategy=EAGER).mm, SIZES, 70)
    making = kernel._dispatcher.making
    assert refine.recall(making) == {SIZES: Refined(OTHER, 2e-6, 1e-6)}
    keep_tuned(others=(tc.Options(min_work_per_thread=6),))
    later = tc.define(MM, strategy=EAGER).mm
    assert refine.recall(later._dispatcher.making) == {}
    assert later.explain("variants", M=16, K=3, N=4).startswith("symbolic")


def test_given_options_are_left_alone(fastest: tc.Options) -> None:
    kernel = tc.define(MM, strategy=EAGER, options=SMALL).mm
    assert kernel._dispatcher.making.candidates == ()
    called(kernel, SIZES, 200)
    assert kernel.options_for(M=16, K=3, N=4).origin == "given"
    assert fastest not in {o for d in kernel.stats.decisions for o in (d.chosen,)}


def test_another_process_measures_and_keeps() -> None:
    """Nothing is made up here: the process finds the tuned options, runs and keeps them."""
    kernel = tc.define(MM, strategy=EAGER).mm
    called(kernel, SIZES, 1)
    for _ in range(2):
        called(kernel, SIZES, 70)
    assert not kernel.stats.failures
    known = refine.recall(kernel._dispatcher.making)
    assert list(known) == [SIZES] and known[SIZES].seconds > 0
    refined = kernel._dispatcher.policy.refined  # type: ignore[attr-defined]
    assert refined.known(SIZES) == known[SIZES]
    database = sizes_database()
    assert database is not None and len(database.select(Fastest)) == 1


def test_a_process_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_measuring(monkeypatch, lambda _: "the process is on strike")
    kernel = tc.define(MM, strategy=EAGER).mm
    for _ in range(4):
        called(kernel, SIZES, 70)
    assert [f for f in kernel.stats.failures if "on strike" in f] == kernel.stats.failures
    assert len(kernel.stats.failures) == 1  # it is not asked again
    assert "refined" not in kernel.explain("variants", M=16, K=3, N=4)


def test_cold_sizes_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(RefinedSizes, "ask", lambda _, sizes, threads: asked.append(sizes))
    kernel = tc.define(MM).mm
    called(kernel, SIZES, 300)
    assert not asked and adaptive.REFINE_HOT * Auto().hot > 1
    assert kernel._dispatcher.versions[0].context != TRUE


def test_choices_are_no_news_for_tuned_options(fastest: tc.Options) -> None:
    """What programs add as they run must not make others look for tuned options again."""
    from tcsym.runtime.cache import options_state

    kernel = tc.define(MM, strategy=EAGER).mm
    called(kernel, SIZES, 1)  # the first look at a store leaves a file beside it
    before = options_state()
    called(kernel, SIZES, 70)
    assert options_state() == before
    database = sizes_database()
    assert database is not None
    (row,) = database.select(Fastest)
    assert tc.Options.from_json(row.options) == fastest and json.loads(row.sizes) == [16, 3, 4]
