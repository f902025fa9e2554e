# SPDX-License-Identifier: Apache-2.0
"""Processes that work for this one: nothing of the current folder runs in them."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tcsym
from tcsym.process.helper import Helper, HelperError, HelperTimeout, request
from tcsym.process.recursion import OWN_LIMIT

PACKAGE = Path(tcsym.__file__).parent

# By file; the first starts Python, the others compilers, and `doctor` prints.
STARTS = {
    "process/helper.py": {"subprocess.Popen", "sys.executable"},
    "artifact/tools.py": {"subprocess.run"},
    "codegen/device/ptxas.py": {"subprocess.run"},
    "cli/doctor.py": {"sys.executable"},
}
MODULES = ("multiprocessing", "pty", "concurrent.futures.process")
OF_OS = ("system", "popen", "exec", "spawn", "posix_spawn", "fork")


def ways_of(tree: ast.Module) -> Iterator[str]:
    """What starts processes, as far as the text of a module names it."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name("subprocess"), name)):
                yield f"subprocess.{name}"
            case ast.Attribute(ast.Name("sys"), "executable"):
                yield "sys.executable"
            case ast.Attribute(ast.Name("os"), name) if name.startswith(OF_OS):
                yield f"os.{name}"
            case ast.Import(names):
                yield from (x.name for x in names if x.name.startswith(MODULES))
            case ast.ImportFrom(str(module), names):
                whole = [f"{module}.{x.name}" for x in names]
                yield from (x for x in whole if x.startswith((*MODULES, "subprocess")))
                yield from (x for x in whole if x == "concurrent.futures.ProcessPoolExecutor")
                yield from (x for x in whole if x.startswith(tuple(f"os.{n}" for n in OF_OS)))
            case _:
                pass


def test_every_process_is_started_where_this_file_knows() -> None:
    found = {
        str(path.relative_to(PACKAGE)): ways
        for path in PACKAGE.rglob("*.py")
        if (ways := set(ways_of(ast.parse(path.read_text()))))
    }
    assert found == STARTS


SCRIPT = """
import os, sys
from pathlib import Path
import numpy as np
import tcsym as tc
import tcsym.dispatch.compile_queue, tcsym.tuning.tune, tcsym.tuning.workers, tcsym.artifact.build

def plant(name):
    Path(name).write_text("open('ran', 'a').write(f'{__name__}\\\\n')")

for name in {n.partition(".")[0] for n in sys.modules} - {"__main__"}:
    plant(f"{name}.py")
for name in ("sitecustomize", "usercustomize"):
    plant(f"{name}.py")
for name in ("cc", "as", "ld", "objcopy", "ptxas"):
    Path(name).write_text("#!/bin/sh\\necho $0 >> ran\\nexit 1\\n")
    Path(name).chmod(0o755)
sys.path[:0] = ["", ".", os.getcwd()]  # as of sessions, of modules that are run, and their sum

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
A, B = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32)
"""

COMPILATION = """
from tcsym.dispatch.compile_queue import compilations
kernel = tc.define(MM, strategy=tc.strategy.Specialize(background=1.0)).mm
for n in range(1, 3):
    kernel(A, np.ones((5, n), np.float32))
compilations.settle()
assert compilations._helper is not None
assert kernel.stats.compilations > 1, kernel.stats
"""

TUNING = """
report = tc.define(MM).mm.tune([{"M": 4, "K": 5, "N": 6}], candidates=2)
assert report.trials and not report.failures, report
"""

ARTIFACT = """
tc.define(MM, target="cpu:novector").mm.export("made")
assert (tc.load("made")(A, B) == 5).all()
"""


@pytest.mark.parametrize(
    "work", [COMPILATION, TUNING, ARTIFACT], ids=("compilation", "tuning", "artifact")
)
def test_nothing_of_the_current_folder_runs(work: str, tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    (script := tmp_path / "script.py").write_text(SCRIPT + textwrap.dedent(work))
    own = {"TCSYM_CACHE_DIR": str(tmp_path / "cache"), "TCSYM_VERIFY": "0"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=here,
        capture_output=True,
        text=True,
        env=os.environ | own,
    )
    assert done.returncode == 0, done.stderr
    ran = here / "ran"
    assert not ran.exists(), ran.read_text()


def test_our_own_folder_is_found_where_it_is_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(PACKAGE.parent)
    helper = Helper("tcsym.tuning.evaluate")
    helper.send(request(os.getpid))
    assert helper.answer(60.0) == (True, helper.process.pid)
    helper.kill()


def test_what_becomes_of_requests() -> None:
    helper = Helper("json")
    helper.send(request(divmod, 7, 2) + request(divmod, 7, 0) + request(memoryview, b""))
    assert helper.answer(60.0) == (True, (3, 1))
    for kind in (ZeroDivisionError, RuntimeError):
        is_good, error = helper.answer(60.0)
        assert not is_good and isinstance(error, kind)
    helper.send(request(print, "what prints reaches no answer"))
    assert helper.answer(60.0) == (True, None)
    helper.send(request(time.sleep, 0.5))
    with pytest.raises(HelperTimeout, match=r"more than 0\.01 s"):
        helper.answer(0.01)
    assert helper.answer(60.0) == (True, None)  # it is there later
    helper.send(request(os._exit, 3))
    with pytest.raises(HelperError, match="ended with exit code 3"):
        helper.answer(60.0)
    helper.kill()


def test_waiting_is_interrupted_and_goes_on() -> None:
    def look() -> None:
        raise InterruptedError

    helper = Helper("json", niceness=5)
    helper.send(request(os.nice, 0) + request(sys.getrecursionlimit))
    with pytest.raises(InterruptedError):
        helper.answer(60.0, look)
    assert helper.answer(60.0) == (True, os.nice(0) + 5)
    assert helper.answer(60.0) == (True, OWN_LIMIT)
    helper.kill()
    assert helper.process.returncode == -signal.SIGKILL


def test_a_helper_ends_with_its_input() -> None:
    helper = Helper("json")
    helper.begin()
    assert helper.process.stdin is not None
    helper.process.stdin.close()
    assert helper.process.wait(60.0) == 0
    helper.kill()
