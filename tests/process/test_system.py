# SPDX-License-Identifier: Apache-2.0
"""Where kernels cannot run: one clear error, and all else works. What is asked of macOS."""

from __future__ import annotations

import pytest

from tests.elsewhere import REFUSING, told

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
SYSTEMS = [("riscv64", "linux"), ("aarch64", "freebsd14"), ("x86_64", "darwin")]


@pytest.mark.parametrize(("machine", "platform"), SYSTEMS)
def test_calls_say_what_is_supported(machine: str, platform: str) -> None:
    done = told(REFUSING + CALLS, machine, platform)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # nor is anything said of caches
    known = "kernels run on Linux with x86-64 or AArch64 processors, or macOS on Apple's"
    assert done.stdout.count(known) == 2
    assert done.stdout.count(f"this is {platform} with {machine}") == 2
    assert "`reference`" in done.stdout


@pytest.mark.parametrize(("machine", "platform"), SYSTEMS)
def test_doctor_says_what_is_supported(machine: str, platform: str) -> None:
    done = told(REFUSING + DOCTOR, machine, platform)
    assert done.returncode == 1, done.stderr
    assert "Linux with x86-64 or AArch64 processors, or macOS on Apple's only" in " ".join(
        done.stdout.split()
    )
    assert "Traceback" not in done.stderr


FOUND = """
from tcsym.process import system, threads
from tcsym.runtime.processor import processor_marks
from tcsym.target.caches import cache_bytes
assert system.runs_code() and system.processors() == "aarch64"
del os.sched_getaffinity
assert threads.available_cores() == 4
assert cache_bytes() == (128 << 10, 3 << 20, 12 << 20)
from tcsym.target.llvm import host
assert {"dotprod", "i8mm", "bf16"} & host()[1] == {"dotprod"}
assert processor_marks() == "Apple M1\t01020304"
FACTS.clear()
cache_bytes.cache_clear()
assert cache_bytes() == (32 << 10, 512 << 10, 32 << 20)
assert threads.available_cores() == os.cpu_count() and processor_marks() == ""
from tcsym.process.helper import _limit_memory
import resource
before = resource.getrlimit(resource.RLIMIT_AS)
_limit_memory(1 << 40)
assert resource.getrlimit(resource.RLIMIT_AS) == before
"""
CODE = """
import re, tcsym
llvmlite.binding.initialize_all_targets()  # LLVM's own is this system's
llvmlite.binding.initialize_all_asmprinters()
from tcsym.ir.compiled import SYMBOL
from tcsym.runtime.loader import defined_names
from tcsym.target.host import Processor
from tcsym.target.names import resolve_target
here = resolve_target("cpu", Processor("apple-m1", frozenset()))
assert (here.cpu, here.machine.name) == ("apple-m1", "neon")
text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
f = tcsym.define(text, target="cpu:neon").f
code = f.explain("asm")
print(len(re.findall(r"\\b[wx]18\\b", code)))
from tcsym.compiler import compile_program
made = compile_program(f.program, here, tcsym.Options(), {}, ("dense",) * 3, ())
assert SYMBOL in defined_names(made.object_code)
from tcsym.artifact.load import load
for run in (lambda: f.export("there"), lambda: load("there")):
    try:
        run()
    except tcsym.TargetError as error:
        print(error)
"""


def test_macos_is_asked_for_processor_cores_and_caches() -> None:
    done = told(FOUND, "arm64", "darwin")
    assert done.returncode == 0, done.stderr


def test_code_for_macos_leaves_its_register_alone() -> None:
    """x18 is the system's there, and anybody's on Linux. Artifacts are refused."""
    done = told(CODE, "arm64", "darwin")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0\n")
    assert done.stdout.count("artifacts are neither made nor loaded on macOS") == 2
    begin, _, _ = CODE.partition("from tcsym.compiler")
    other = told(begin, "aarch64", "linux")
    assert other.returncode == 0 and int(other.stdout) > 0, other.stderr
