# SPDX-License-Identifier: Apache-2.0
"""What a settled call executes of our code, counted by callgrind: the same at every call.

Counted are the kernel, which lies in anonymous memory, and the extension module: the call entry and
the launch. What CPython and numpy do around them depends on their versions. (Whole processes differ
by some instructions from run to run; what more calls add does not.)
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ADD = "def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"
# Scalar code, because valgrind does not execute all vector instructions of newer processors.
SCRIPT = f"""
import os
from itertools import repeat
import numpy as np
import tcsym
from tcsym.runtime.background import settle
kernel = tcsym.define({ADD!r}, strategy="symbolic", target="cpu:novector").add
a = np.ones(0, np.float32)
for _ in range(3):
    kernel(a, a)
    settle()
for calls in (1000, 2000):
    os.getppid()  # what ran since the last one is written
    for _ in repeat(None, calls):
        kernel(a, a)
os.getppid()
"""
MOST = 1000  # 936 of them when this was written


@pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="counts instructions: valgrind is not installed"
)
def test_a_settled_call_executes_the_same_few_instructions_every_time(tmp_path: Path) -> None:
    environment = {**os.environ, "TCSYM_CACHE_DIR": str(tmp_path), "TCSYM_VERIFY": "0"}
    environment |= {"TCSYM_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    plain = [sys.executable, "-c", SCRIPT]
    subprocess.run(plain, env=environment, check=True)  # fills the code cache
    out = tmp_path / "callgrind.out"
    options = ["--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={out}"]
    subprocess.run(["valgrind", *options, *plain], env=environment, check=True, capture_output=True)
    once, twice = (own_instructions(Path(f"{out}.{k}").read_text()) for k in (2, 3))
    each = round((twice - once) / 1000)
    assert abs(twice - once - 1000 * each) < 10  # a dump may cut a block of instructions
    assert 50 < each <= MOST


def own_instructions(profile: str) -> int:
    """Instructions in code of no file and in ours, by callgrind's output (its manual, 7.1)."""
    names: dict[str, str] = {}
    total, is_ours, skips = 0, False, False
    for line in profile.splitlines():
        if line.startswith(("ob=", "cob=")):  # a name is told once, its number then stands for it
            number, _, name = line.partition("=")[2].partition(" ")
            known = names.setdefault(number, name)
            own = known == "???" or Path(known).name.startswith("_native.")
            is_ours = own if line.startswith("ob=") else is_ours
        elif line.startswith("calls="):
            skips = True  # the next line is what the callee took
        elif re.match(r"[+*0-9-]", line):
            total += int(line.split()[1]) if is_ours and not skips else 0
            skips = False
    return total


def test_what_callees_take_is_not_counted() -> None:
    lines = ["ob=(1) ???", "fn=(1) a", "0 7", "calls=2 0", "0 90", "+3 2"]
    lines += ["ob=(2) /lib/x.so", "fn=(2) b", "0 50", "cob=(3) ???", "calls=1 0", "0 5"]
    lines += ["ob=(3)", "fn=(3)", "0 1", "ob=(4) /lib/_native.cpython-311.so", "0 20"]
    assert own_instructions("\n".join(lines)) == 30
