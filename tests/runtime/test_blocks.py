# SPDX-License-Identifier: Apache-2.0
"""Large results: their memory is used again, never while anything refers to it."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime.blocks import LEAST
from tests.entered import entered

LARGE = LEAST // 4  # elements of 4 bytes
MIB = 2**20
TEXT = """def next(float(N) A) -> (O) { O(i) = A(i) + 1.0 }
def both(float(N) A) -> (O, P) { O(i) = A(i) + 1.0  P(i) = A(i) * 2.0 }
def square(float(N) A) -> (float(N,N) O) { O(i,j) = A(i) + A(j) }"""


@pytest.fixture(scope="module")
def m() -> tc.Module:
    return tc.define(TEXT, strategy="symbolic")


@pytest.fixture(autouse=True)
def _nothing_idle() -> Iterator[None]:
    before = tc.get_result_memory().most
    tc.set_result_memory(0)
    tc.set_result_memory(256 * MIB)
    yield
    tc.set_result_memory(before)


def ramp(n: int) -> np.ndarray[Any, Any]:
    return np.arange(n, dtype=np.float32)


def handler(array: Any) -> Any:
    core = np._core if hasattr(np, "_core") else np.core  # type: ignore[attr-defined]
    return core.multiarray.get_handler_name(array)


def test_only_large_results_are_blocks(m: tc.Module) -> None:
    for n, name in ((LARGE - 1, "default_allocator"), (LARGE, "tcsym"), (LARGE + 5, "tcsym")):
        call = lambda n=n: m.next(ramp(n))  # noqa: E731
        for result in (call(), entered(call), m.next._checked_call(ramp(n))):
            assert (handler(result), result.flags.owndata) == (name, True)
            assert result.flags.aligned and result.flags.c_contiguous and result.flags.writeable
            np.testing.assert_array_equal(result, ramp(n) + 1)


def test_memory_is_used_again_when_the_last_reference_is_gone(m: tc.Module) -> None:
    a = ramp(LARGE)
    m.next(a)
    first = m.next(a)
    address, view = first.ctypes.data, first[3:].reshape(-1, 1)
    del first
    second = m.next(a)
    assert second.ctypes.data != address
    np.testing.assert_array_equal(view[:, 0], a[3:] + 1)
    known = {address, second.ctypes.data}
    del view, second
    assert tc.get_result_memory() == (256 * MIB, 2 * LEAST, 2)
    assert {m.next(a).ctypes.data for _ in range(9)} <= known


def test_live_results_share_nothing(m: tc.Module) -> None:
    inputs = [ramp(LARGE + 1000 * k) for k in range(6)]
    kept = [(x, *m.both(x)) for _ in range(3) for x in inputs]
    for x, o, p in kept:
        np.testing.assert_array_equal(o, x + 1)
        np.testing.assert_array_equal(p, x * 2)
    spans = sorted((r.ctypes.data, r.ctypes.data + r.nbytes) for _, *rs in kept for r in rs)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_idle_memory_is_bounded_and_can_be_given_back(m: tc.Module) -> None:
    tc.set_result_memory(3 * LEAST)
    results = [m.next(ramp(LARGE)) for _ in range(8)]
    assert tc.get_result_memory() == (3 * LEAST, 0, 0)
    results.clear()
    assert tc.get_result_memory() == (3 * LEAST, 3 * LEAST, 3)
    tc.set_result_memory(LEAST)
    assert tc.get_result_memory() == (LEAST, LEAST, 1)
    m.next(ramp(2 * LARGE))  # more than may be kept
    assert tc.get_result_memory().blocks == 1
    tc.set_result_memory(0)
    m.next(ramp(LARGE))
    assert tc.get_result_memory() == (0, 0, 0)


def test_what_nobody_wants_is_given_back(m: tc.Module) -> None:
    m.next(ramp(8 * LARGE))
    assert tc.get_result_memory().idle == 8 * LEAST
    for _ in range(80):
        m.next(ramp(LARGE))
    assert tc.get_result_memory().idle == LEAST


def test_a_block_is_at_most_a_quarter_larger_than_needed(m: tc.Module) -> None:
    m.next(ramp(2 * LARGE))
    assert tc.get_result_memory().blocks == 1
    half = m.next(ramp(LARGE))
    assert tc.get_result_memory().blocks == 1
    near = m.next(ramp(2 * LARGE - 9 * 1024))
    assert tc.get_result_memory().blocks == 0
    assert half.ctypes.data != near.ctypes.data


def test_arrays_behave_as_any_other(m: tc.Module) -> None:
    a = ramp(LARGE)
    result = m.next(a)
    assert sys.getsizeof(result) == sys.getsizeof(np.empty_like(a))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(result)), a + 1)
    np.testing.assert_array_equal(result.copy(), a + 1)
    assert handler(result.copy()) == "default_allocator"
    result.resize(1000, refcheck=False)
    np.testing.assert_array_equal(result, a[:1000] + 1)
    result.resize(LARGE + 7, refcheck=False)
    np.testing.assert_array_equal(result[:1000], a[:1000] + 1)
    assert not result[1000:].any()
    result.resize(0, refcheck=False)
    assert result.size == 0


def test_tracemalloc_sees_results_that_live(m: tc.Module) -> None:
    a = ramp(LARGE)
    call = lambda: m.next(a)  # noqa: E731
    entered(call)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = call()
        assert tracemalloc.get_traced_memory()[0] - before >= kept.nbytes
        del kept
        assert tracemalloc.get_traced_memory()[0] - before < 10_000
    finally:
        tracemalloc.stop()


def test_calls_and_frees_in_threads(m: tc.Module) -> None:
    wrong: list[int] = []

    def work(k: int) -> None:
        x = ramp(LARGE + k)
        for _ in range(10):
            kept = m.next(x, threads=1), m.next(x, threads=1)
            if any((y != x + 1).any() for y in kept):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_fork_with_idle_and_live_blocks(m: tc.Module) -> None:
    a = ramp(LARGE)
    live = m.next(a)
    m.next(a)
    child = os.fork()
    if not child:
        fine = (
            all((m.next(a, threads=1) == a + 1).all() for _ in range(3)) and (live == a + 1).all()
        )
        os._exit(0 if fine else 1)
    for _ in range(3):
        np.testing.assert_array_equal(m.next(a), a + 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(live, a + 1)


AT_EXIT = f"""
import builtins, sys, numpy as np, tcsym
kernel = tcsym.define("def f(float(N) A) -> (O) {{ O(i) = A(i) + 1.0 }}")
a = np.ones({LARGE}, np.float32)
sys.kept, builtins.kept = kernel(a), kernel(a)  # freed after all modules
print(tcsym.get_result_memory().most)
"""


def test_arrays_may_outlive_the_interpreter_and_the_bound_comes_from_outside() -> None:
    environment = {**os.environ, "TCSYM_RESULT_MEMORY": "7M"}
    command = [sys.executable, "-c", AT_EXIT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{7 * MIB}\n")
    assert not done.stderr


@pytest.mark.parametrize("bound", [-1, 1.5, "1M", True, None])
def test_a_bound_is_a_number_of_bytes(bound: Any) -> None:
    with pytest.raises(tc.OptionError, match="number of bytes"):
        tc.set_result_memory(bound)


def test_no_memory_is_an_error(m: tc.Module) -> None:
    with pytest.raises((MemoryError, tc.TCError)):
        m.square(np.broadcast_to(np.float32(1), (2**22,)))
    gc.collect()
    np.testing.assert_array_equal(m.next(ramp(LARGE)), ramp(LARGE) + 1)
