"""The few functions of LLVM that make code, called in the library that llvmlite brings.

llvmlite's own Python modules are not imported: they bind all of LLVM. Quick functions keep Python's
lock, else a thread that calls twenty of them waits for it twenty times; those that take long leave
it alone. Nothing here holds one lock around all of LLVM, as llvmlite does: a module in a context of
its own shares nothing with what another thread works on.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_char_p
from functools import lru_cache
from importlib.machinery import PathFinder
from typing import Any

from tcsym.llvm_functions import LONG, QUICK, require_known

PASSES = {
    "sroa": "module_AddSROAPass",
    "instruction_combine": "module_AddInstCombinePass",
    "simplify_cfg": "module_AddSimplifyCFGPass",
}
_LEVEL = 2
_LOCK = threading.Lock()


@lru_cache(None)
def library_path() -> str:
    """Where llvmlite's library lies. ImportError without llvmlite."""
    spec = PathFinder.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        raise ImportError("llvmlite is not installed")
    names = {"darwin": "libllvmlite.dylib", "win32": "llvmlite.dll"}
    name = names.get(sys.platform, "libllvmlite.so")
    return os.path.join(os.path.dirname(spec.origin), "binding", name)


class _Library:
    """Functions of LLVM by llvmlite's names for them, bound when first called."""

    def __init__(self) -> None:
        path = library_path()
        self._long, self._quick = ctypes.CDLL(path), ctypes.PyDLL(path)

    def __getattr__(self, name: str) -> Any:
        from_library, table = (self._quick, QUICK) if name in QUICK else (self._long, LONG)
        function = getattr(from_library, f"LLVMPY_{name}")
        function.restype, function.argtypes = table[name]
        self.__dict__[name] = function
        return function


@lru_cache(None)
def _library() -> _Library:
    require_known(library_path())
    return _Library()


def version() -> tuple[int, ...]:
    """LLVM's."""
    packed = _library().GetVersionInfo()
    return tuple((packed >> 8 * k) & 0xFF for k in (2, 1, 0))


def host() -> tuple[str, frozenset[str]]:
    """LLVM's name of this processor, and of the features it has."""
    lib = _library()
    name, features = _written(lib.GetHostCPUName), _written(lib.GetHostCPUFeatures)
    return name, frozenset(f[1:] for f in features.split(",") if f.startswith("+"))


def set_option(option: str) -> None:
    """Of LLVM's command line, for all of the process."""
    _library().SetCommandLine(b"tcsym", option.encode())


@lru_cache(None)
def _initialise() -> None:
    _library().InitializeNativeTarget()
    _library().InitializeNativeAsmPrinter()


class Machine:
    """What code is made for: position-independent, of the small code model. For one thread."""

    def __init__(self, cpu: str, features: str = "", triple: str | None = None) -> None:
        lib = _library()
        with _LOCK:
            _initialise()
        name = (triple or _written(lib.GetDefaultTargetTriple)).encode()
        with _text_out() as error:
            target = lib.GetTargetFromTriple(name, error)
            if not target:
                raise RuntimeError(_text(error))
        given = (cpu.encode(), features.encode(), _LEVEL, b"pic", b"small", 0, 0, b"")
        self.reference = lib.CreateTargetMachine(target, name, *given)
        if not self.reference:
            raise RuntimeError(f"LLVM makes no code for `{cpu}`")
        self.triple = _written(lib.GetTargetMachineTriple, self.reference)
        data = lib.CreateTargetMachineData(self.reference)
        self.data_layout = _written(lib.CopyStringRepOfTargetData, data)
        lib.DisposeTargetData(data)

    def __del__(self) -> None:
        if getattr(self, "reference", None):
            _library().DisposeTargetMachine(self.reference)


class Module:
    """The verified module of a text, in a context of its own. For one thread.

    RuntimeError for a mistake in the text.
    """

    def __init__(self, text: str) -> None:
        lib = _library()
        self._context = lib.ContextCreate()
        with _text_out() as error:
            self.reference = lib.ParseAssembly(self._context, text.encode(), error)
            if error.contents:
                raise RuntimeError(f"LLVM IR parsing error\n{_text(error)}")
        with _text_out() as error:  # else a mistake of ours would abort the process
            if lib.VerifyModule(self.reference, error):
                raise RuntimeError(_text(error))

    def __del__(self) -> None:
        if getattr(self, "reference", None):
            _library().DisposeModule(self.reference)
        if getattr(self, "_context", None):
            _library().ContextDispose(self._context)

    def __str__(self) -> str:
        return _written(_library().PrintModuleToString, self.reference)

    def target(self, machine: Machine) -> None:
        """From now on the module is one for `machine`."""
        lib = _library()
        lib.SetTarget(self.reference, machine.triple.encode())
        lib.SetDataLayout(self.reference, machine.data_layout.encode())

    def run(self, passes: Sequence[str], machine: Machine) -> None:
        """These of `PASSES`, in order."""
        lib = _library()

        def manager(_: int) -> int:
            made: int = lib.CreateNewModulePassManager()
            for name in passes:
                getattr(lib, PASSES[name])(made)
            return made

        self._run(manager, machine, vectorise=False)

    def optimise(self, machine: Machine, vectorise: bool) -> None:
        """LLVM's default passes of level 2."""
        lib = _library()
        self._run(
            lambda made: lib.buildPerModuleDefaultPipeline(made, _LEVEL, 0), machine, vectorise
        )

    def _run(self, manager_of: Any, machine: Machine, vectorise: bool) -> None:
        lib = _library()
        options = lib.CreatePipelineTuningOptions()
        lib.PTOSetLoopVectorization(options, vectorise)
        lib.PTOSetSLPVectorization(options, vectorise)
        builder = lib.CreatePassBuilder(machine.reference, options)
        manager = manager_of(builder)
        lib.RunNewModulePassManager(manager, self.reference, builder)
        lib.DisposeNewModulePassManger(manager)
        lib.DisposePassBuilder(builder)
        lib.DisposePipelineTuningOptions(options)

    def emitted(self, machine: Machine, as_object: bool = True) -> bytes:
        """Object code, or assembly."""
        lib = _library()
        with _text_out() as error:
            given = machine.reference, self.reference, int(as_object), error
            buffer = lib.TargetMachineEmitToMemory(*given)
            if not buffer:
                raise RuntimeError(_text(error))
        try:
            return ctypes.string_at(lib.GetBufferStart(buffer), lib.GetBufferSize(buffer))
        finally:
            lib.DisposeMemoryBuffer(buffer)


@contextmanager
def _text_out() -> Iterator[Any]:
    """Where LLVM may write a text, which is then freed."""
    at = ctypes.pointer(c_char_p())
    try:
        yield at
    finally:
        if at.contents:
            _library().DisposeString(at.contents)


def _text(at: Any) -> str:
    return (at.contents.value or b"").decode("latin-1")


def _written(function: Any, *arguments: Any) -> str:
    with _text_out() as at:
        function(*arguments, at)
        return _text(at)
