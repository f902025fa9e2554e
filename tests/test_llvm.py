"""Our own binding of LLVM: llvmlite's declarations, its results, and nothing of llvmlite loaded."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvmlite
import pytest
from llvmlite import __version__ as version_text

import tcsym
from tcsym.llvm import PASSES, Machine, Module, host, library_path, version
from tcsym.llvm_functions import (
    NEWEST,
    OLDEST,
    QUICK,
    _version,
    differing_functions,
    require_known,
)

LIGHT = """
import sys
from tcsym.llvm import Machine, Module
assert Module("define void @f() { ret void }").emitted(Machine("x86-64"))
for name in ("llvmlite", "importlib.resources", "zipfile", "tempfile", "urllib.parse"):
    assert name not in sys.modules, name
"""
WITH_CALL = """
declare i64 @g(i64)
define i64 @f(i64 %x) {
  %at = alloca i64
  store i64 %x, ptr %at
  %y = load i64, ptr %at
  %z = call i64 @g(i64 %y)
  ret i64 %z
}
"""


def test_nothing_of_llvmlite_is_loaded() -> None:
    subprocess.run([sys.executable, "-c", LIGHT], check=True)


def test_functions_have_the_types_that_llvmlite_says() -> None:
    assert differing_functions() == ()


def library_of(tmp_path: Path, version: str) -> str:
    """Where a library of that version would lie."""
    (tmp_path / "_version.py").write_text(f"version_version = '{version}'\n")
    return str(tmp_path / "binding" / "libllvmlite.so")


def test_versions_that_nobody_compared_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = ".".join(map(str, NEWEST))
    newer = library_of(tmp_path, f"{NEWEST[0]}.{NEWEST[1] + 1}.0")
    require_known(newer)  # as its functions are the same
    monkeypatch.setitem(QUICK, "ContextCreate", (ctypes.c_int, ()))
    with pytest.raises(tcsym.TargetError, match=r"`ContextCreate`(?s:.)*install llvmlite"):
        require_known(newer)
    require_known(library_of(tmp_path, f"{newest}.1"))
    monkeypatch.setitem(QUICK, "NoSuchThing", (None, ()))
    assert differing_functions() == ("ContextCreate", "NoSuchThing")


def test_the_version_is_read_without_an_import() -> None:
    installed = tuple(map(int, version_text.split(".")[:2]))
    assert _version(library_path()) == installed >= OLDEST


def test_it_is_llvmlites_library_and_answers_alike() -> None:
    assert llvmlite.ffi.lib._name == library_path()
    assert version() == llvmlite.llvm_version_info
    name, features = host()
    assert name == llvmlite.get_host_cpu_name()
    assert features == {n for n, on in llvmlite.get_host_cpu_features().items() if on}


def test_passes_run_and_code_is_that_of_llvmlite() -> None:
    machine, module = Machine("x86-64", triple="x86_64-unknown-linux-gnu"), Module(WITH_CALL)
    assert "alloca" in str(module)
    module.run(tuple(PASSES), machine)
    assert "alloca" not in str(module)
    target = llvmlite.Target.from_triple("x86_64-unknown-linux-gnu")
    theirs = target.create_target_machine(cpu="x86-64", opt=2, reloc="pic", codemodel="small")
    assert module.emitted(machine) == theirs.emit_object(llvmlite.parse_assembly(str(module)))
    assert b"call" in module.emitted(machine, as_object=False)


def test_mistakes_in_a_text_are_told() -> None:
    with pytest.raises(RuntimeError, match="parsing error"):
        Module("define i32 @f( {")
    with pytest.raises(RuntimeError, match="PHI"):
        Module("define i32 @f() {\n  br label %b\nb:\n  %x = phi i32\n  ret i32 %x\n}")
    with pytest.raises(RuntimeError, match="triple"):
        Machine("x86-64", triple="no-such-triple")
