# SPDX-License-Identifier: Apache-2.0
"""Auto's choice among ways to serve all calls: measured, recorded, right whatever it is."""

from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.dispatch import adaptive
from tcsym.dispatch.compare_entries import Weighed
from tcsym.dispatch.compile_queue import compilations
from tcsym.dispatch.recorded_choice import recall
from tcsym.process.threads import get_num_threads
from tcsym.runtime.background import settle
from tcsym.strategy import Auto, Specialize
from tcsym.tuning.machine import machine_key
from tcsym.tuning.rows import Chosen, Tuned
from tcsym.tuning.stores import user_database
from tcsym.tuning.tree import Leaf, Predicate, Split, kept_json
from tests.quiet_forks import QUIET_FORKS

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
BOUNDS = {name: tc.Dim(1, 24) for name in "MKN"}
EAGER = Auto(hot=1e-6, share=1.0)


@pytest.fixture(autouse=True)
def own_store(monkeypatch: pytest.MonkeyPatch, own_options: None) -> Iterator[None]:
    monkeypatch.setattr(adaptive, "FIRST_LOOK", 16)
    yield
    compilations.settle()


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch, request: Any) -> str:
    """Whatever is measured, this way wins."""
    monkeypatch.setattr(Weighed, "best", lambda _: request.param)
    return str(request.param)


def called(kernel: Any, *sizes: tuple[int, int, int], rounds: int = 1) -> None:
    for m, k, n in sizes * rounds:
        a = np.arange(m * k, dtype=F32).reshape(m, k) % 7
        b = np.arange(k * n, dtype=F32).reshape(k, n) % 5
        np.testing.assert_array_equal(kernel(a, b), a @ b)


def settled() -> None:
    for _ in range(2):  # what was compiled may ask for an entry, and the other way round
        compilations.settle()
        settle()


def weighed(**seconds: float) -> Weighed:
    return Weighed(((1,), (2,)), {way: ((s, s), (s, s)) for way, s in seconds.items()})


def test_a_way_must_gain_more_than_noise() -> None:
    assert weighed(symbolic=1.0, bound=0.99).best() == "symbolic"
    assert weighed(symbolic=1.0, bound=0.9, bucket=0.8).best() == "bucket"
    uneven = Weighed(((1,), (2,)), {"symbolic": ((1, 1), (1, 1)), "bound": ((0.5, 0.5), (1.1, 1))})
    assert uneven.best() == "symbolic" and uneven.gain("bound")[1] < 0.95
    assert Weighed.from_json(uneven.to_json()) == uneven


MANY = [(m, 8, n) for m in (3, 9, 17) for n in (1, 6, 20)]


@pytest.mark.parametrize("way", ["bound"], indirect=True)
def test_sizes_that_never_change_are_bound(way: str) -> None:
    kernel = tc.define(MM, strategy=EAGER).mm
    called(kernel, *MANY[:1])
    settled()
    called(kernel, *MANY, rounds=3)
    settled()
    (decision,) = kernel.stats.decisions
    assert decision.chosen == "bound" and dict(decision.sizes)["K"] == 8
    assert {name for name, _ in decision.seconds} >= {"symbolic", "bound"}
    assert "measured beside the calls" in kernel.explain("variants", M=3, K=8, N=1)
    assert kernel.explain("mapped", M=3, K=8, N=1).startswith("# specialised, K == 8, ")
    assert kernel.explain("mapped", M=3, K=7, N=1).startswith("# symbolic")
    called(kernel, *MANY, (5, 7, 4), (8, 8, 8), (2, 0, 2))
    assert not kernel.stats.failures
    assert sum(kernel.stats.dispatch.values()) == 1 + 27 + 12


@pytest.mark.parametrize("way", ["bound"], indirect=True)
def test_other_sizes_end_it(way: str) -> None:
    kernel = tc.define(MM, strategy=EAGER).mm
    called(kernel, *MANY[:1])
    settled()
    called(kernel, *MANY, rounds=3)
    settled()
    others = [(m, k, 4) for m in (2, 3) for k in (5, 6)]
    called(kernel, *others, rounds=40)
    assert "calls have other sizes now" in str(kernel.stats)


def keep_regions() -> None:
    """A store with three regions, the last of which has no sizes where K is 8."""
    kernel = tc.define(MM).mm
    inner = Split(Predicate((1,), 9), Leaf(tc.Options(min_work_per_thread=2)), Leaf(tc.Options()))
    tree = Split(Predicate((0,), 8), Leaf(tc.Options(min_work_per_thread=8)), inner)
    machine = machine_key(kernel._dispatcher.making.target, get_num_threads())
    text = json.dumps(kept_json(tree, ()))
    row = Tuned(kernel.program.canonical, machine, "", text, "[[8, 8, 8]]", 1.0, "2026", "mm", MM)
    database = user_database()
    assert database is not None and database.put([row])


@pytest.mark.parametrize("way", ["bound"], indirect=True)
def test_each_region_has_what_is_bound(way: str) -> None:
    keep_regions()
    kernel = tc.define(MM, strategy=EAGER).mm
    for _ in range(3):
        called(kernel, *MANY, rounds=3)
        settled()
    (decision,) = [d for d in kernel.stats.decisions if "all sizes" in d.why]
    assert decision.chosen == "bound" and dict(decision.sizes)["K"] == 8
    table = kernel._dispatcher.table
    assert [v.region.options for v in table.preferred.versions] == [
        tc.Options(min_work_per_thread=8), tc.Options()
    ]  # fmt: skip
    assert all(v.variants.made for v in table.preferred.versions)
    for m, unrolled in ((4, False), (30, True)):
        text = kernel.explain("variants", M=m, K=8, N=5)
        assert (
            text.startswith("specialised, K == 8") and ("min_work_per_thread=8" in text) == unrolled
        )
    assert kernel.explain("variants", M=3, K=9, N=1).startswith("symbolic")
    others = [(m, k, 4) for m in (0, 2, 9) for k in (0, 5, 8, 16)]
    called(kernel, *MANY, *others, rounds=3)
    assert not kernel.stats.failures


