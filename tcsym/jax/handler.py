# SPDX-License-Identifier: Apache-2.0
"""Kernels -> what XLA's foreign functions run: their artifacts, behind one way in, in C.

XLA has one target, `tcsym`. Its calls name the kernel by a digest of what it was defined from:
programs that JAX keeps or exports hold no addresses.
"""

from __future__ import annotations

import ctypes
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import jax
from msgspec import Struct

from tcsym.artifact.errors import CODES
from tcsym.artifact.tools import compiler, ran
from tcsym.operators.called import Called, operator_name
from tcsym.process.threads import get_num_threads

TARGET = "tcsym"


class _Kernel(ctypes.Structure):
    """`Kernel` of handler.c."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("run", ctypes.c_void_p),
        ("error", ctypes.c_void_p),
        *((n, ctypes.c_int) for n in ("inputs", "outputs", "given")),
        ("next", ctypes.c_void_p),
    ]


class _Registered(Struct, frozen=True):
    """All of it stays as long as XLA may call it: for ever."""

    kernel: Called
    set_threads: Any
    library: ctypes.CDLL
    entry: _Kernel


_registered: dict[str, _Registered] = {}
_handler: list[ctypes.CDLL] = []  # at most one
_lock = Lock()


def register(*kernels: Called) -> None:
    """Compile kernels that programs call which JAX did not trace in this process, such as those
    that `jax.export.deserialize` loads. What is traced here does it by itself.

    Calls use as many threads as `tcsym.get_num_threads()` says now. Errors: TargetError without a C
    compiler, OptionError for a kernel of another target.
    """
    for kernel in kernels:
        registered_name(kernel)


def kernels() -> tuple[Called, ...]:
    """All that programs of this process call, derivatives and batches among them. They pickle, for
    the process that loads an exported program."""
    return tuple([r.kernel for r in _registered.values()])


def registered_name(kernel: Called) -> str:
    """By which the target finds the kernel, now that it is there; equal kernels share one."""
    name = operator_name(kernel)
    with _lock:
        found = _registered.get(name)
        if found is None:
            with TemporaryDirectory() as folder:  # what is loaded stays when its file is gone
                found = _registered[name] = _made(kernel, name, Path(folder))
        found.set_threads(get_num_threads())
    return name


def _made(kernel: Called, name: str, folder: Path) -> _Registered:
    artifact = kernel.export(folder / "artifact")
    if not _handler:
        _handler.append(_made_handler(folder, (artifact / f"{kernel.name}.h").read_text()))
    library = ctypes.CDLL(str(artifact / f"lib{kernel.name}.so"))
    run, error = (
        ctypes.cast(library[f"{kernel.name}_{end}"], ctypes.c_void_p)
        for end in ("tensors", "error")
    )
    p = kernel.program
    numbers = len(p.inputs), len(p.outputs), len(p.free_sizes)
    entry = _Kernel(name.encode(), run, error, *numbers)
    _handler[0].tcsym_add(ctypes.byref(entry))
    return _Registered(kernel, library[f"{kernel.name}_set_threads"], library, entry)


def _made_handler(folder: Path, header: str) -> ctypes.CDLL:
    """header: of an artifact, which says what a tensor is."""
    codes = ", ".join(f"ERROR_{k.upper()} = {v}" for k, v in CODES.items())
    own = files("tcsym.jax").joinpath("handler.c").read_text()
    source, made = folder / "handler.c", folder / "handler.so"
    source.write_text(f"{header}\nenum {{ {codes} }};\n{own}")
    flags = ["-O2", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden"]
    ran([compiler(), *flags, f"-I{jax.ffi.include_dir()}", "-o", str(made), str(source)])
    library = ctypes.CDLL(str(made))
    capsule = jax.ffi.pycapsule(library.tcsym_handler)
    jax.ffi.register_ffi_target(TARGET, capsule, platform="cpu")
    return library
