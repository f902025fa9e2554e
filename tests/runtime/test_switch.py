# SPDX-License-Identifier: Apache-2.0
"""The native dispatcher: which function a call reaches, what is counted, what is forgotten."""

from __future__ import annotations

import gc
import random
import sys
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.compiler import analyse
from tcsym.index.expr import Condition, ge, lt, var
from tcsym.runtime.entering import read_tensors
from tcsym.runtime.plan import CallPlan, plan_call
from tcsym.runtime.size_functions import first_holding
from tcsym.runtime.switch import Switch
from tcsym.runtime.switch_image import switch_image
from tcsym.tuning.tree import Box, Leaf, Predicate, Split
from tcsym.tuning.tree import contexts as tree_contexts
from tests.entered import entered

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def plan_of(text: str = MM, **declared: int) -> CallPlan:
    return plan_call(next(iter(analyse(text).values())), declared, frozenset())


def switch_of(plan: CallPlan, default: Any, contexts: Sequence[Condition] = ()) -> Switch | None:
    image = switch_image(plan, contexts)
    return None if image is None else Switch(image, default)


def operands(m: int, k: int, n: int) -> tuple[Any, Any]:
    return np.zeros((m, k), F32), np.zeros((k, n), F32)


def named(name: str) -> Any:
    return lambda *args, **kwargs: (name, len(args), tuple(kwargs))


@pytest.fixture
def switch() -> Switch:
    made = switch_of(plan_of(), named("default"))
    assert made is not None
    return made


def test_sizes_choose(switch: Switch) -> None:
    switch.put((2, 3, 4), named("a"))
    switch.put((2, 3, 5), named("b"))
    assert switch.function(*operands(2, 3, 4)) == ("a", 2, ())
    assert switch.function(*operands(2, 3, 5), out=None, threads=1) == ("b", 2, ("out", "threads"))
    assert switch.function(*operands(3, 2, 4)) == ("default", 2, ())
    switch.put((2, 3, 4), named("c"))
    assert switch.function(*operands(2, 3, 4))[0] == "c"
    switch.remove((2, 3, 4))
    assert switch.function(*operands(2, 3, 4))[0] == "default"
    assert switch.counts() == {(2, 3, 5): 1} and switch.total == 5


def test_other_arguments_go_to_the_default(switch: Switch) -> None:
    switch.put((2, 3, 4), named("a"))
    a, b = operands(2, 3, 4)

    class Sub(np.ndarray[Any, Any]):
        pass

    for args, kwargs in [
        ((), {}),
        ((a,), {"C": b}),
        ((a,), {}),
        ((), {"B": b}),
        ((a.tolist(), b), {}),
        ((a[0], b), {}),
        ((a.view(Sub), b), {}),
        ((1, 2), {}),
    ]:
        assert switch.function(*args, **kwargs)[0] == "default"


def test_sizes_are_read_off_named_arguments(switch: Switch) -> None:
    switch.put((2, 3, 4), named("a"))
    a, b = operands(2, 3, 4)
    assert switch.function(A=a, B=b) == ("a", 0, ("A", "B"))
    assert switch.function(B=b, A=a, threads=1) == ("a", 0, ("B", "A", "threads"))
    assert switch.function(a, B=b, out=None) == ("a", 1, ("B", "out"))
    assert switch.function(B=a, A=b)[0] == "default"
    assert switch.sizes_of((a,), {"B": b}) == switch.sizes_of((), {"B": b, "A": a}) == (2, 3, 4)
    assert switch.calls((2, 3, 4)) == 3


def test_sizes_are_read_off_tensors(switch: Switch, torch: Any) -> None:
    a, b = map(torch.from_numpy, operands(2, 3, 4))
    switch.put((2, 3, 4), named("a"))
    assert read_tensors()
    assert switch.function(a, b)[0] == switch.function(a, B=b)[0] == "a"
    assert switch.function(a.t(), b.t())[0] == "default"
    with torch.no_grad():
        assert switch.function(torch.zeros(3, 2).t(), torch.nn.Parameter(b))[0] == "a"
    assert switch.function(a[0], b)[0] == switch.function(a.to_sparse(), b)[0] == "default"
    assert switch.function(a.to("meta"), b)[0] == "default"
    assert switch.sizes_of((a, b), {}) == (2, 3, 4)
    assert switch.calls((2, 3, 4)) == 3


def test_errors_pass_through(switch: Switch) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("mine")

    switch.put((1, 1, 1), fail)
    with pytest.raises(KeyError, match="mine"):
        switch.function(*operands(1, 1, 1))


