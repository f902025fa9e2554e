"""Our own binding of LLVM: llvmlite's declarations, its results, and nothing of llvmlite loaded."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import llvmlite.binding as llvmlite
import pytest

from tcsym.llvm import LONG, PASSES, QUICK, Machine, Module, host, library_path, version

LIGHT = """
import sys
from tcsym.llvm import Machine, Module
assert Module("define void @f() { ret void }").emitted(Machine("x86-64"))
for name in ("llvmlite", "importlib.resources", "zipfile", "tempfile", "urllib.parse"):
    assert name not in sys.modules, name
"""
VALUES = (ctypes.c_bool, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t)
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


def kind(declared: object) -> object:
    """A C type as far as calls depend on it: pointers to anything are one."""
    if declared is None or declared in VALUES:
        return declared
    return "pointer"


@pytest.mark.parametrize("name", sorted(QUICK | LONG))
def test_functions_have_the_types_that_llvmlite_says(name: str) -> None:
    function = getattr(llvmlite.ffi.lib, f"LLVMPY_{name}")
    result, arguments = (QUICK | LONG)[name]
    said = function.restype, function.argtypes
    if said[1] is None:  # llvmlite declares none for some
        assert not arguments or name in ("DisposeString", "DisposeMemoryBuffer"), name
    else:
        assert [kind(a) for a in said[1]] == [kind(a) for a in arguments]
    if said[0] is not ctypes.c_int:  # what ctypes takes where nothing is said
        assert kind(said[0]) == kind(result)
    else:
        assert result in (None, ctypes.c_int)


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
