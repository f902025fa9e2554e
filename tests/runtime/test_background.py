"""Work beside the caller: done when `settle` returns, before a fork, and never in the way."""

from __future__ import annotations

import os
import threading
import time

import pytest

from tcsym.runtime import background
from tcsym.runtime.background import beside, settle


def test_settle_waits() -> None:
    done: list[int] = []
    for k in range(4):
        beside(lambda k=k: (time.sleep(0.02), done.append(k)))  # type: ignore[misc]
    settle()
    assert sorted(done) == [0, 1, 2, 3]
    assert not background._threads


def test_caller_goes_on() -> None:
    go = threading.Event()
    beside(go.wait)
    go.set()
    settle()


def test_errors_are_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    beside(lambda: 1 // 0)
    settle()
    assert capfd.readouterr() == ("", "")


def test_work_may_settle_and_begin_more() -> None:
    done: list[int] = []
    beside(lambda: (settle(), beside(lambda: done.append(1))))
    settle()
    settle()
    assert done == [1]


def test_fork_waits() -> None:
    done: list[int] = []
    beside(lambda: (time.sleep(0.05), done.append(1)))
    child = os.fork()
    if child == 0:
        os._exit(0 if done == [1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_threads_the_work_is_left_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    beside(lambda: done.append(1))
    settle()
    assert not done
    assert not background._threads
