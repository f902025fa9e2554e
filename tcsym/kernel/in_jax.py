# SPDX-License-Identifier: Apache-2.0
"""Calls of kernels where JAX is imported: those of arrays that it traces are its operators'."""

from __future__ import annotations

from collections.abc import Mapping
from sys import modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel


def in_jax(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The result of a call that JAX compiles, differentiates or batches; NotImplemented for any
    other, and for what a function of JAX cannot do: write into given memory."""
    tracer = getattr(getattr(modules["jax"], "core", None), "Tracer", ())
    if not any(isinstance(x, tracer) for x in (*args, *kwargs.values())):
        return NotImplemented
    if kernel.program.inouts or any(kwargs.get(n) is not None for n in ("out", "threads")):
        return NotImplemented
    from tcsym.jax import operator

    return operator(kernel)(*args, **{n: x for n, x in kwargs.items() if x is not None})
