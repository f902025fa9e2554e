# SPDX-License-Identifier: Apache-2.0
"""Forks while other threads make first calls: no child waits for what it does not have."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tcsym.process import forks
from tcsym.process.forks import Inside, inside

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
HEAD = f"""
import multiprocessing, os, signal, sys, threading, time
import numpy as np
import tcsym
MM = {MM!r}
A, B = np.ones((5, 6), np.float32), np.ones((6, 7), np.float32)

def call():
    assert (tcsym.define(MM).mm(A, B) == 6).all()

def child_calls(call):
    # True if a child of this process ends its call in time.
    child = os.fork()
    if child == 0:
        try:
            call()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status == 0
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False
"""


def run_script(body: str, cache: Path, *arguments: str) -> None:
    environment = {**os.environ, "TCSYM_CACHE_DIR": str(cache)}
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c"]
    command += [HEAD + textwrap.dedent(body), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0 and not done.stderr, done.stderr


FIRST_CALL = """
errors = []
def first():
    try:
        call()
    except BaseException as error:
        errors.append(error)
thread = threading.Thread(target=first)
thread.start()
time.sleep(float(sys.argv[1]))
assert child_calls(call), "the child waits for ever"
thread.join()
assert not errors, errors
call()
"""


@pytest.mark.thinned(3)
@pytest.mark.parametrize("milliseconds", [0, 3, 10, 35, 100, 200])
def test_a_fork_while_another_thread_makes_a_first_call(milliseconds: int, tmp_path: Path) -> None:
    run_script(_warning_of_the_thread(FIRST_CALL), tmp_path, str(milliseconds / 1000))


def _warning_of_the_thread(body: str) -> str:
    """From 3.12 on Python warns of the thread that the test itself has."""
    return f"import warnings; warnings.simplefilter('ignore')\n{body}"


def test_forks_all_along_a_first_call(tmp_path: Path) -> None:
    """One after the other, each child makes a call of a kernel of its own."""
    body = """
    def other():
        k = tcsym.define(MM.replace("mm", f"m{os.getpid()}"))
        assert (k(A, B) == 6).all()
    thread = threading.Thread(target=call)
    thread.start()
    for _ in range(6):
        assert child_calls(other), "the child waits for ever"
        time.sleep(0.01)
    thread.join()
    """
    run_script(_warning_of_the_thread(textwrap.dedent(body)), tmp_path)


def test_forks_while_code_is_made_beside_the_calls(tmp_path: Path) -> None:
    """Without a warning that there are threads: none of ours is left at a fork."""
    body = """
    from tcsym.dispatch.compile_queue import compilations
    kernel = tcsym.define(MM, strategy=tcsym.strategy.Specialize(background=True)).mm
    for n in range(1, 6):
        b = np.ones((6, n), np.float32)
        kernel(A, b)
        assert child_calls(lambda: kernel(A, b)), "the child waits for ever"
    assert compilations._open or kernel.stats.compilations > 1
    compilations.settle()
    assert not compilations._open
    assert (kernel(A, B) == 6).all()
    """
    run_script(body, tmp_path)


def test_what_a_fork_interrupted_goes_on_with_the_next_call(tmp_path: Path) -> None:
    body = """
    from tcsym.dispatch.compile_queue import compilations
    kernel = tcsym.define(MM, strategy=tcsym.strategy.Specialize(background=True)).mm
    kernel(A, B)
    assert child_calls(lambda: kernel(A, B))
    if compilations._open:
        assert compilations._thread is None
        tcsym.define("def f(float(N) X) -> (Y) { Y(i) = X(i) }")
        assert compilations._thread is not None
    compilations.settle()
    """
    run_script(body, tmp_path)


def test_idle_workers_are_gone_at_forks(tmp_path: Path) -> None:
    body = """
    from tcsym.runtime.pool import process_pool
    X = np.ones((700, 700), np.float32)
    kernel = tcsym.define(MM).mm
    for _ in range(2):
        result = kernel(X, X, threads=2)
        assert process_pool().workers or process_pool().openmp
        assert child_calls(lambda: kernel(X, X, threads=2))
    """
    run_script(body, tmp_path)


def test_a_pool_of_processes(tmp_path: Path) -> None:
    body = """
    def task(n):
        b = np.ones((6, n), np.float32)
        return float(tcsym.define(MM).mm(A, b).sum())
    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.02)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(task, range(1, 9)).get(60) == [30.0 * n for n in range(1, 9)]
    thread.join()
    """
    run_script(_warning_of_the_thread(textwrap.dedent(body)), tmp_path)


# ---- the gate itself


def fork_and_wait() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_threads_that_are_inside() -> None:
    entered, leave, order = threading.Event(), threading.Event(), list[str]()

    def run() -> None:
        with Inside(), Inside():
            entered.set()
            leave.wait(10)
            order.append("out")

    def let_go() -> None:
        time.sleep(0.05)
        order.append("let go")
        leave.set()

    threads = [threading.Thread(target=run), threading.Thread(target=let_go)]
    threads[0].start()
    entered.wait()
    threads[1].start()
    assert fork_and_wait() == 0
    order.append("forked")
    for thread in threads:
        thread.join()
    assert order == ["let go", "out", "forked"]


def test_a_thread_does_not_wait_for_itself() -> None:
    with Inside():
        start = time.monotonic()
        assert fork_and_wait() == 0
        assert time.monotonic() - start < forks.LONGEST_WAIT_SECONDS / 2
        assert inside(lambda: "still in")() == "still in"
    assert threading.get_ident() not in forks._inside


def test_errors_lead_outside() -> None:
    with pytest.raises(ZeroDivisionError):
        inside(lambda: 1 // 0)()
    assert threading.get_ident() not in forks._inside
