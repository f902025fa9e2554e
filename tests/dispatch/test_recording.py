# SPDX-License-Identifier: Apache-2.0
"""Traces: what is noted, warned of, read back."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.kernel import recording
from tcsym.recorded import load
from tcsym.runtime.background import settle

F32 = np.float32
TWO = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def pad(float(N) A) -> (float(P) O) { O(i) = i < N ? A(i) : 0.0 }
"""


def operands(m: int, k: int, n: int) -> tuple[Any, Any]:
    return np.ones((m, k), F32), np.ones((k, n), F32)


def test_calls_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    before = tc.define(TWO)
    before.mm(*operands(1, 1, 1))
    settle()
    with tc.record(path):
        inside = tc.define(TWO)
        for n in (3, 3, 4):
            before.mm(*operands(2, n, 5))
        settle()
        inside.mm(*operands(2, 3, 5))
        inside.pad(np.ones(3, F32), sizes={"P": 4})
        inside.mm.compile((6, 7), (7, 8))(*operands(6, 7, 8))
        with pytest.raises(tc.TCError):
            inside.mm(*operands(2, 3, 4)[:1])
    before.mm(*operands(9, 9, 9))
    found = {r.kernel: r for r in load(path)}
    assert {tuple(c.sizes.items()): c.count for c in found["mm"].calls} == {
        (("M", 2), ("K", 3), ("N", 5)): 3,
        (("M", 2), ("K", 4), ("N", 5)): 1,
        (("M", 6), ("K", 7), ("N", 8)): 1,
    }
    assert [(dict(c.sizes), c.count) for c in found["pad"].calls] == [({"N": 3, "P": 4}, 1)]
    assert found["mm"].source == TWO and found["mm"].program == before.mm.program.canonical
    assert all(c.default_options and c.seconds > 0 for c in found["mm"].calls)
    again = tc.define(found["mm"].source, target=found["mm"].target)[found["mm"].kernel]
    assert (again(*operands(2, 3, 4)) == 3).all()
    assert before.mm._entry is before.mm._inner


def test_two_traces_at_once(tmp_path: Path) -> None:
    kernel = tc.define(TWO).mm
    with tc.record(tmp_path / "a"):
        kernel(*operands(1, 2, 3))
        with tc.record(tmp_path / "b"):
            kernel(*operands(1, 2, 3))
        kernel(*operands(1, 2, 3))
    assert load(tmp_path / "a")[0].calls[0].count == 3
    assert load(tmp_path / "b")[0].calls[0].count == 1


def test_one_warning_for_a_kernel_and_region(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = TWO.replace("mm", "warned")
    with caplog.at_level(logging.WARNING, "tcsym.record"), tc.record(tmp_path / "t"):
        for _ in range(2):
            for n in (3, 4):
                tc.define(text).warned(*operands(2, n, 5))
    told = [r for r in caplog.records if "`warned`" in r.getMessage()]
    assert len(told) <= 1  # equal programs warn once in a process, whatever their names
    for record in told:
        assert record.tcsym["sizes"] == {"M": 2, "K": 3, "N": 5}  # type: ignore[attr-defined]


def test_given_options_are_no_defaults(tmp_path: Path) -> None:
    options = tc.Options(min_work_per_thread=2)
    with tc.record(tmp_path / "t"):
        tc.define(TWO, options=options).mm(*operands(2, 3, 4))
    assert not load(tmp_path / "t")[0].calls[0].default_options


def test_environment_variable(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    script = f"""
import numpy as np, tcsym as tc, os
k = tc.define({TWO!r}).mm
A = np.ones((2, 2), np.float32)
k(A, A)
child = os.fork()
if child == 0:
    k(A, A); k(A, A)
    from tcsym.kernel.recording import _flush_all
    _flush_all()
    os._exit(0)
os.waitpid(child, 0)
k(A, A)
"""
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", script], check=True, env=os.environ | {"TCSYM_RECORD": str(path)}
        )
    (found,) = load(path)
    assert found.calls[0].count == 8


def test_a_damaged_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t"
    with tc.record(path):
        tc.define(TWO).mm(*operands(2, 3, 4))
    whole = path.read_text()
    path.write_text('{"kernel": 3}\nnonsense\n[]\n' + whole + whole[: len(whole) // 3])
    assert load(path)[0].calls[0].count == 1
    assert len([r for r in caplog.records if "not a line of a trace" in r.getMessage()]) == 4
    path.write_text("")
    with pytest.raises(tc.OptionError, match="no recorded call"):
        load(path)
    with pytest.raises(tc.OptionError, match="cannot read"):
        load(tmp_path / "absent")


def test_a_trace_that_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    with tc.record("/proc/no/such/file"):
        assert (tc.define(TWO).mm(*operands(2, 3, 4)) == 3).all()
    assert any("cannot write the trace" in r.getMessage() for r in caplog.records)


def test_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_FLUSH_SECONDS", 0.0)
    path = tmp_path / "t"
    with tc.record(path):
        for _ in range(2):
            tc.define(TWO).mm(*operands(2, 3, 4))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [sorted(line) for line in lines] == [
        ["filename", "kernel", "program", "source", "target"],
        *[["calls", "default_options", "kernel", "program", "seconds", "sizes"]] * 2,
    ]
