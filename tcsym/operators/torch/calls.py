# SPDX-License-Identifier: Apache-2.0
"""Calls whose tensors torch records, transforms, traces or fakes -> those of the operator.

A kernel comes here with every call that its native entry passes on. Plain tensors that only need
gradients are recorded by an autograd function at once; whatever else torch is about to do with the
call, the operator knows its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import torch

from tcsym.operators.called import Called
from tcsym.operators.shapes import given_sizes
from tcsym.operators.torch.operator import operator_of
from tcsym.operators.torch.scalars import as_tensor, fits, is_number
from tcsym.runtime.arguments import bind, match_arguments, separated, together
from tcsym.runtime.packing import packed
from tcsym.runtime.plan import CallPlan, Parameter
from tcsym.runtime.scalars import is_scalar, scalar_array
from tcsym.runtime.torch_internals import is_watched, plain_attributes, transforms
from tcsym.runtime.torch_views import element_type, has_tangent, stands_for_another, thread

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_TENSORS = (torch.Tensor, torch.fx.Proxy)
_OPTIONS = ("out", "sizes", "threads")
_casts = torch.is_autocast_enabled


def torch_call(kernel: Called, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The call's result, or NotImplemented where it is the kernel's own to serve or to refuse."""
    if thread.is_below:
        return NotImplemented
    if not (kwargs or is_watched() or _casts("cpu") or _casts("cuda")) and torch.is_grad_enabled():
        needs = [x.requires_grad if type(x) in _PLAIN else None for x in args]
        record = kernel._recorded.get(tuple(needs))
        if record is not None:
            result = record(*args)
            if type(result) is not tuple:
                return result
            return packed(kernel._plan.output_names, result)
    with plain_attributes():
        return _any_call(kernel, args, kwargs)


def _any_call(kernel: Called, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A call with arguments of any kind, of which some may be tensors."""
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, _TENSORS)]
    if not tensors or any(kwargs.get(n) is not None for n in ("out", "threads")):
        return NotImplemented
    plan = kernel._plan
    given = match_arguments(plan, args, {n: x for n, x in kwargs.items() if n not in _OPTIONS})
    is_recorded = torch.is_grad_enabled() and any(_requires_grad(x) for x in tensors)
    given, sizes = separated(plan, given, kwargs.get("sizes"))
    arguments = [_tensor(x, p) for x, p in zip(given, plan.inputs)]
    wrapped = any(stands_for_another(x, torch) for x in tensors)
    is_operator = wrapped or is_watched() or _is_cast(plan, given)
    if not (is_operator or is_recorded):
        return NotImplemented
    if any(x is None for x in arguments):
        with torch.no_grad():  # what is wrong with one of them is said before what is not recorded
            bind(plan, together(plan, given), sizes)
        return NotImplemented
    made = operator_of(kernel)
    kinds = transforms()
    proxy = next((x for x in tensors if isinstance(x, torch.fx.Proxy)), None)
    serve: Callable[..., Any]
    if proxy is not None:
        serve = _traced(proxy, made.packet.default)
    elif (wrapped and kinds and kinds[-1] != "Functionalize") or any(map(has_tangent, tensors)):
        serve = made.differentiate if is_recorded else made.transform
    else:
        serve = made.packet if is_operator else made.record
    result = serve(*arguments, *given_sizes(plan, sizes, torch.SymInt))
    if len(plan.outputs) < 2:
        return result
    return packed(plan.output_names, tuple([result[k] for k in range(len(plan.outputs))]))


def _traced(proxy: Any, operator: Any) -> Callable[..., Any]:
    """The operator as a node of the graph that torch.fx records."""
    return lambda *args: proxy.tracer.create_proxy("call_function", operator, args, {})


def _requires_grad(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad


def _is_cast(plan: CallPlan, given: Sequence[Any]) -> bool:
    """torch is to choose types, and chose others than the kernel's for some floating input."""
    return any(
        isinstance(x, torch.Tensor)
        and x.is_floating_point()
        and torch.is_autocast_enabled(x.device.type)
        and p.dtype.is_float
        and element_type(x.dtype, torch) is not p.dtype
        for x, p in zip(given, plan.inputs)
    )


def _tensor(x: Any, p: Parameter) -> Any:
    """An argument as a tensor; None if it cannot be one, or is missing."""
    if isinstance(x, _TENSORS):
        return x
    if is_number(x) and not (p.rank or p.inout):
        return as_tensor(x, p.dtype.value) if fits(x, p.dtype.value) else None
    if is_scalar(x) and not (p.rank or p.inout):
        array = scalar_array(x, p.dtype)
        return None if array is None else torch.tensor(x, dtype=getattr(torch, p.dtype.value))
    return torch.from_numpy(x) if type(x) is numpy.ndarray else None
