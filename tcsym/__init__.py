"""tcsym: index notation to machine code, one compilation for every size.

    import tcsym as tc
    mm = tc.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
    C = mm(A, B)

Names load on first use, so that importing tcsym imports neither numpy nor LLVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcsym import strategy
    from tcsym.api import define, einsum, einsum_kernel
    from tcsym.errors import (
        AffineError,
        BoundsError,
        CallError,
        ConditionError,
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
    )
    from tcsym.executable import Executable
    from tcsym.kernel import Kernel
    from tcsym.module import Module
    from tcsym.options import Options
    from tcsym.signature import Signature, Spec, TensorType
    from tcsym.sizes import Dim, Sizes
    from tcsym.threads import get_num_threads, set_num_threads
    from tcsym.types import DType

__version__ = "0.1.0"

_ERRORS = (
    "AffineError",
    "BoundsError",
    "CallError",
    "ConditionError",
    "DuplicateError",
    "ImmutableError",
    "InitError",
    "LoopError",
    "OptionError",
    "RangeError",
    "RankError",
    "ReductionError",
    "SizeError",
    "TCError",
    "TCNameError",
    "TCSyntaxError",
    "TCTypeError",
    "TargetError",
)
_HOMES = {
    **dict.fromkeys(("define", "einsum", "einsum_kernel"), "api"),
    **dict.fromkeys(_ERRORS, "errors"),
    **dict.fromkeys(("Signature", "Spec", "TensorType"), "signature"),
    **dict.fromkeys(("Dim", "Sizes"), "sizes"),
    **dict.fromkeys(("get_num_threads", "set_num_threads"), "threads"),
    "DType": "types",
    "Executable": "executable",
    "Kernel": "kernel",
    "Module": "module",
    "Options": "options",
    "strategy": "",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tcsym' has no attribute {name!r}")
    home = _HOMES[name]
    value = getattr(import_module(f"tcsym.{home}"), name) if home else import_module(f"tcsym.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
