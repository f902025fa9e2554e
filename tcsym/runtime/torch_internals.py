# SPDX-License-Identifier: Apache-2.0
"""All that tcsym asks of torch by names which are not for its users: what a thread is doing.

Each has its reason. A torch without one of them counts as one that is always at something: calls
then go through the kernel's operator, where torch's dispatcher decides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.autograd import forward_ad

_C: Any = torch._C

# How many modes of `__torch_dispatch__` are in force; a class may ask only when it is called.
_mode_count: Any = getattr(_C, "_len_torch_dispatch_stack", None)
# `torch.jit.is_tracing` is this, behind a Python function that native entries would enter.
_is_tracing: Any = getattr(_C, "_is_tracing", torch.jit.is_tracing)
# Transforms of torch.func at work, innermost last, or None: a kernel must know whether it is to
# batch a call or to differentiate it, as operators have no rules for both at once.
_stack: Any = getattr(getattr(_C, "_functorch", None), "get_interpreter_stack", None)
_KNOWS = None not in (_mode_count, _stack) and hasattr(forward_ad, "_current_level")

# The documentation says to use it in `__torch_function__`; there is no other name. A subclass may
# change what its attributes say, and a kernel needs those of the memory.
plain_attributes: Callable[[], AbstractContextManager[Any]] = getattr(
    _C, "DisableTorchFunctionSubclass", nullcontext
)


def is_watched() -> bool:
    """torch traces, transforms or watches operators in this thread now, or moves along tangents."""
    return not _KNOWS or bool(
        forward_ad._current_level >= 0 or _stack() or _mode_count() or _is_tracing()
    )


def has_dual_level() -> bool:
    """Forward differentiation is at work."""
    return _KNOWS and forward_ad._current_level >= 0


def native_watch() -> tuple[Callable[[], Any], ...] | None:
    """What native entries ask before they read a tensor, beside the level of forward
    differentiation: nothing is to be done there unless all answers are false. None: do not ask."""
    return (_is_tracing, _mode_count) if _KNOWS else None


def transforms() -> list[str]:
    """Of torch.func, innermost last: Vmap, Grad, Jvp, Functionalize."""
    return [level.key().name for level in _stack() or ()] if _KNOWS else []


def modes() -> list[Any]:
    """Those of `__torch_dispatch__` in force; their names are for messages."""
    found = getattr(torch.utils._python_dispatch, "_get_current_dispatch_mode_stack", list)
    return list(found())


def require(holds: Any, text: Callable[[], str] | None = None) -> None:
    """`torch._check`, which its documentation recommends in spite of its name: the condition may be
    of symbolic sizes, and becomes an assumption of the graph."""
    if text is None:  # which torch.export reads in no other way
        torch._check(holds)
    else:
        torch._check(holds, text)


def is_surely(holds: Any) -> bool:
    """True if the condition holds, which may be of symbols of torch; False if nobody can know: what
    torch's own messages recommend, in a module that is loaded where there are symbols."""
    symbols = sys.modules.get("torch.fx.experimental.symbolic_shapes")
    return bool(getattr(symbols, "guard_or_false", bool)(holds))
