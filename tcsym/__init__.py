# SPDX-License-Identifier: Apache-2.0
"""tcsym: index notation to machine code, one compilation for every size.

    import tcsym as tc
    mm = tc.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
    C = mm(A, B)

Names load on first use, so that importing tcsym imports neither numpy nor LLVM.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tcsym.process.forks import Inside

if TYPE_CHECKING:
    from tcsym import dask as dask
    from tcsym import jax as jax
    from tcsym import library, recorded, strategy
    from tcsym import torch as torch
    from tcsym import xarray as xarray
    from tcsym.api import derivative, einsum, einsum_kernel
    from tcsym.artifact.load import load
    from tcsym.errors import (
        AffineError,
        BoundsError,
        CallError,
        ConditionError,
        DerivativeError,
        DeviceError,
        DuplicateError,
        ImmutableError,
        InitError,
        LoopError,
        OptionError,
        RangeError,
        RankError,
        ReductionError,
        SizeError,
        TargetError,
        TCError,
        TCNameError,
        TCSyntaxError,
        TCTypeError,
        TCWarning,
    )
    from tcsym.kernel.definition import define
    from tcsym.kernel.executable import Executable
    from tcsym.kernel.kernel import Kernel
    from tcsym.kernel.module import Module
    from tcsym.kernel.recording import record
    from tcsym.kernel.signature import Signature, Spec, TensorType
    from tcsym.kernel.tracing import trace
    from tcsym.options import Options
    from tcsym.process.threads import get_num_threads, set_num_threads
    from tcsym.runtime.blocks import get_result_memory, set_result_memory
    from tcsym.runtime.device import synchronize
    from tcsym.sizes.dims import Dim, Sizes
    from tcsym.types import DType

__version__ = "0.1.0"

__all__ = [
    "AffineError",
    "BoundsError",
    "CallError",
    "ConditionError",
    "DType",
    "DerivativeError",
    "DeviceError",
    "Dim",
    "DuplicateError",
    "Executable",
    "ImmutableError",
    "InitError",
    "Kernel",
    "LoopError",
    "Module",
    "OptionError",
    "Options",
    "RangeError",
    "RankError",
    "ReductionError",
    "Signature",
    "SizeError",
    "Sizes",
    "Spec",
    "TCError",
    "TCNameError",
    "TCSyntaxError",
    "TCTypeError",
    "TCWarning",
    "TargetError",
    "TensorType",
    "__version__",
    "define",
    "derivative",
    "einsum",
    "einsum_kernel",
    "get_num_threads",
    "get_result_memory",
    "library",
    "load",
    "record",
    "recorded",
    "set_num_threads",
    "set_result_memory",
    "strategy",
    "synchronize",
    "trace",
]

_HOMES = {
    "api": ("derivative", "einsum", "einsum_kernel"),
    "artifact.load": ("load",),
    "kernel.definition": ("define",),
    "kernel.executable": ("Executable",),
    "kernel.kernel": ("Kernel",),
    "kernel.module": ("Module",),
    "options": ("Options",),
    "kernel.recording": ("record",),
    "kernel.tracing": ("trace",),
    "kernel.signature": ("Signature", "Spec", "TensorType"),
    "sizes.dims": ("Dim", "Sizes"),
    "runtime.blocks": ("get_result_memory", "set_result_memory"),
    "runtime.device": ("synchronize",),
    "process.threads": ("get_num_threads", "set_num_threads"),
    "types": ("DType",),
}
_MODULES = ("dask", "jax", "library", "recorded", "strategy", "torch", "xarray")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # to type checkers, names that are not listed are errors

    def __getattr__(name: str) -> Any:
        with Inside():
            if name in _MODULES:
                return import_module(f"tcsym.{name}")
            if name not in __all__:
                raise AttributeError(f"module 'tcsym' has no attribute {name!r}")
            value = getattr(import_module(f"tcsym.{_HOME_OF.get(name, 'errors')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


if os.environ.get("TCSYM_RECORD"):
    import_module("tcsym.kernel.recording")  # begins to record
