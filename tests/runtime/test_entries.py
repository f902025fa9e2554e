# SPDX-License-Identifier: Apache-2.0
"""Kernels entered natively: which calls run no Python code, what they give, and the same errors."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.dispatch import dispatcher
from tcsym.runtime.background import settle
from tests.entered import entered, python_frames

SOURCE = """
def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def pad(float(N) A) -> (float(P) O) { O(i) = i < N ? A(i) : 0.0 }
def scaled(float(N) A, float a, int32 k) -> (O, S) { O(i) = A(i) * a + k  S +=! A(i) }
def take(float(N) A, int32(M) I) -> (O) { O(i) = A(I(i)) }
"""
F32 = np.float32
A, B = np.arange(6, dtype=F32), np.full(6, 2, F32)
X, Y = np.arange(24, dtype=F32).reshape(4, 6), np.arange(18, dtype=F32).reshape(6, 3)


@pytest.fixture(scope="module")
def m() -> tc.Module:
    return tc.define(SOURCE, strategy="symbolic")


def test_names_options_and_numbers(m: tc.Module) -> None:
    out = np.zeros(6, F32)
    assert (entered(lambda: m.add(A, B=B)) == A + 2).all()
    assert (entered(lambda: m.add(B=B, A=A, threads=1)) == A + 2).all()
    assert entered(lambda: m.add(A, B, out=out)) is out
    assert (out == A + 2).all()
    assert (entered(lambda: m.pad(A, sizes={"P": 8})) == [*A, 0, 0]).all()
    for a, k in itertools.product((2, 2.5, True, F32(3), np.array(3, F32)), (1, np.int32(1))):
        result, total = entered(lambda a=a, k=k: m.scaled(A, a, k))
        np.testing.assert_array_equal(result, A * F32(a) + F32(1))
        assert A.sum() == total


def ways(x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    rows = np.zeros((x.shape[0], x.shape[1] + 3), F32)[:, 1:-2]
    rows[...] = x
    every = np.repeat(x, 2, 1)[:, ::2]
    return [x, rows, np.asfortranarray(x), every, x[::-1].copy()[::-1]]


def test_the_first_call_makes_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later calls share neither cores nor Python's lock with that; other kinds come beside."""
    begun: list[Callable[[], object]] = []
    monkeypatch.setattr(dispatcher, "beside", begun.append)
    for strategy in ("symbolic", "auto"):
        mm = tc.define(SOURCE, strategy=strategy).mm
        mm(X, Y)
        assert not begun and not python_frames(lambda mm=mm: mm(X, Y))
        mm(X[:, ::-1], Y)  # on copies with `auto`, until a variant is compiled beside
        assert len(begun) == (strategy == "symbolic")
        begun.clear()


def test_every_layout_is_entered_and_agrees(m: tc.Module) -> None:
    mm = tc.define(SOURCE, strategy="symbolic").mm
    expected = X @ Y
    calls = [(a, b) for a in ways(X) for b in ways(Y)]
    outs = [lambda: None, *(lambda w=w: w for w in ways(np.zeros((4, 3), F32)))]
    for (a, b), out in itertools.product(calls, outs):
        mm(a, b, out=out())
    settle()
    for (a, b), out in itertools.product(calls, outs):
        memory = out()
        assert python_frames(lambda a=a, b=b, o=memory: mm(a, b, out=o)) == []
        result = mm(a, b, out=memory)
        assert memory is None or result is memory
        np.testing.assert_array_equal(result, expected)
    assert len(mm.stats.variants) == 4


def test_compiling_makes_no_more_variants_than_python(m: tc.Module) -> None:
    """The native way must pick the variant that the Python way picks."""
    for first in ways(X):
        one, other = (  # given options: nothing that an earlier process kept is used
            tc.define(SOURCE, strategy="symbolic", options=tc.Options()).mm for _ in range(2)
        )
        one(first, Y)
        settle()
        for a in ways(X):
            one(a, Y)
            settle()
        for a in (first, *ways(X)):
            other._checked_call(a, Y)
        assert [v.layouts for v in one.stats.variants] == [v.layouts for v in other.stats.variants]


# ---- errors

