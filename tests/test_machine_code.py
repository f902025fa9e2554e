# SPDX-License-Identifier: Apache-2.0
"""The same contract with generated code: faults, executables, threads, fork, spawn, cache."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime.background import settle

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
PAD = "def pad(float(N) A) -> (float(P) O) { O(i) = i < N ? A(i) : 0.0 }"
GATHER = "def take(float(N) A, int32(M) I) -> (O, S) { O(i) = A(I(i))  S +=! A(j) }"
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((7, 5)).astype(F32), RNG.standard_normal((5, 9)).astype(F32)


@pytest.fixture(scope="module")
def mm() -> Any:
    return tc.define(MM).mm


@pytest.fixture(scope="module", autouse=True)
def _code_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of our own, empty at first and shared by these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TCSYM_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TCSYM_CACHE", "1")
        patch.setenv("TCSYM_VERIFY", "0")
        yield


def close(result: Any) -> None:
    np.testing.assert_allclose(result, X @ Y, rtol=1e-5, atol=1e-5)


def test_calls(mm: Any) -> None:
    for _ in range(3):  # the second call enters native code
        close(mm(X, Y))
        close(mm(B=Y, A=X))
        close(mm(X, Y, sizes={"K": 5}, threads=1))
        assert mm(X[:0], Y).shape == (0, 9) and (mm(X[:, :0], Y[:0]) == 0).all()
        close(mm(np.asfortranarray(X), Y[::-1][::-1], out=np.empty((9, 7), F32).T))


@pytest.mark.parametrize("args", [(X, X), (X, [1.0]), (X,), (X, Y, Y), (X, Y.astype("f8")), ()])
def test_native_entry_and_python_agree_on_errors(mm: Any, args: Any) -> None:
    close(mm(X, Y))
    errors = []
    for call in (mm, mm.reference, mm._checked_call):
        with pytest.raises(tc.TCError) as caught:
            call(*args)
        errors.append(str(caught.value))
    assert len(set(errors)) == 1


def test_fault_of_the_running_kernel() -> None:
    take = tc.define(GATHER)
    a = np.arange(4, dtype=F32)
    for _ in range(2):
        assert take(a, np.array([3, 0], np.int32)).O.tolist() == [3, 0]
        with pytest.raises(tc.BoundsError) as caught:
            take(a, np.array([3, 4], np.int32))
        assert caught.value.column == GATHER.index("A(I(i))") + 1
        assert caught.value.source == GATHER


def test_free_sizes_are_not_shared_between_calls() -> None:
    pad = tc.define(PAD)
    for n in (2, 5, 0, 5):
        assert pad(np.ones(3, F32), sizes={"P": n}).tolist() == [1, 1, 1, 0, 0][:n]
    with pytest.raises(tc.SizeError, match="`P` is missing"):
        pad(np.ones(3, F32))


def test_executable(mm: Any) -> None:
    for run in (mm.compile(X, Y), mm.compile(X.shape, Y.shape), mm.compile(M=7, K=5, N=9)):
        close(run(X, Y))
        close(run(X, B=Y))
        close(run(np.asfortranarray(X), Y))
        out = np.empty((7, 9), F32)
        assert run(X, Y, out=out) is out
        with pytest.raises(tc.SizeError, match=r"`M` is 7 as fixed at `compile`"):
            run(X[:6], Y)
        with pytest.raises(tc.CallError):
            run(X, Y, Y)
        assert repr(run) == "<tcsym executable mm for M=7, K=5, N=9>"
    close(mm(X, Y))
    assert mm(X[:6], Y).shape == (6, 9)  # the kernel itself is not pinned


def test_executable_with_free_size() -> None:
    run = tc.define(PAD).compile((3,), P=5)
    assert run(np.ones(3, F32)).tolist() == [1, 1, 1, 0, 0]


def test_executable_for_strided_arguments() -> None:
    kernel = tc.define(MM).mm
    run = kernel.compile(np.asfortranarray(X), Y)
    assert [v.layouts for v in kernel.stats.variants] == [("columns", "dense", "dense")]
    close(run(np.asfortranarray(X), Y))
    close(run(X, Y))


@pytest.mark.parametrize("bind", ["never", "before", "after"])
def test_fixed_sizes(bind: Any) -> None:
    kernel = tc.define(MM, sizes={"K": 5, "M": 7}, options=tc.Options(bind=bind)).mm
    for _ in range(2):
        close(kernel(X, Y))
        with pytest.raises(tc.SizeError, match="fixed at `define`"):
            kernel(X[:, :4], Y[:4])


def test_one_compilation_serves_all_sizes() -> None:
    kernel = tc.define(MM).mm
    for m, k, n in ((1, 1, 1), (2, 3, 4), (17, 0, 5), (33, 16, 1)):
        kernel(np.ones((m, k), F32), np.ones((k, n), F32))
    assert kernel.stats.compilations + kernel.stats.cache_hits == 1


def test_precompile_and_variants() -> None:
    kernel = tc.define(MM).mm.precompile()
    assert "dense, dense, dense" in kernel.explain("variants")
    kernel(X, Y)
    assert len(kernel.stats.variants) == 1


def test_code_cache() -> None:
    source = MM.replace("mm(", "cached(")
    first, second = tc.define(source).cached, tc.define(source).cached
    close(first(X, Y))
    close(second(X, Y))
    assert (first.stats.compilations, first.stats.cache_hits) == (1, 0)
    assert (second.stats.compilations, second.stats.cache_hits) == (0, 1)


def test_many_threads_compile_once() -> None:
    kernel = tc.define(MM).mm
    start = threading.Barrier(8)

    def call(_: int) -> Any:
        start.wait()
        return [kernel(X, Y) for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        for results in pool.map(call, range(8)):
            for result in results:
                close(result)
    assert len(kernel.stats.variants) == 1


def product(kernel: Any) -> Any:
    return kernel(X, Y)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(mm: Any, method: Any) -> None:
    close(mm(X, Y))
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        close(pool.apply(product, (mm,)))


def test_fork_waits_for_a_compilation() -> None:
    kernel = tc.define(MM.replace("mm(", "busy(")).busy
    thread = threading.Thread(target=lambda: kernel(X, Y))
    thread.start()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        close(pool.apply(product, (tc.define(MM).mm,)))
    thread.join()


def test_pickled_executable(mm: Any) -> None:
    close(pickle.loads(pickle.dumps(mm.compile(X, Y)))(X, Y))


def test_kernels_are_freed() -> None:
    kernel = tc.define(MM).mm
    close(kernel(X, Y))
    settle()
    close(kernel(X, Y))
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None


def test_results_own_their_memory(mm: Any) -> None:
    result = mm(X, Y)
    others = [mm(X * 0, Y) for _ in range(100)]
    close(result)
    assert not np.shares_memory(result, others[0])
