# SPDX-License-Identifier: Apache-2.0
"""Lines of long work: when they come, what they say, and where there are none."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import time

import pytest

import tcsym
from tcsym.display import progress
from tcsym.display.progress import AGAIN, Progress
from tcsym.errors import OptionError
from tests.display.terminal import on_terminal


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TCSYM_PROGRESS", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def seen(written: str) -> str:
    """What stands on a terminal in the end, lines written over themselves."""
    shown = ""
    for part in written.split("\r"):
        shown = part + shown[len(part) :]
    return shown.rstrip()


def test_nothing_before_a_second_has_gone() -> None:
    clock, terminal = Clock(), Terminal()
    with Progress("compile mm", clock=clock, stream=terminal) as work:
        work.tell("map")
        work.tick()
        clock.now += 0.99
        work.tick()
        assert terminal.getvalue() == ""
        clock.now += 0.02
        work.tick()
        assert seen(terminal.getvalue()) == "compile mm: 1 s; map"
        clock.now += 2
        work.tell("llvm")
        work.tick()
        assert seen(terminal.getvalue()) == "compile mm: 3 s; llvm"
        clock.now += 0.1
        work.tick()
        assert terminal.getvalue().count("llvm") == 1
    assert seen(terminal.getvalue()) == "" and "\n" not in terminal.getvalue()


def test_short_work_writes_nothing() -> None:
    clock, terminal = Clock(), Terminal()
    with Progress("compile mm", True, clock, terminal) as work:
        clock.now += 0.5
        work.tick()
    assert terminal.getvalue() == ""


def test_a_share_tells_what_is_left() -> None:
    clock = Clock()
    with Progress("tune mm", clock=clock, stream=Terminal()) as work:
        clock.now += 10
        work.tell("3 trials", 0.25)
        assert work.line() == "tune mm: 25 %, 10 s, 30 s left; 3 trials"
        work.tell("", 0.001)
        assert work.line() == "tune mm: 0 %, 10 s"
        work.tell("at the end", 1.0)
        assert work.line() == "tune mm: 100 %, 10 s; at the end"


def test_lines_on_terminals_fit_and_cover_the_last() -> None:
    clock, terminal = Clock(), Terminal()
    with Progress("tune mm", clock=clock, stream=terminal) as work:
        clock.now += 2
        work.tell("x" * 500 + "\n")
        work.tick()
        assert len(seen(terminal.getvalue())) < 100
        clock.now += 0.25
        work.tell("y")
        work.tick()
        assert seen(terminal.getvalue()) == "tune mm: 2 s; y"


def test_pipes_get_nothing_unless_asked() -> None:
    clock, pipe = Clock(), io.StringIO()
    with Progress("tune mm", clock=clock, stream=pipe) as work:
        clock.now += 60
        work.tick()
    assert pipe.getvalue() == ""
    with Progress("tune mm", True, clock, pipe) as work:
        for _ in range(60):
            clock.now += 0.5
            work.tick()
    lines = pipe.getvalue().splitlines()
    assert lines[0] == "tune mm: 1 s" and "\r" not in pipe.getvalue()
    assert len(lines) == 1 + int((30 - 1) / AGAIN[""])


def test_the_variable_and_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument goes before the variable, that before what the stream is."""

    def is_shown(given: bool | None, stream: io.StringIO) -> bool:
        clock = Clock()
        with Progress("tune mm", given, clock, stream) as work:
            clock.now += 2
            work.tick()
            return bool(stream.getvalue())

    assert is_shown(None, Terminal()) and not is_shown(None, io.StringIO())
    assert not is_shown(False, Terminal())
    monkeypatch.setenv("TCSYM_PROGRESS", "0")
    assert not is_shown(None, Terminal()) and is_shown(True, Terminal())
    monkeypatch.setenv("TCSYM_PROGRESS", "1")
    assert is_shown(None, io.StringIO()) and not is_shown(False, io.StringIO())
    monkeypatch.setenv("TCSYM_PROGRESS", "perhaps")
    with pytest.raises(OptionError, match="TCSYM_PROGRESS"):
        is_shown(None, io.StringIO())


