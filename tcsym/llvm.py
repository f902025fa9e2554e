"""llvmlite.binding as `llvm`, for all of the package: imported without `importlib.resources`.

llvmlite asks that for the place of its library alone, and with all that it loads (zipfile, urllib,
tempfile) importing it takes a third longer. Who else asks for it meanwhile gets the real one,
through a module that loads it when something but that place is asked for.

llvmlite's functions hold one lock around all of LLVM. Those here, in which nearly all time is
spent, do not: a module in a context of its own shares nothing with what another thread works on.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from ctypes import string_at
from types import ModuleType
from typing import Any

_RESOURCES = "importlib.resources"


class _Directory(str):
    """The place of a package, as far as llvmlite uses it: `/` a file's name."""

    __slots__ = ()

    def __truediv__(self, name: str) -> str:
        return os.path.join(self, name)


class _Resources(ModuleType):
    """`importlib.resources`, of which two functions are enough for llvmlite."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_real(), name)

    @staticmethod
    def files(package: Any) -> Any:
        if package != "llvmlite.binding":
            return _real().files(package)
        return _Directory(os.path.dirname(str(sys.modules[package].__file__)))

    @staticmethod
    def as_file(path: Any) -> AbstractContextManager[Any]:
        return nullcontext(path) if isinstance(path, str) else _real().as_file(path)


def _real() -> Any:
    if isinstance(sys.modules.get(_RESOURCES), _Resources):
        del sys.modules[_RESOURCES]
    return importlib.import_module(_RESOURCES)


def _prepare() -> bool:
    if "llvmlite.binding" in sys.modules or _RESOURCES in sys.modules:
        return False
    stand_in = _Resources(_RESOURCES)
    sys.modules[_RESOURCES] = stand_in
    importlib.resources = stand_in  # stays until the real one is imported, which replaces it
    return True


_prepared = _prepare()
try:
    import llvmlite.binding as llvm
finally:
    if _prepared and isinstance(sys.modules.get(_RESOURCES), _Resources):
        del sys.modules[_RESOURCES]


def parsed(text: str) -> Any:
    """The verified module, in a context of its own. RuntimeError for a mistake in the text."""
    context = llvm.create_context()
    with llvm.ffi.OutputString() as error:
        made = _unlocked("ParseAssembly")(context, text.encode(), error)
        module = llvm.ModuleRef(made, context)
        if error:
            module.close()
            raise RuntimeError(f"LLVM IR parsing error\n{error}")
    module.verify()  # else a mistake of ours would abort the process
    return module


def run_passes(manager: Any, module: Any, passes: Any) -> None:
    """As `manager.run`."""
    _unlocked("RunNewModulePassManager")(manager, module, passes)


def emitted(module: Any, machine: Any) -> bytes:
    """Object code, as `machine.emit_object`."""
    lib = llvm.ffi.lib
    with llvm.ffi.OutputString() as error:
        buffer = _unlocked("TargetMachineEmitToMemory")(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    start, size = lib.LLVMPY_GetBufferStart(buffer), lib.LLVMPY_GetBufferSize(buffer)
    try:
        return string_at(start, size)
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _unlocked(name: str) -> Any:
    function = getattr(llvm.ffi.lib, f"LLVMPY_{name}")
    return getattr(function, "_cfn", function)


__all__ = ["emitted", "llvm", "parsed", "run_passes"]
