# SPDX-License-Identifier: Apache-2.0
"""Worker pool: every task once, whatever threads, forks and OpenMP run times there are."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tcsym.runtime.loader import Image, load_object
from tcsym.runtime.memory import c_function
from tcsym.runtime.native import native
from tcsym.runtime.pool import Pool, loaded_openmp, process_pool
from tests.assembled import assemble

# repeat(parallel_for, pool, counters, n_tasks, times, work): task t adds `times` to counters[8*t],
# after spinning counters[8*t + 1] rounds.
REPEAT = """
define internal void @task(ptr %counters, i64 %task, i64 %tasks) {
entry:
  %at = getelementptr [8 x i64], ptr %counters, i64 %task
  %rounds_at = getelementptr i64, ptr %at, i64 1
  %rounds = load i64, ptr %rounds_at
  br label %spin
spin:
  %k = phi i64 [ 0, %entry ], [ %k1, %spin ]
  %v = load volatile i64, ptr %at
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %rounds
  br i1 %more, label %spin, label %done
done:
  %w = add i64 %v, 1
  store volatile i64 %w, ptr %at
  ret void
}
define void @repeat(ptr %parallel_for, ptr %pool, ptr %counters, i64 %n_tasks, i64 %times,
                    i64 %work) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  call void %parallel_for(ptr %pool, ptr @task, ptr %counters, i64 %n_tasks, i64 %work)
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}
; A task that runs a parallel_for itself.
define internal void @outer(ptr %frame, i64 %task, i64 %tasks) {
  %pf = load ptr, ptr %frame
  %pool_at = getelementptr ptr, ptr %frame, i64 1
  %pool = load ptr, ptr %pool_at
  %counters_at = getelementptr ptr, ptr %frame, i64 2
  %counters = load ptr, ptr %counters_at
  %mine = getelementptr [64 x i64], ptr %counters, i64 %task
  call void %pf(ptr %pool, ptr @task, ptr %mine, i64 4, i64 1099511627776)
  ret void
}
define void @nested(ptr %parallel_for, ptr %pool, ptr %counters) {
  %frame = alloca [3 x ptr]
  store ptr %parallel_for, ptr %frame
  %pool_at = getelementptr ptr, ptr %frame, i64 1
  store ptr %pool, ptr %pool_at
  %counters_at = getelementptr ptr, ptr %frame, i64 2
  store ptr %counters, ptr %counters_at
  call void %parallel_for(ptr %pool, ptr @outer, ptr %frame, i64 3, i64 1099511627776)
  ret void
}
; Two tasks: each says that it runs at counters[8*t], and at counters[8*t + 1] that the other does.
define internal void @waiting(ptr %counters, i64 %task, i64 %tasks) {
entry:
  %at = getelementptr [8 x i64], ptr %counters, i64 %task
  store atomic i64 1, ptr %at seq_cst, align 8
  %other = sub i64 1, %task
  %other_at = getelementptr [8 x i64], ptr %counters, i64 %other
  br label %wait
wait:
  %k = phi i64 [ 0, %entry ], [ %k1, %wait ]
  %there = load atomic i64, ptr %other_at seq_cst, align 8
  %k1 = add i64 %k, 1
  %late = icmp eq i64 %k1, 100000000000
  %met = icmp eq i64 %there, 1
  %end = or i1 %late, %met
  br i1 %end, label %done, label %wait
done:
  %met_at = getelementptr i64, ptr %at, i64 1
  store i64 %there, ptr %met_at
  ret void
}
define void @meet(ptr %parallel_for, ptr %pool, ptr %counters) {
  call void %parallel_for(ptr %pool, ptr @waiting, ptr %counters, i64 2, i64 1099511627776)
  ret void
}
"""
Repeat = Callable[..., None]
PLENTY = 1 << 40  # sixteenths of a cycle
MICROSECOND = 40_000


@pytest.fixture(scope="module")
def image() -> Image:
    return load_object(assemble(REPEAT), c_function)


@pytest.fixture(scope="module")
def repeat(image: Image) -> Repeat:
    parameters = (ctypes.c_void_p,) * 3 + (ctypes.c_int64,) * 3
    call = ctypes.CFUNCTYPE(None, *parameters)(image.address("repeat"))

    def run(pool: Pool, counters: np.ndarray, n_tasks: int, times: int, work: int = PLENTY) -> None:
        call(native.parallel_for, pool.address, counters.ctypes.data, n_tasks, times, work)

    return run


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.stop()


def counters(tasks: int, rounds: int = 0) -> np.ndarray:
    made = np.zeros((tasks, 8), np.int64)
    made[:, 1] = rounds
    return made


@pytest.mark.parametrize("n_tasks", [0, 1, 2, 5, 40, 300])
def test_every_task_runs_once(pool: Pool, repeat: Repeat, n_tasks: int) -> None:
    seen = counters(n_tasks + 1)
    repeat(pool, seen, n_tasks, 25)
    assert list(seen[:, 0]) == [25] * n_tasks + [0]
    assert pool.workers == max(0, min(255, n_tasks - 1))


def test_a_short_loop_wakes_nobody(pool: Pool, repeat: Repeat) -> None:
    seen = counters(2)
    for _ in range(3):
        time.sleep(0.001)
        repeat(pool, seen, 2, 1, 20 * MICROSECOND)
    assert seen[:, 0].tolist() == [3, 0] and pool.workers == 0


def test_short_loops_in_close_succession_wake_the_workers(pool: Pool, repeat: Repeat) -> None:
    seen = counters(2)
    repeat(pool, seen, 2, 10_000, 4 * MICROSECOND)
    assert seen[0, 0] == 10_000 and seen[1, 0] > 0 and pool.workers == 1


def test_threads_that_cost_time_rest_until_they_would_have_saved_it(
    pool: Pool, repeat: Repeat
) -> None:
    seen = counters(2)
    seen[1, 1] = 1_000_000  # rounds, of a cycle at least: as if another process had its processor
    repeat(pool, seen, 2, 2000, 4 * MICROSECOND)  # 5,000 cycles to save in each
    # To wake them takes 60,000: twelve loops without them before each with them, at the least.
    assert seen[0, 0] == 2000 and 0 < seen[1, 0] <= 2000 // 12


def test_a_long_loop_wakes_the_workers_at_once(pool: Pool, repeat: Repeat) -> None:
    seen = counters(2)
    repeat(pool, seen, 2, 1, 200 * MICROSECOND)
    assert seen[:, 0].tolist() == [1, 1] and pool.workers == 1


def test_workers_that_may_not_spin_are_woken_for_long_loops_only(
    pool: Pool, repeat: Repeat
) -> None:
    pool.prepare(4096)
    seen = counters(2)
    repeat(pool, seen, 2, 100, 20 * MICROSECOND)
    assert seen[:, 0].tolist() == [100, 0]
    repeat(pool, seen, 2, 1, 200 * MICROSECOND)
    assert seen[:, 0].tolist() == [101, 1]


def test_workers_grow_sleep_and_wake(pool: Pool, repeat: Repeat) -> None:
    seen = counters(4)
    for n_tasks, pause in ((2, 0.0), (2, 0.01), (4, 0.01), (3, 0.0)):
        time.sleep(pause)
        repeat(pool, seen, n_tasks, 10)
    assert list(seen[:, 0]) == [40, 40, 20, 10]
    assert pool.workers == 3


def test_tasks_run_side_by_side(pool: Pool, image: Image) -> None:
    """Each waits for the other, for a minute at most. (On one core, its threads take turns.)"""
    seen = np.zeros((2, 8), np.int64)
    call = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 3)(image.address("meet"))
    call(native.parallel_for, pool.address, seen.ctypes.data)
    assert seen[:, :2].tolist() == [[1, 1], [1, 1]]


def test_nested_parallel_for_runs_serially(pool: Pool, image: Image) -> None:
    seen = np.zeros((3, 8, 8), np.int64)
    call = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 3)(image.address("nested"))
    call(native.parallel_for, pool.address, seen.ctypes.data)
    assert (seen[:, 0, 0] == 1).all() and not seen[:, 1:].any()


def test_python_threads_share_the_pool(pool: Pool, repeat: Repeat) -> None:
    arrays = [counters(3, rounds=50) for _ in range(8)]

    def work(seen: np.ndarray) -> None:
        for _ in range(20):
            repeat(pool, seen, 3, 100)

    threads = [threading.Thread(target=work, args=(a,)) for a in arrays]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a in arrays:  # who finds the pool in use runs one task, that is, all of the loop
        assert a[0, 0] == 2000 and a[1, 0] == a[2, 0] <= 2000


def thread_ids() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def test_stop_ends_the_threads_and_the_pool_can_start_again(repeat: Repeat) -> None:
    pool, seen, made = Pool(), counters(4), set[str]()
    for _ in range(3):
        before = thread_ids()  # of others, which may end meanwhile
        repeat(pool, seen, 4, 1)
        assert len(thread_ids() - before) == 3
        made |= thread_ids() - before
        pool.stop()
        assert pool.workers == 0
    for _ in range(200):  # a joined thread may be listed for another moment
        if made.isdisjoint(thread_ids()):
            break
        time.sleep(0.005)
    assert made.isdisjoint(thread_ids())
    assert list(seen[:, 0]) == [3] * 4


def in_child(check: Callable[[], bool]) -> bool:
    """Truth of `check` in a forked child, which must end within 20 seconds."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(2)
    for _ in range(2000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_the_pool_is_running(pool: Pool, repeat: Repeat) -> None:
    stop = threading.Event()
    seen = counters(3, rounds=200)

    def work() -> None:
        while not stop.is_set():
            repeat(pool, seen, 3, 50)

    def child_works() -> bool:
        fresh = pool.workers == 0
        mine = counters(3)
        repeat(pool, mine, 3, 100)
        return fresh and mine[:, 0].tolist() == [100] * 3 and pool.workers == 2

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert all(in_child(child_works) for _ in range(5))
    finally:
        stop.set()
        thread.join()
    # while a fork stops the threads, a loop runs one task, that is, all of it
    assert seen[0, 0] >= seen[1, 0] == seen[2, 0]


OPENMP = """
import ctypes, os, sys
import numpy as np
ctypes.CDLL("libgomp.so.1")
sys.path.insert(0, {directory!r})
import test_pool as t
from tcsym.runtime.pool import process_pool
pool = process_pool()
pool.adopt_openmp()
assert "libgomp" in pool.openmp, pool.openmp
image = t.load_object(t.assemble(t.REPEAT), t.c_function)
parameters = (ctypes.c_void_p,) * 3 + (ctypes.c_int64,) * 3
call = ctypes.CFUNCTYPE(None, *parameters)(image.address("repeat"))
def repeat(n):
    seen = t.counters(n)
    call(t.native.parallel_for, pool.address, seen.ctypes.data, n, 100, 1 << 40)
    return seen[:, 0].tolist() == [100] * n
assert repeat(2) and repeat(5) and pool.workers == 0
assert t.in_child(lambda: repeat(3) and pool.workers == 2 and pool.openmp is None)
assert repeat(4)
print("good")
"""


def test_loaded_openmp_is_used_but_not_in_a_forked_child() -> None:
    try:
        ctypes.CDLL("libgomp.so.1", mode=os.RTLD_LOCAL)
    except OSError:
        pytest.skip("libgomp.so.1, the OpenMP run time of GCC, is not installed")
    script = OPENMP.format(directory=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "good\n", done.stderr


def test_process_exits_cleanly_while_workers_sleep_or_spin() -> None:
    script = """
from tcsym.runtime.pool import process_pool
from tcsym.runtime.native import native
import ctypes
kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 2)(lambda data, t, n: None)
pool = process_pool()
call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
call(native.parallel_for)(pool.address, ctypes.cast(kernel, ctypes.c_void_p), None, 3, 1 << 40)
print(pool.workers)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_the_process_has_one_pool() -> None:
    assert process_pool() is process_pool()
    assert process_pool().openmp in (None, loaded_openmp())
