# SPDX-License-Identifier: Apache-2.0
"""torch's tensors -> `View`s, of those in memory of their own that torch itself would work on now.

torch can run a program to record, transform or fake what it does. It then passes tensors that have
no memory, or memory that stands for something else, or it watches for operators, which a kernel is
not. Whatever is not plain is refused here with what to do about it, before its memory is read.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from tcsym.runtime.view import HERE, Elsewhere, Place, Unusable, View
from tcsym.types import DType

_OPERATOR = (
    "call the kernel outside of that part, or make it an operator: "
    "`torch.library.custom_op` with `register_fake`"
)
_STANDS_FOR_ANOTHER = (
    "torch.func, functionalize and the like take calls without `out=` and `threads=`; "
    "where torch freed its memory, or gave zeros without any: pass `x.clone()`"
)
# Modes that replace what operators compute; all others only watch or wrap operators.
_REPLACING = {
    "FakeTensorMode": "fakes tensors, as torch.export does",
    "ProxyTorchDispatchMode": "records operators, as make_fx and torch.export do",
    "FunctionalTensorMode": "records operators without changes in place, as torch.export does",
}
_GRADIENT = (
    "calls with `out=` or `threads=` are not recorded: leave these out to train through it, or "
    "evaluate under `with torch.no_grad():`"
)
_types: dict[Any, DType] = {}


class _Thread(threading.local):
    """is_below: torch has done what it does with operators, and what is called now is one."""

    is_below = False


thread = _Thread()


def torch_view(x: Any, torch: Any) -> View:
    """View of a tensor, which may be of a subclass. Raises Unusable."""
    if isinstance(x, torch.fx.Proxy):
        why = "is a Proxy of torch.fx, which records operators"
        raise Unusable(why, "call the kernel in a function of your own that `torch.fx.wrap` names")
    from tcsym.runtime.torch_internals import plain_attributes

    with plain_attributes():
        _require_plain(x, torch)
        try:
            return _view(x, torch)
        except (NotImplementedError, RuntimeError) as error:
            if x.device.type != "cpu":
                raise Elsewhere(_place(x)) from None
            why = str(error).partition("\n")[0]
            raise Unusable(f"has no memory ({why})", _STANDS_FOR_ANOTHER) from None


def empty_on_device(shape: tuple[int, ...], dtype: DType, torch: Any, place: Place) -> View:
    """View of a new uninitialised tensor."""
    tensor = torch.empty(shape, dtype=getattr(torch, dtype.value), device=place.name)
    return _view(tensor, torch)._replace(place=place)


def stands_for_another(x: Any, torch: Any) -> bool:
    """A tensor that only an operator can be called with: it has no memory of its own, or operators
    of its own. One that was freed, or is not initialised, is an error."""
    if isinstance(x, torch.fx.Proxy):
        return True
    if torch.nn.parameter.is_lazy(x) or x.layout is not torch.strided:
        return False
    if x.is_meta or _has_operators(x, torch):
        return True
    try:
        return not x.data_ptr() and bool(x.numel())
    except (NotImplementedError, RuntimeError):
        return True


def has_tangent(x: Any) -> bool:
    """Of forward differentiation, outside of torch.func."""
    forward = sys.modules["torch.autograd.forward_ad"]
    try:
        return forward.unpack_dual(x).tangent is not None
    except RuntimeError:  # a batch of `torch.autograd.grad(..., is_grads_batched=True)` has none
        return False


def _has_operators(x: Any, torch: Any) -> bool:
    return type(x).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _view(x: Any, torch: Any) -> View:
    size = x.element_size()
    pointer = x.data_ptr()
    place = HERE if x.device.type == "cpu" else _place(x)
    if not pointer and x.numel() and place is HERE:
        raise Unusable("has no memory", _STANDS_FOR_ANOTHER)
    return View(
        "torch",
        element_type(x.dtype, torch),
        tuple(x.shape),
        tuple([stride * size for stride in x.stride()]),
        pointer,
        x.is_contiguous(),
        pointer % size == 0,
        not x.is_inference() or torch.is_inference_mode_enabled(),
        x,
        place=place,
    )


def _place(x: Any) -> Place:
    """Of a tensor that is not on the CPU; those DLPack knows nothing of have no type there."""
    try:
        kind, number = x.__dlpack_device__()
    except (AttributeError, BufferError, RuntimeError, ValueError):
        kind, number = 0, x.device.index or 0
    return Place(int(kind), int(number), str(x.device), "pass `x.cpu()`")


def _require_plain(x: Any, torch: Any) -> None:
    _require_plain_thread(torch)
    if _has_operators(x, torch):
        why = f"is a {type(x).__name__}, which has operators of its own (`__torch_dispatch__`)"
        raise Unusable(why, "pass the plain tensor that it holds")
    if torch.nn.parameter.is_lazy(x):
        raise Unusable("is not initialised", "run its module once, or give it a shape")
    if x.is_nested:
        raise Unusable("is a nested tensor", "pass one of `x.unbind()`, or `x.to_padded_tensor(0)`")
    if x.layout is not torch.strided:
        raise Unusable(f"has layout {x.layout}", "pass `x.to_dense()`")
    if x.is_quantized:
        raise Unusable("is quantised", "pass `x.dequantize()` or `x.int_repr()`")
    _require_no_gradient(x, torch)
    if x.is_neg():
        raise Unusable("is a lazily negated view", "pass `x.resolve_neg()`")


def _require_plain_thread(torch: Any) -> None:
    """Operators are run now, not recorded."""
    from tcsym.runtime.torch_internals import modes

    if torch.jit.is_tracing():
        raise Unusable("is given while torch.jit.trace records operators", _OPERATOR)
    for mode in modes():
        for cls in type(mode).__mro__:
            if cls.__name__ in _REPLACING:
                why = f"is given under {cls.__name__}, which {_REPLACING[cls.__name__]}"
                raise Unusable(why, _OPERATOR)


def _require_no_gradient(x: Any, torch: Any) -> None:
    if x.requires_grad and torch.is_grad_enabled():
        raise Unusable("requires a gradient, which this kernel cannot record", _GRADIENT)
    if not thread.is_below and has_tangent(x):
        raise Unusable(
            "has a tangent of forward differentiation, which this kernel would drop",
            "pass `torch.autograd.forward_ad.unpack_dual(x).primal`",
        )


def element_type(dtype: Any, torch: Any) -> DType | None:
    """None for types that tcsym does not have."""
    if not _types:
        found = {getattr(torch, t.value, None): t for t in DType}
        _types.update({name: t for name, t in found.items() if name is not None})
    return _types.get(dtype)


def tensor_of(view: View) -> Any:
    """A tensor in the memory of a numpy array."""
    import torch

    if view.dtype is DType.BFLOAT16:  # numpy's is unknown to torch
        return torch.from_numpy(view.owner.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(view.owner)
