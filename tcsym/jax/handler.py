"""A kernel -> the target of XLA's foreign functions that runs it: its artifact and a way in, in C.

XLA finds targets by name, which is a digest of what the kernel was defined from: programs that JAX
keeps on disk hold no addresses.
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


class Handler(Struct, frozen=True):
    """`libraries` stay as long as XLA may call them: for ever."""

    target: str
    set_threads: Any
    libraries: tuple[ctypes.CDLL, ...]


_made: dict[str, Handler] = {}
_lock = Lock()


def handler_of(kernel: Called) -> Handler:
    """Compiled and registered when it is first asked for; equal kernels share one.

    Errors: TargetError without a C compiler, OptionError for a kernel of another target.
    """
    target = f"tcsym_{operator_name(kernel)}"
    with _lock:
        if target not in _made:
            _made[target] = _registered(kernel, target)
        return _made[target]


def _registered(kernel: Called, target: str) -> Handler:
    with TemporaryDirectory() as folder:  # what is loaded stays when its file is gone
        artifact = kernel.export(Path(folder) / "artifact")
        own = artifact / f"lib{kernel.name}.so"
        source, handler = Path(folder) / "handler.c", Path(folder) / "handler.so"
        source.write_text(_names(kernel) + files("tcsym.jax").joinpath("handler.c").read_text())
        include = [f"-I{artifact}", f"-I{jax.ffi.include_dir()}"]
        flags = ["-O2", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden"]
        ran([compiler(), *flags, *include, "-o", str(handler), str(source), str(own)])
        libraries = ctypes.CDLL(str(own)), ctypes.CDLL(str(handler))
    made = Handler(target, libraries[0][f"{kernel.name}_set_threads"], libraries)
    capsule = jax.ffi.pycapsule(libraries[1].tcsym_handler)
    jax.ffi.register_ffi_target(target, capsule, platform="cpu")
    return made


def _names(kernel: Called) -> str:
    """What handler.c needs to know of the kernel."""
    program = kernel.program
    codes = ", ".join(f"ERROR_{k.upper()} = {v}" for k, v in CODES.items())
    return (
        f'#include "{kernel.name}.h"\n'
        "#include <xla/ffi/api/c_api.h>\n"
        f"#define NAME(suffix) {kernel.name}##suffix\n"
        f"enum {{ N_INPUTS = {len(program.inputs)}, N_OUTPUTS = {len(program.outputs)}, "
        f"N_GIVEN = {len(program.free_sizes)} }};\n"
        f"enum {{ {codes} }};\n"
    )