def test_known_sizes_are_not_read() -> None:
    switch = switch_of(plan_of(K=3), named("default"))
    assert switch is not None
    switch.put((2, 3, 4), named("a"))
    assert switch.function(*operands(2, 3, 4))[0] == "a"
    assert switch.counts() == {(2, 3, 4): 1}
    assert switch_of(plan_of(M=1, K=3, N=2), named("default")) is None


def test_free_sizes_are_read_off_what_gives_them() -> None:
    free = plan_of("def f(float(N) A) -> (float(P) O) { O(i) = i < N ? A(i) : 0.0 }")
    switch = switch_of(free, named("default"))
    assert switch is not None and free.sizes == ("N", "P")
    switch.put((3, 5), named("a"))
    a = np.zeros(3, F32)
    assert switch.function(a, sizes={"P": 5})[0] == "a"
    assert switch.function(A=a, sizes={"N": 3, "P": 5}, threads=1)[0] == "a"
    assert switch.counts() == {(3, 5): 2} and switch.sizes_of((a,), {"sizes": {"P": 5}}) == (3, 5)
    for sizes in ({"P": 6}, {"P": -5}, {"P": 5.0}, {"P": 1 << 70}, {"N": 3}, {}, [("P", 5)]):
        assert switch.function(a, sizes=sizes)[0] == "default"
    assert switch.function(a)[0] == switch.function(a, sizes=None)[0] == "default"


def test_many_sizes() -> None:
    """Whatever is forgotten, a call reaches the function of its sizes or the default one."""
    switch = switch_of(plan_of(), named("default"))
    assert switch is not None
    rng = random.Random(0)
    put: dict[tuple[int, ...], str] = {}
    for step in range(3000):
        sizes = (rng.randrange(12), rng.randrange(12), rng.randrange(12))
        choice = rng.random()
        if choice < 0.4:
            put[sizes] = f"f{step}"
            switch.put(sizes, named(put[sizes]))
            assert switch.function(*operands(*sizes))[0] == put[sizes]
        elif choice < 0.5:
            switch.remove(sizes)
            put.pop(sizes, None)
        got = switch.function(*operands(*sizes))[0]
        assert got in (put.get(sizes, "default"), "default")
    kept = sum(switch.function(*operands(*s))[0] == name for s, name in put.items())
    assert kept >= 300


def test_calls_are_noticed_once_they_are_many(switch: Switch) -> None:
    switch.track(named("notice"), 4)
    args = operands(2, 3, 4)
    got = [switch.function(*args)[0] for _ in range(6)]
    assert got == ["default"] * 3 + ["notice"] + ["default"] * 2
    switch.put((2, 3, 4), None, notice_in=2)
    assert [switch.function(*args)[0] for _ in range(3)] == ["default", "notice", "default"]
    assert switch.calls((2, 3, 4)) == 9


def test_what_is_called_often_stays_counted(switch: Switch) -> None:
    switch.track(named("notice"), 1 << 30)
    rng = random.Random(1)
    for _ in range(20000):
        hot = rng.random() < 0.5
        sizes = (7, 7, rng.randrange(4)) if hot else (rng.randrange(1, 90), 5, rng.randrange(90))
        switch.function(*operands(*sizes))
    counts = switch.counts()
    assert all(counts[7, 7, n] > 1500 for n in range(4))
    assert len(counts) <= 512


def test_regions_serve_sizes_without_a_row() -> None:
    switch = switch_of(plan_of(), named("default"), (lt(var("M"), 8),))
    assert switch is not None
    for sizes in ((7, 3, 4), (8, 3, 4)):
        assert switch.function(*operands(*sizes))[0] == "default"
    switch.set_region(0, named("small"))
    assert (
        switch.function(*operands(0, 3, 4))[0] == switch.function(*operands(7, 1, 1))[0] == "small"
    )
    assert switch.function(*operands(8, 3, 4))[0] == "default"
    switch.set_region(1, named("large"))
    a, b = operands(8, 3, 4)
    assert switch.function(B=b, A=a, threads=1) == ("large", 0, ("B", "A", "threads"))
    assert switch.function(a.tolist(), b)[0] == "default"
    switch.put((8, 3, 4), named("own"))
    assert switch.function(a, b)[0] == "own"
    switch.remove((8, 3, 4))
    switch.track(named("notice"), 3)
    got = [switch.function(a, b)[0] for _ in range(4)]
    assert got == ["large", "large", "notice", "large"]
    assert switch.counts() == {(8, 3, 4): 4}
    switch.put((8, 3, 4), named("own"))
    switch.function(a, b)
    assert switch.counts() == {(8, 3, 4): 5}