@pytest.mark.parametrize("way", ["bucket", "padded"], indirect=True)
def test_declared_ranges_with_regions(way: str) -> None:
    keep_regions()
    kernel = tc.define(MM, sizes=BOUNDS, strategy=EAGER).mm.precompile()
    assert any(d.chosen == way for d in kernel.stats.decisions)
    sizes = [(1, 1, 1), (24, 24, 24), (1, 24, 7), (13, 2, 24), (4, 4, 4)]
    for _ in range(3):
        called(kernel, *sizes, rounds=4)
        settled()
    shown = kernel.explain("variants", M=24, K=24, N=24)
    assert shown.startswith("bucket" if way == "bucket" else "padded")
    assert not kernel.stats.failures


@pytest.mark.parametrize("way", ["bucket", "padded"], indirect=True)
def test_declared_ranges(way: str) -> None:
    kernel = tc.define(MM, sizes=BOUNDS, strategy=EAGER).mm.precompile()
    chosen = [d for d in kernel.stats.decisions if not d.sizes]
    assert chosen[0].chosen == way and "measured ahead" in str(chosen[0])
    called(kernel, (1, 1, 1), (24, 24, 24), (1, 24, 7), (13, 2, 24), rounds=4)
    settled()
    table = kernel._dispatcher.table
    made = [v for v in table.preferred.versions if v.variants.made]
    assert 1 <= len(made) <= 5 < max(6, len(table.preferred.versions))  # buckets that are called
    called(kernel, (1, 1, 1), (24, 24, 24), (1, 24, 7), (13, 2, 24), (4, 4, 4), rounds=4)
    shown = kernel.explain("variants", M=24, K=24, N=24)
    assert shown.startswith("bucket" if way == "bucket" else "padded")
    with pytest.raises(tc.SizeError, match="from 1 to 24"):
        kernel(np.ones((25, 1), F32), np.ones((1, 1), F32))


def test_what_was_measured_is_recorded() -> None:
    first = tc.define(MM, sizes=BOUNDS).mm.precompile()
    database = user_database()
    assert database is not None
    (row,) = database.select(Chosen)
    assert row.name == "mm" and row.way == recall(first._dispatcher.making, {}).best()  # type: ignore
    again = tc.define(MM, sizes=BOUNDS).mm.precompile()
    assert "measured before" in str(again.stats)
    other = tc.define(MM, sizes={**BOUNDS, "M": tc.Dim(1, 23)}).mm
    assert recall(other._dispatcher.making, {}) is None


def test_nothing_is_weighed_where_nothing_can_differ() -> None:
    kernel = tc.define(MM, strategy=EAGER).mm
    for n in range(1, 60):
        called(kernel, (n, n + 1, n + 2))
    settled()
    assert not kernel._dispatcher.policy.preferred.is_begun  # type: ignore[attr-defined]


# ---- threads, forks, pickles, kernels that nobody needs any more


@pytest.mark.parametrize("way", ["bound", "symbolic"], indirect=True)
def test_many_threads_while_ways_change(way: str) -> None:
    kernel = tc.define(MM, strategy=EAGER).mm
    called(kernel, *MANY[:1])
    settled()
    start = threading.Barrier(8)

    def call(t: int) -> None:
        start.wait()
        for step in range(30):
            called(kernel, *(MANY if step < 20 else [(t + 1, 1 + step % 9, 4)]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(8)))
    settled()
    called(kernel, *MANY)
    assert not kernel.stats.failures


def test_kernels_may_go_while_something_is_compiled_for_them() -> None:
    kernel = tc.define(MM, strategy=Specialize(background=1.0)).mm
    for n in range(1, 5):
        called(kernel, (2, 3, n))
    gone = weakref.ref(kernel)
    del kernel
    settled()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("way", ["bound"], indirect=True)
def test_pickles_have_no_part_in_what_goes_on(way: str) -> None:
    kernel = tc.define(MM, strategy=EAGER).mm
    called(kernel, *MANY, rounds=3)
    again = pickle.loads(pickle.dumps(kernel))
    called(again, *MANY)
    settled()
    called(again, *MANY, (2, 3, 4), rounds=3)
    called(kernel, *MANY, (2, 3, 4))


def test_forks_while_ways_are_measured() -> None:
    script = f"""
        import os
        import numpy as np, tcsym as tc
        from tcsym.dispatch import adaptive
        from tcsym.dispatch.compile_queue import compilations
        adaptive.FIRST_LOOK = 16
        kernel = tc.define({MM!r}, strategy=tc.strategy.Auto(hot=1e-6, share=1.0)).mm
        def call():
            for n in range(1, 40):
                a, b = np.ones((n % 7 + 1, 5), np.float32), np.ones((5, n), np.float32)
                assert (kernel(a, b) == 5).all()
        for _ in range(2):
            call()
            child = os.fork()
            if child == 0:
                call()
                compilations.settle()
                call()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        compilations.settle()
        call()
    """
    command = [sys.executable, *QUIET_FORKS, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_a_process_that_fails_to_measure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = False, RuntimeError("no luck")
    kernel = tc.define(MM, strategy=EAGER).mm
    called(kernel, *MANY[:1])
    settled()
    monkeypatch.setattr(compilations, "_exchange", lambda _: broken)
    called(kernel, *MANY, rounds=3)
    settled()
    assert "weighing: RuntimeError: no luck" in kernel.stats.failures
    called(kernel, *MANY)
