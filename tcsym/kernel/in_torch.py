# SPDX-License-Identifier: Apache-2.0
"""Calls of kernels where torch is imported: which are its operators' to serve.

Nothing more is loaded before a call has arguments that the kernel's native entry does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel


def _in_graph() -> bool:
    """True if torch.compile reads the call. It knows its own function for that by name, which
    takes the place of this one when there is a call outside of a graph."""
    compiler = getattr(modules["torch"], "compiler", None)  # torch may still be being imported
    if not hasattr(compiler, "is_dynamo_compiling"):
        return False
    if compiler.is_dynamo_compiling():  # type: ignore[union-attr]
        return True
    globals()["in_graph"] = compiler.is_dynamo_compiling  # type: ignore[union-attr]
    return False


in_graph: Callable[[], bool] = _in_graph


def _in_torch(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The result of a call that torch records or transforms; NotImplemented for any other. What
    serves them takes the place of this one at the first such call."""
    torch: Any = modules["torch"]
    kinds = getattr(torch, "Tensor", ()), getattr(getattr(torch, "fx", None), "Proxy", ())
    if not _has_any((*args, *kwargs.values()), kinds):
        return NotImplemented
    if not hasattr(torch.library, "register_vmap"):  # before torch 2.5
        return NotImplemented
    from tcsym.operators.torch.calls import torch_call

    globals()["in_torch"] = torch_call
    return torch_call(kernel, args, kwargs)


in_torch: Callable[..., Any] = _in_torch


def _has_any(values: tuple[Any, ...], kinds: Any) -> bool:
    return any(isinstance(x, kinds) for x in values)