def test_regions_of_known_and_huge_sizes() -> None:
    contexts = (ge(var("K") * var("M"), 30), ge(var("M") * var("M") * var("M") * var("N"), 1))
    switch = switch_of(plan_of(K=3), named("default"), contexts)
    assert switch is not None
    for k, name in enumerate(("many", "some", "none")):
        switch.set_region(k, named(name))
    got = [switch.function(*operands(m, 3, n))[0] for m, n in ((10, 0), (9, 1), (9, 0), (0, 5))]
    assert got == ["many", "some", "none", "none"]
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, F32), (2**31, 3), (0, 0))
    assert switch.function(huge, operands(1, 3, 4)[1])[0] == "default"
    large = np.lib.stride_tricks.as_strided(np.zeros(1, F32), (2**31 - 1, 3), (0, 0))
    assert switch.function(large, operands(1, 3, 4)[1])[0] in ("many", "default")


def test_trees_of_regions() -> None:
    """Each test that tuning may learn, natively and in Python."""
    rng = random.Random(3)
    names = ("M", "K", "N")
    for _ in range(6):
        tests = [
            Predicate((rng.randrange(3),), rng.randrange(9)),
            Predicate((0, 1, 2), rng.randrange(300)),
            Predicate((0,), rng.randrange(1, 5), 0, (rng.randrange(1, 3),), rng.randrange(1, 4)),
            Predicate((2,), rng.randrange(1, 8), 8),
            Box(((0, 9), (1, 12), (2, 10))),
        ]
        rng.shuffle(tests)
        tree: Any = Leaf(tc.Options())
        for k, test in enumerate(tests):
            leaf: Any = Leaf(tc.Options(min_work_per_thread=k + 1))
            tree = Split(test, tree, leaf) if rng.random() < 0.5 else Split(test, leaf, tree)
        found = [c for c, _ in tree_contexts(tree, names)]
        switch = switch_of(plan_of(), named("default"), found[:-1])
        assert switch is not None
        for k in range(len(found)):
            switch.set_region(k, named(f"{k}"))
        expected = first_holding(found[:-1], names)
        for _ in range(200):
            sizes = tuple(rng.randrange(14) for _ in names)
            m, k, n = sizes
            assert switch.function(*operands(m, k, n))[0] == f"{expected(*sizes)}"


def test_functions_live_as_long_as_they_are_called(switch: Switch) -> None:
    class Callable:
        def __call__(self, *_: Any) -> str:
            switch.remove((1, 1, 1))
            gc.collect()
            assert alive() is self
            return "done"

    function = Callable()
    alive = weakref.ref(function)
    switch.put((1, 1, 1), function)
    del function
    assert switch.function(*operands(1, 1, 1)) == "done"
    assert alive() is None


def test_references_do_not_leak(switch: Switch) -> None:
    target = named("a")
    switch.put((1, 1, 1), target)
    args = operands(1, 1, 1)
    before = sys.getrefcount(target), sys.getrefcount(args[0])
    for _ in range(100):
        switch.function(*args)
    assert (sys.getrefcount(target), sys.getrefcount(args[0])) == before


def test_threads(switch: Switch) -> None:
    stop = threading.Event()
    wrong: list[Any] = []

    def call(k: int) -> None:
        args = operands(k, k, k)
        while not stop.is_set():
            got = switch.function(*args)[0]
            if got not in (f"f{k}", "default"):
                wrong.append(got)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(16)]
    for t in threads:
        t.start()
    for step in range(400):
        k = step % 16
        switch.put((k, k, k), named(f"f{k}"))
        if step % 3 == 0:
            switch.remove((k, k, k))
    stop.set()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=pytest.mark.host)])
@pytest.mark.parametrize("strategy", ["bucket", "specialize", "auto"])
def test_calls_of_several_versions_run_no_python(
    library: str, strategy: str, request: pytest.FixtureRequest
) -> None:
    edges = tc.strategy.Bucket(edges={"M": (8,)})
    given: Any = edges if strategy == "bucket" else strategy
    kernel = tc.define(MM, sizes={"M": tc.Dim(1, 64)}, strategy=given).mm
    for m in (4, 32):
        x: Any = np.full((m, 3), 2, F32)
        y: Any = np.ones((3, 5), F32)
        if library == "torch":
            x, y = map(request.getfixturevalue("torch").from_numpy, (x, y))
        assert (np.asarray(entered(partial(kernel, x, y))) == 6).all()
        assert (np.asarray(entered(partial(kernel, B=y, A=x))) == 6).all()
