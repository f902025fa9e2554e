# SPDX-License-Identifier: Apache-2.0
"""`kernel.stats.dispatch`: each call counts once, whatever it went through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.dispatch import retired_counts as gone
from tcsym.dispatch.compile_queue import compilations
from tcsym.dispatch.trial import PAIRS, ROUNDS
from tcsym.index.expr import ge, lt, var
from tcsym.runtime.arrays import view_of
from tcsym.runtime.background import settle
from tcsym.sizes.region import Region
from tcsym.strategy import Auto, Bucket, Pad, Specialize, Symbolic

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
TWO = "def two(float(M,K) A, float(K,N) B) -> (C,D) { C(m,n) +=! A(m,k) * B(k,n) D(m,k) = A(m,k) }"
TAKE = "def take(float(N) x, int32(M) at) -> (y) { y(i) = x(at(i)) }"
BOUNDS = {"M": tc.Dim(0, 40), "K": tc.Dim(0, 8), "N": tc.Dim(0, 8)}
REGIONS = (
    Region(tc.Options(min_work_per_thread=1), lt(var("M"), 8), "user"),
    Region(tc.Options(min_work_per_thread=8), ge(var("M"), 8), "user"),
)
STRATEGIES = [
    Symbolic(),
    Auto(),
    Auto(hot=0.0, share=1.0, max_variants=2),
    Specialize(max_variants=2),
    Specialize(background=1.0, max_variants=2),
    Bucket(edges={"M": (7, 20)}),
    Bucket(learn=5),
    Pad(8, sizes=("M",)),
    Pad(),
]


@pytest.fixture(autouse=True)
def settled(own_options: None) -> Iterator[None]:
    yield
    compilations.settle()


@pytest.fixture(params=[False, True], ids=["one region", "two regions"])
def regions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr("tcsym.dispatch.making.lookup", lambda *_: REGIONS)


def operands(m: int, k: int = 3, n: int = 4) -> tuple[Any, Any]:
    return np.ones((m, k), F32), np.ones((k, n), F32)


def total(kernel: Any) -> int:
    return sum(kernel.stats.dispatch.values())


def in_all_ways(kernel: Any, m: int, wrap: Callable[[Any], Any] = lambda x: x) -> int:
    """Calls of one height with all kinds of arguments; how many."""
    a, b = map(wrap, operands(m))
    out = wrap(np.empty((m, 4), F32))
    kernel(a, b)
    kernel(B=b, A=a)
    kernel(a, b, out=out)
    kernel(a, b, threads=1)
    kernel(wrap(np.ones((3, m), F32)).T, b)
    kernel(a, wrap(np.ones((3, 9), F32))[:, :8:2])
    return 6


def refused(kernel: Any) -> None:
    """Calls that run nothing."""
    a, b = operands(5)
    for args in ((a,), (a, b[:2]), (a, b.tolist(), 3), (a, np.ones((3, 9), F32)), (a[0], b)):
        with pytest.raises(tc.TCError):
            kernel(*args)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("strategy", "regions"),
    [*((s, False) for s in STRATEGIES), *((s, True) for s in STRATEGIES[::2])],
    indirect=["regions"],
)
@pytest.mark.usefixtures("regions")
def test_the_sum_is_the_number_of_calls(strategy: Any) -> None:
    kernel = tc.define(MM, strategy=strategy, sizes=BOUNDS).mm
    n = 0
    for round_ in range(4):
        for m in (3, 9, 30, 0, 3):
            n += in_all_ways(kernel, m)
            settle()
        refused(kernel)
        assert total(kernel) == n, round_
        compilations.settle()
    for _ in range(2 * PAIRS * ROUNDS + 5):  # trials are decided, versions given up
        n += len([kernel(*operands(m)) for m in (3, 9, 30)])
    compilations.settle()
    n += in_all_ways(kernel, 9)
    assert total(kernel) == n


@pytest.mark.usefixtures("regions")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_with_torch(strategy: Any, torch: Any) -> None:
    kernel = tc.define(MM, strategy=strategy, sizes=BOUNDS).mm
    n = 0
    for _ in range(3):
        for m in (3, 9, 30, 3):
            n += in_all_ways(kernel, m, torch.from_numpy)
            n += in_all_ways(kernel, m)
            settle()
        compilations.settle()
    for _ in range(2 * PAIRS * ROUNDS + 5):
        a, b = map(torch.from_numpy, operands(9))
        kernel(a, b)
        n += 1
    assert total(kernel) == n


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_several_results_and_faults(strategy: Any) -> None:
    two = tc.define(TWO, strategy=strategy, sizes=BOUNDS).two
    take = tc.define(TAKE, strategy=strategy, sizes={"N": tc.Dim(0, 9), "M": tc.Dim(0, 40)}).take
    x, good, bad = np.arange(5, dtype=F32), np.array([4, 0], np.int32), np.array([5, 0], np.int32)
    for n in range(1, 6):
        two(*operands(5))
        take(x, good)
        with pytest.raises(tc.TCError):
            take(x, bad)  # its code ran, and found the fault
        settle()
        compilations.settle()
        assert total(two) == n and total(take) == 2 * n


@pytest.mark.thinned(2)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_threads(strategy: Any) -> None:
    kernel = tc.define(MM, strategy=strategy, sizes=BOUNDS).mm
    start = threading.Barrier(8)

    def call(t: int) -> None:
        start.wait()
        for step in range(100):
            kernel(*operands(1 + (t + step // 20) % 6))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(8)))
    compilations.settle()
    assert total(kernel) == 800


def test_versions_that_make_room_are_not_forgotten() -> None:
    kernel = tc.define(MM, strategy=Specialize(max_variants=1)).mm
    for m in (1, 2, 3, 4):
        for _ in range(3):
            kernel(*operands(m))
            settle()
    assert kernel.stats.dispatch[gone.GONE] == 9 and total(kernel) == 12
    assert len(kernel._serving.dispatcher.gone._watched) <= 1  # the others can be entered no more


def test_entries_that_are_still_entered_count() -> None:
    """A caller may hold what a version was entered by, longer than the version is kept."""
    kernel = tc.define(MM, strategy=Specialize(max_variants=1)).mm
    for _ in range(3):
        kernel(*operands(1))
        settle()
    dispatcher = kernel._serving.dispatcher
    (version,) = dispatcher.versions
    entry = dispatcher.entry_of(version)
    assert entry is not None
    for m in (2, 3, 2, 3):
        kernel(*operands(m))
        settle()
    before = total(kernel)
    entry(*operands(1))
    assert total(kernel) == before + 1
    del entry
    kernel(*operands(4))
    assert total(kernel) == before + 2


def test_executables_and_tunes_change_no_counts() -> None:
    kernel = tc.define(MM).mm
    for _ in range(3):
        kernel(*operands(5))
        settle()
    executable = kernel.compile((5, 3), (3, 4))
    executable(*operands(5))
    assert total(kernel) == 3
    (version,) = kernel._dispatcher.versions
    code = {version.region.options: version.variants.made[0].compiled}
    kernel._serving.dispatch(kernel._checked_call, kernel._install, ahead=code)  # as a tune does
    assert total(kernel) == 3
    kernel(*operands(5))
    assert total(kernel) == 4


def test_versions_of_equal_code_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    same = tuple(Region(REGIONS[0].options, r.context, r.origin) for r in REGIONS)
    monkeypatch.setattr("tcsym.dispatch.making.lookup", lambda *_: same)
    kernel = tc.define(MM, strategy="symbolic").mm
    for m in (3, 9, 9, 3, 9):
        kernel(*operands(m))
        settle()
    assert total(kernel) == 5


def test_a_late_call_of_a_version_that_is_gone_loses_no_calls_of_a_newer_one() -> None:
    """Both have the same code, as long as somebody holds the older one."""
    kernel = tc.define(MM, strategy=Specialize(max_variants=1), sizes=BOUNDS).mm
    kernel(*operands(3))
    settle()
    dispatcher = kernel._dispatcher
    (older,) = [v for v in dispatcher.versions if v.fixed]
    variant = older.variants.made_for(older.variants.dense)
    views = [view_of(x) for x in operands(3)]
    kernel(*operands(9))
    assert older.is_gone
    for _ in range(3):
        kernel(*operands(3))
        settle()
    dispatcher.served((3, 3, 4), views, older, variant)
    kernel(*operands(3))
    assert total(kernel) == 6
