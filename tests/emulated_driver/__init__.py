# SPDX-License-Identifier: Apache-2.0
"""The emulated driver, built in the session by the C compiler: what runs CUDA kernels without CUDA.

`emulation()` makes this process find it as libcuda.so.1, before that is looked for. Of each kernel
that the CUDA back end makes, `emulated_kernels` has the twin's code of the same regions made, too,
and announces it to the driver, which runs that when the region is launched.
"""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from functools import lru_cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

import pytest

from tcsym.backend import BACKENDS, Cuda
from tcsym.codegen.emit import emit
from tcsym.codegen.object_code import object_code
from tcsym.codegen.parts import PartialCode
from tcsym.ir.loops import Kernel
from tcsym.runtime.kernel_code import _resolve
from tcsym.runtime.loader import load_archive
from tcsym.runtime.native import HAS_ENTRIES, native
from tcsym.target.cuda import twin_target
from tcsym.target.target import Target

HERE = Path(__file__).resolve().parent
_STUB = 34  # CUDA_ERROR_STUB_LIBRARY
# Of the struct `seen` in driver.c.
FIELDS = (
    *("launches", "allocations", "frees", "waits", "modules", "memsets", "orders", "depth"),
    *("stream", "shared_bytes", "blocks", "threads", "device", "allowed", "together"),
    *("graphs", "instances", "updates", "drops", "copies"),
    *("capability", "fail_launch", "fail_capture", "is_noop", "devices"),
)


class Driver:
    """What it has seen, and what it is told to do, by the names of `FIELDS`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.emulated.restype = ctypes.POINTER(ctypes.c_int64)
        library.emulated_grid.argtypes = [ctypes.c_void_p]
        library.emulated_module.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
        library.emulated_grid(native.simt_grid)
        self.__dict__["_library"] = library
        self.__dict__["_seen"] = library.emulated()

    def __getattr__(self, name: str) -> int:
        return int(self._seen[FIELDS.index(name)])

    def __setattr__(self, name: str, value: int) -> None:
        self._seen[FIELDS.index(name)] = value

    def announce(self, code: bytes, name: str, region: int) -> None:
        """A function of the module that will be loaded from `code`."""
        self._library.emulated_module(code, name.encode(), region)


@lru_cache(None)
def why_not() -> str:
    """Why there can be no emulation in this process; empty if there can."""
    if find_library("cuda"):
        return "this machine has a CUDA driver of its own"
    if not (which("cc") and HAS_ENTRIES):
        return "no C compiler"
    return ""


@lru_cache(None)
def emulation() -> Driver:
    """For the rest of the process."""
    if why_not():
        pytest.skip(why_not())
    weak = "__attribute__((weak)) int {}(void) {{ return {}; }}"
    with tempfile.TemporaryDirectory() as directory:
        rest = Path(directory) / "rest.c"
        rest.write_text("\n".join(weak.format(n, _STUB) for n in _wanted_by_pycuda()))
        objects = [_compiled(source, directory) for source in (HERE / "driver.c", rest)]
        built = f"{directory}/libcuda.so.1"
        _cc("-shared", "-pthread", "-Wl,-soname,libcuda.so.1", *objects, "-o", built)
        return Driver(ctypes.CDLL(built, mode=ctypes.RTLD_GLOBAL))


def _wanted_by_pycuda() -> set[str]:
    """Names that it links with, if it is there."""
    spec = importlib.util.find_spec("pycuda")
    if spec is None or spec.origin is None:
        return set()
    (extension,) = Path(spec.origin).parent.glob("_driver*.so")
    command = ["nm", "-D", "--undefined-only", str(extension)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    names = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}
    return {n for n in names if n[:2] == "cu"}


@contextmanager
def captured(stream: int) -> Iterator[list[Graph]]:
    """What is called inside on the stream goes into a graph, which is in the list afterwards."""
    library, graph, found = emulation()._library, ctypes.c_void_p(), list[Graph]()
    assert not library.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 0)
    try:
        yield found
    finally:
        assert not library.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
        found.append(Graph(library, graph))


class Graph:
    """What was captured, ready to be launched; it is destroyed with the object."""

    def __init__(self, library: Any, graph: ctypes.c_void_p) -> None:
        self._library, self._ready = library, ctypes.c_void_p()
        assert not library.cuGraphInstantiateWithFlags(ctypes.byref(self._ready), graph, 0)
        assert not library.cuGraphDestroy(graph)

    def launch(self, stream: int) -> None:
        from tcsym.runtime.cuda.primary import primary

        with primary(0):
            assert not self._library.cuGraphLaunch(self._ready, ctypes.c_void_p(stream))

    def __del__(self) -> None:
        self._library.cuGraphExecDestroy(self._ready)


@lru_cache(None)
def tensors() -> Any:
    """The module of tensors.c."""
    with tempfile.TemporaryDirectory() as directory:
        source = _compiled(HERE / "tensors.c", directory, f"-I{sysconfig.get_path('include')}")
        built = f"{directory}/tensors.so"
        _cc("-shared", source, "-o", built)
        loader = ExtensionFileLoader("tensors", built)
        spec = importlib.util.spec_from_loader("tensors", loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        return module


def _compiled(source: Path, directory: str, *flags: str) -> str:
    built = f"{directory}/{source.stem}.o"
    _cc("-c", "-fPIC", "-O1", *flags, str(source), "-o", built)
    return built


def _cc(*arguments: str) -> None:
    subprocess.run(["cc", *arguments], check=True)


@pytest.fixture
def emulated() -> Iterator[Driver]:
    """The driver, as it was before the last test."""
    driver = emulation()
    for name in FIELDS:
        setattr(driver, name, {"capability": 80, "devices": 2, "depth": driver.depth}.get(name, 0))
    yield driver
    assert driver.depth == 0, "a context was left current"


class Announcing(PartialCode):
    """Code of a kernel, whose PTX the driver takes for what the twin launches."""

    _kept: ClassVar[list[Any]] = []  # for the rest of the process: a driver keeps its modules

    def __init__(self, kernel: Kernel, target: Target, min_work: int) -> None:
        super().__init__(kernel, target, min_work)
        twin = twin_target()
        text = emit(kernel, twin, min_work).ir_text
        self._twin = load_archive(object_code(text, twin), _resolve)
        self._kept.append(self._twin)

    def add(self, names: Iterable[str], objects: Iterable[bytes]) -> None:
        super().add(names, objects)
        for name in self.device_functions if self.device_code else ():
            emulation().announce(self.device_code, name, self._twin.address(name))


class Emulated(Cuda):
    def begin(self, kernel: Kernel, target: Target, min_work_per_thread: int) -> PartialCode:
        return Announcing(kernel, target, min_work_per_thread)


@pytest.fixture
def cuda(emulated: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The driver, which runs kernels for target `cuda`."""
    monkeypatch.setitem(BACKENDS, "cuda", Emulated())
    monkeypatch.setenv("TCSYM_CACHE", "0")
    native.simt_check(False)  # a twin that was loaded before may have set that grids run twice
    return emulated