BAD: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("add", (), {}),
    ("add", (A,), {}),
    ("add", (A, B, B), {}),
    ("add", (A, B), {"B": B}),
    ("add", (A, B), {"D": B}),
    ("add", (A,), {"b": B}),
    ("add", (A, B[:5]), {}),
    ("add", (A, B.astype(float)), {}),
    ("add", (A, B[None]), {}),
    ("add", (A, 3.0), {}),
    ("add", (A, None), {}),
    ("add", (A, [1.0]), {}),
    ("add", (A, np.ma.masked_array(B)), {}),
    ("add", (A, B), {"out": A}),
    ("add", (A, B), {"out": np.zeros(6)}),
    ("add", (A, B), {"out": np.zeros(5, F32)}),
    ("add", (A, B), {"out": np.zeros((6, 1), F32)}),
    ("add", (A, B), {"out": np.broadcast_to(F32(0), 6)}),
    ("add", (A, B), {"out": np.lib.stride_tricks.as_strided(np.zeros(6, F32), (6,), (0,))}),
    ("add", (A, B), {"out": (A.copy(), B.copy())}),
    ("add", (A, B), {"out": {"D": A}}),
    ("add", (A, B), {"out": 3}),
    ("add", (A, B), {"threads": 0}),
    ("add", (A, B), {"threads": 1.5}),
    ("add", (A, B), {"threads": True}),
    ("add", (A, B), {"sizes": {"N": 5}}),
    ("add", (A, B), {"sizes": {"Q": 5}}),
    ("add", (A, B), {"sizes": 5}),
    ("mm", (X, X), {}),
    ("mm", (X.T, Y.T), {}),
    ("pad", (A,), {}),
    ("pad", (A,), {"sizes": {}}),
    ("pad", (A,), {"sizes": {"P": -1}}),
    ("pad", (A,), {"sizes": {"P": "8"}}),
    ("pad", (A,), {"sizes": {"P": 2**63}}),
    ("pad", (A,), {"sizes": {"P": 2**62}}),
    ("pad", (A,), {"sizes": {"P": 8, "N": 7}}),
    ("pad", (A,), {"sizes": {"P": 8}, "out": np.zeros(9, F32)}),
    ("scaled", (A, 1j, 1), {}),
    ("scaled", (A, 1e39, 1), {}),
    ("scaled", (A, 2**24 + 1, 1), {}),
    ("scaled", (A, 1, 1.0), {}),
    ("scaled", (A, 1, 2**31), {}),
    ("scaled", (A, 1, np.int64(2**40)), {}),
    ("scaled", (A, np.float64(1e39), 1), {}),
    ("scaled", (A, "1", 1), {}),
    ("scaled", (A, A[:1], 1), {}),
    ("scaled", (A, 1, 1), {"out": (np.zeros(6, F32),)}),
    ("scaled", (A, 1, 1), {"out": A.copy()}),
    ("take", (A, np.array([0, 6], np.int32)), {}),
    ("take", (A, np.array([-1], np.int32)), {}),
    ("take", (A, np.array([0], np.int64)), {}),
]


@pytest.fixture(scope="module")
def warm(m: tc.Module) -> tc.Module:
    """Every def has its entry."""
    entered(lambda: m.add(A, B))
    entered(lambda: m.mm(X, Y))
    entered(lambda: m.pad(A, sizes={"P": 8}))
    entered(lambda: m.scaled(A, 1.0, 2))
    entered(lambda: m.take(A, np.zeros(3, np.int32)))
    return m


@pytest.mark.parametrize(("name", "args", "kwargs"), BAD)
def test_errors_are_those_of_the_python_way(
    warm: tc.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    kernel = warm[name]
    errors = []
    for call in (kernel, kernel._checked_call):
        with pytest.raises(Exception) as caught:
            call(*args, **kwargs)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]
    assert issubclass(errors[0][0], tc.TCError | MemoryError)


# ---- memory, threads, processes


def test_nothing_but_the_output_is_allocated(warm: tc.Module) -> None:
    out = np.zeros(6, F32)
    wide = np.zeros((4, 9), F32)[:, :6]
    entered(lambda: warm.mm(wide, Y))
    calls: list[Callable[[], Any]] = [
        lambda: warm.add(A, B, out=out),
        lambda: warm.add(A=A, B=B, out=out, threads=1),
        lambda: warm.pad(A, sizes={"P": 6}, out=out),
    ]
    for call in calls:
        entered(call)
        call()
        tracemalloc.start()
        try:
            call()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(10):
                call()
            tracemalloc.reset_peak()
            assert tracemalloc.get_traced_memory()[0] <= before
        finally:
            tracemalloc.stop()
    made = warm.mm(wide, Y).nbytes
    tracemalloc.start()
    try:
        results = [warm.mm(wide, Y) for _ in range(100)]
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    numpy_bytes = snapshot.filter_traces(
        [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]
    )
    assert sum(trace.size for trace in numpy_bytes.traces) == len(results) * made


def test_sixteen_threads_with_all_kinds_of_calls(m: tc.Module) -> None:
    kernel = tc.define(SOURCE, strategy="symbolic").mm  # nothing is compiled yet
    wrong: list[int] = []
    start = threading.Barrier(16)

    def work(k: int) -> None:
        a = ways(X + k)[k % 5]
        expected = (X + k) @ Y
        out = ways(np.zeros((4, 3), F32))[k % 3] if k % 2 else None
        start.wait()
        for _ in range(200):
            if not (kernel(a, B=Y, out=out, threads=1 + k % 2) == expected).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert len(kernel.stats.variants) <= 4


def product_in_child(kernel: tc.Kernel, queue: Any) -> None:
    queue.put(kernel(X, Y).tolist())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(warm: tc.Module, method: str) -> None:
    context = get_context(method)
    queue = context.Queue()
    child = context.Process(target=product_in_child, args=(warm.mm, queue))
    child.start()
    assert queue.get(timeout=60) == (X @ Y).tolist()
    child.join()
    assert child.exitcode == 0


def test_entries_are_made_from_the_cache_without_the_compiler(tmp_path: Any) -> None:
    probe = f"""
import sys
import numpy as np, tcsym as tc
from tcsym.runtime.background import settle
from tests.entered import entered, python_frames
m = tc.define({SOURCE!r})
x = np.ones((4, 8), np.float32)
for _ in range(2):
    m.mm(x[:, :4], x)
    m.pad(x[0], sizes={{"P": 3}})
    settle()
print("tcsym.target.llvm" in sys.modules)
"""
    import os

    environment = {**os.environ, "TCSYM_CACHE_DIR": str(tmp_path), "TCSYM_VERIFY": "0"}
    for expected in ("True\n", "False\n"):
        done = subprocess.run(
            [sys.executable, "-c", probe],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == expected
