# SPDX-License-Identifier: Apache-2.0
"""Where kernels cannot run: one clear error, and all else works. Other systems are made up here."""

from __future__ import annotations

import subprocess
import sys

import pytest

# numpy and LLVM are those of this system: what is asked is said to be another.
ELSEWHERE = """
import os, sys
import numpy as np
import llvmlite.binding  # reads the name of the system
given = os.uname()
given = os.uname_result((*given[:4], {machine!r}))
os.uname = lambda: given
sys.platform = {platform!r}
from tcsym.runtime import loader, memory
def refuse(*_, **__):
    raise AssertionError("machine code on another system")
loader.load_object = loader.load_archive = refuse
memory.Memory.__init__ = refuse
"""
CALLS = """
import tcsym
m = tcsym.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
a, b = np.ones((900, 6), np.float32), np.ones((6, 700), np.float32)
try:
    m(a, b)
except tcsym.TargetError as error:
    print(error)
try:
    m.mm.compile(a, b)
except tcsym.TargetError as error:
    print(error)
assert (m.mm.reference(a, b) == 6).all()
assert m.mm.output_shapes(a, b) == {"C": (900, 700)}
assert "M" in m.mm.explain("program")
"""
DOCTOR = "from tcsym.cli.main import main; main(['doctor'])"
SYSTEMS = [("riscv64", "linux"), ("arm64", "darwin"), ("x86_64", "darwin")]


def told(code: str, machine: str, platform: str) -> subprocess.CompletedProcess[str]:
    script = ELSEWHERE.format(machine=machine, platform=platform) + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


@pytest.mark.parametrize(("machine", "platform"), SYSTEMS)
def test_calls_say_what_is_supported(machine: str, platform: str) -> None:
    done = told(CALLS, machine, platform)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # nor is anything said of caches
    assert done.stdout.count("kernels run on linux with x86_64 or aarch64 processors") == 2
    assert done.stdout.count(f"this is {platform} with {machine}") == 2
    assert "`reference`" in done.stdout


@pytest.mark.parametrize(("machine", "platform"), SYSTEMS)
def test_doctor_says_what_is_supported(machine: str, platform: str) -> None:
    done = told(DOCTOR, machine, platform)
    assert done.returncode == 1, done.stderr
    assert "Linux with x86-64 or AArch64 processors only" in " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr
