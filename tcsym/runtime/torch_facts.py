"""Where torch has what call entries need of it, tried out before anything relies on it."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache
from typing import Any, NamedTuple

from tcsym.runtime.fastcall_torch import CPU, IMPLEMENTATION_AT, VIEW_BYTES, dlpack_type
from tcsym.types import DType

_EXCHANGE_VIEW = 5  # place of dltensor_from_py_object_no_sync in the exchange API

_FUNCTIONS = {
    "requires_grad": ("c10", "_ZNK3c1010TensorImpl13requires_gradEv"),
    "grad_is_enabled": ("c10", "_ZN3c108GradMode10is_enabledEv"),
    "empty": ("torch_cpu", "aoti_torch_empty_strided"),
    "data_of": ("torch_cpu", "aoti_torch_get_data_ptr"),
    "delete": ("torch_cpu", "aoti_torch_delete_tensor_object"),
    "wrap": ("torch_python", "_Z16THPVariable_WrapRKN2at10TensorBaseE"),
}


class TorchFacts(NamedTuple):
    """Words and objects of the table, and numbers of torch's element types."""

    words: dict[str, int]
    objects: dict[str, object]
    types: dict[DType, int]
    kept: tuple[Any, ...]


@lru_cache(None)
def torch_facts() -> TorchFacts | None:
    """None if this torch is not as expected in everything that entries rely on."""
    torch = sys.modules["torch"]
    try:
        found = _found(torch)
        good = _reads_as_expected(torch, found) and _makes_as_expected(torch, found)
        return found if good else None
    except (AttributeError, OSError, RuntimeError, TypeError, ValueError):
        return None  # an older or a much newer torch: calls go through Python


def _found(torch: Any) -> TorchFacts:
    directory = os.path.join(os.path.dirname(torch.__file__), "lib")
    libraries = {
        name: ctypes.CDLL(os.path.join(directory, f"lib{name}.so"))
        for name in dict.fromkeys(library for library, _ in _FUNCTIONS.values())
    }
    words = {
        field: ctypes.cast(libraries[library][symbol], ctypes.c_void_p).value or 0
        for field, (library, symbol) in _FUNCTIONS.items()
    }
    words["view"] = _exchange_view(torch)
    words["keys at"], words["plain keys"] = _dispatch_keys(torch)
    types = {
        dtype: libraries["torch_cpu"][f"aoti_torch_dtype_{dtype.value}"]()
        for dtype in DType
        if hasattr(torch, dtype.value)
    }
    objects = {
        "Tensor": torch.Tensor,
        "Parameter": torch.nn.Parameter,
        "bump": torch.autograd.graph.increment_version,
    }
    return TorchFacts(words, objects, types, tuple(libraries.values()))


def _exchange_view(torch: Any) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    api = get(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    major = ctypes.c_uint32.from_address(api).value
    if major != 1:
        raise ValueError("another version of the exchange API")
    return ctypes.c_uint64.from_address(api + 8 * _EXCHANGE_VIEW).value


def _samples(torch: Any) -> tuple[list[Any], list[Any]]:
    """Plain tensors, and others."""
    base = torch.ones(3, 4, device="cpu")
    plain = [base, base.t(), base[:, ::2], base > 0, torch.ones((), device="cpu"), base[:0]]
    plain += [base.clone().requires_grad_(), torch.nn.Parameter(base), base.bfloat16()]
    negated = torch.ones(3, dtype=torch.complex64, device="cpu").conj().imag
    with torch.inference_mode():
        inferred = torch.ones(3, device="cpu")
    return plain, [negated, inferred, base.to_sparse(), torch.ones(3, device="meta")]


def _dispatch_keys(torch: Any) -> tuple[int, int]:
    """Offset of the dispatch keys in a tensor's implementation; those of a plain tensor."""
    plain, others = _samples(torch)

    def keys(tensor: Any) -> int:
        return int(torch._C._dispatch_keys(tensor).raw_repr()) % 2**64

    def is_there(offset: int) -> bool:
        return all(
            ctypes.c_uint64.from_address(t._cdata + offset).value == keys(t) for t in plain + others
        )

    (usual,) = {keys(t) for t in plain}
    (offset,) = [8 * k for k in range(2, 32) if is_there(8 * k)]
    if any(keys(t) == usual for t in others):
        raise ValueError("keys do not tell plain tensors from others")
    return offset, usual


def _reads_as_expected(torch: Any, facts: TorchFacts) -> bool:
    view = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(facts.words["view"])
    asks = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(facts.words["requires_grad"])
    enabled = ctypes.CFUNCTYPE(ctypes.c_bool)(facts.words["grad_is_enabled"])
    plain, others = _samples(torch)
    for tensor in (*plain, *others):
        place = ctypes.c_void_p.from_address(id(tensor) + IMPLEMENTATION_AT)
        if place.value != tensor._cdata or asks(place.value) != tensor.requires_grad:
            return False
    for tensor in plain:
        words = (ctypes.c_uint64 * (VIEW_BYTES // 8))()
        if view(tensor, ctypes.addressof(words)) or words[1] & 0xFFFFFFFF != CPU:
            return False
        rank, dtype = tensor.dim(), DType(str(tensor.dtype).removeprefix("torch."))
        if words[2] != rank | dlpack_type(dtype) << 32 or words[0] + words[5] != tensor.data_ptr():
            return False
        extents = (ctypes.c_int64 * rank).from_address(words[3]) if rank else ()
        strides = (ctypes.c_int64 * rank).from_address(words[4]) if rank else ()
        if tuple(extents) != tensor.shape:
            return False
        if any(e > 1 and s != t for e, s, t in zip(extents, strides, tensor.stride())):
            return False
    with torch.no_grad():
        return enabled() is False


def _makes_as_expected(torch: Any, facts: TorchFacts) -> bool:
    """True if new tensors are what `torch.empty` makes, of every type and with one reference."""
    words, pointer = facts.words, ctypes.c_void_p
    empty = ctypes.CFUNCTYPE(
        *(ctypes.c_int, ctypes.c_int64, pointer, pointer), *(ctypes.c_int32,) * 3, pointer
    )(words["empty"])
    data_of = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)(words["data_of"])
    wrap = ctypes.PYFUNCTYPE(ctypes.py_object, pointer)(words["wrap"])
    delete = ctypes.CFUNCTYPE(ctypes.c_int, pointer)(words["delete"])
    shape, strides = (ctypes.c_int64 * 2)(3, 4), (ctypes.c_int64 * 2)(4, 1)
    for dtype, number in facts.types.items():
        handle, data = pointer(), pointer()
        if empty(2, shape, strides, number, 0, -1, ctypes.addressof(handle)):
            return False
        data_of(handle, ctypes.addressof(data))
        made = wrap(handle)
        delete(handle)
        usual = torch.empty(3, 4, dtype=getattr(torch, dtype.value), device="cpu")
        facts_of = [
            (type(t), t.shape, t.stride(), t.dtype, t.device, t.requires_grad, sys.getrefcount(t))
            for t in (made, usual)
        ]
        if facts_of[0] != facts_of[1] or made.data_ptr() != data.value:
            return False
    return True