def test_dumb_terminals_and_missing_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    clock, terminal = Clock(), Terminal()
    with Progress("tune mm", clock=clock, stream=terminal) as work:
        clock.now += 2
        work.tick()
    assert terminal.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", None)
    with Progress("tune mm", True, clock) as work:
        clock.now += 2
        work.tick()
    closed = Terminal()
    closed.close()
    with Progress("tune mm", True, clock, closed) as work:
        clock.now += 2
        work.tick()


def test_in_a_notebook_the_line_is_written_over_itself() -> None:
    class OutStream(io.StringIO):
        pass

    OutStream.__module__ = "ipykernel.iostream"
    clock, cell = Clock(), OutStream()
    with Progress("compile mm", clock=clock, stream=cell) as work:
        clock.now += 2
        work.tell("a long stage")
        work.tick()
        assert seen(cell.getvalue()) == "compile mm: 2 s; a long stage"
        clock.now += 0.5
        work.tick()
        assert cell.getvalue().count("\r") == 1
        clock.now += 3.5
    assert seen(cell.getvalue()) == "compile mm: 6 s" and "\x1b" not in cell.getvalue()
    with Progress("compile mm", clock=clock, stream=cell):
        pass
    assert seen(cell.getvalue()) == "compile mm: 6 s"


def test_work_inside_is_told_by_the_work_around() -> None:
    clock, terminal = Clock(), Terminal()
    with Progress("export mm", clock=clock, stream=terminal) as work:
        clock.now += 2
        with Progress("compile mm", clock=clock, stream=terminal) as inner:
            assert work.line() == "export mm: 2 s; compile mm"
            inner.tick()
            progress.tell("llvm")
            assert work.line() == "export mm: 2 s; compile mm: llvm"
            work.tell("avx2")
            assert work.line() == "export mm: 2 s; avx2"
        work.tell("")
        assert work.line() == "export mm: 2 s"
    assert terminal.getvalue() == ""
    progress.tell("nobody")


def test_two_threads_share_one_line() -> None:
    clock, terminal = Clock(), Terminal()

    def other() -> None:
        with Progress("compile b", clock=clock, stream=terminal) as work:
            clock.now += 2
            work.tick()

    with Progress("compile a", clock=clock, stream=terminal) as work:
        clock.now += 2
        work.tick()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        work.tick()
    assert "compile b" not in terminal.getvalue() and "compile a" in terminal.getvalue()


def test_errors_take_the_line_away() -> None:
    clock, terminal = Clock(), Terminal()
    with pytest.raises(KeyboardInterrupt), Progress("a", clock=clock, stream=terminal) as work:
        clock.now += 2
        work.tick()
        raise KeyboardInterrupt
    assert seen(terminal.getvalue()) == ""
    with Progress("b", clock=clock, stream=terminal) as work:
        clock.now += 2
        work.tick()
        assert seen(terminal.getvalue()) == "b: 2 s"


def test_no_thread_where_nothing_is_shown() -> None:
    before = threading.active_count()
    with Progress("a", False):
        assert threading.active_count() == before
    with Progress("a", True, stream=Terminal()):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_the_thread_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.02)
    terminal = Terminal()
    with Progress("a", stream=terminal):
        until = time.monotonic() + 30
        while not terminal.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        assert re.fullmatch(r"a: \d s", seen(terminal.getvalue()))


FIRST_CALL = """
import numpy as np, tcsym
from tcsym.display import progress
progress.AFTER = 0.001
text = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) + %s }"
mm = tcsym.define(text, strategy="symbolic")
mm(np.ones((3, 4), "f4"), np.ones((4, 5), "f4"))
"""


def test_a_first_call_on_a_terminal() -> None:
    code = FIRST_CALL % time.time()  # a text that no cache has
    written = on_terminal(code, "stderr")
    assert "compile mm: 0 s" in written and re.search("; (schedule|map|emit|llvm)", written)
    assert seen(written) == ""
    assert on_terminal(FIRST_CALL % time.time(), "stderr", TCSYM_PROGRESS="0") == ""
    ran = [sys.executable, "-c", FIRST_CALL % time.time()]
    assert subprocess.run(ran, capture_output=True, check=True).stderr == b""


def test_lines_of_a_tune(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.0)
    kernel = tcsym.define("def f(float(N) X) -> (Y) { Y(i) = X(i) * 3 }").f
    kernel.tune([{"N": 64}], candidates=2, progress=True)
    assert "tune f: " in capsys.readouterr().err
