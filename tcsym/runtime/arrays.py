# SPDX-License-Identifier: Apache-2.0
"""Foreign arrays -> `View`: address, shape, strides, element type. Zero-copy, no library imported.

Order of trial: numpy, scalars (not here), torch (if the user has imported it), jax (likewise),
`__array_interface__`, `__dlpack__`, the buffer protocol. Whatever is not among these is no array.
A view keeps its memory alive through `owner`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from tcsym.runtime.blocks import large_array
from tcsym.runtime.view import HERE, Elsewhere, Library, Place, Unusable, View
from tcsym.types import DType

Array = np.ndarray[Any, np.dtype[Any]]  # importing numpy.typing takes a millisecond


_DENSE, _ALIGNED, _WRITABLE = 0x1, 0x100, 0x400  # numpy's flags
_NUMPY_TYPES: dict[Any, DType] = {t.numpy: t for t in DType if t is not DType.BFLOAT16}


def data_pointer(x: Array) -> int:
    """Address of the first element."""
    address: int = x.ctypes.data
    return address


def _type_of_extension(dtype: Any) -> DType | None:
    """bfloat16, which no array has before someone loads ml_dtypes (that takes a while)."""
    is_it = "ml_dtypes" in sys.modules and dtype == DType.BFLOAT16.numpy
    return DType.BFLOAT16 if is_it else None


def numpy_view(x: Array, library: Library = "numpy") -> View:
    """View of a numpy array."""
    dtype = _NUMPY_TYPES.get(x.dtype) or _type_of_extension(x.dtype)
    flags, strides = x.flags.num, x.strides
    dense, aligned = bool(flags & _DENSE), bool(flags & _ALIGNED)
    if not dense and aligned and dtype is not None:
        size = dtype.bytes
        aligned = not any(stride % size for stride in strides)
    return View(
        library,
        dtype,
        x.shape,
        strides,
        data_pointer(x),
        dense,
        aligned,
        bool(flags & _WRITABLE),
        x,
    )


def view_of(x: object) -> View:
    """View of any array. Raises Unusable."""
    if type(x) is np.ndarray:
        return numpy_view(x)
    if isinstance(x, np.ndarray):
        if isinstance(x, np.ma.MaskedArray):
            raise Unusable("is a masked array", "fill it first: `.filled(value)`")
        return numpy_view(x.view(np.ndarray))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor | torch.fx.Proxy):
        from tcsym.runtime.torch_views import torch_view

        return torch_view(x, torch)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(x, jax.Array):
        return _jax_view(x)
    if hasattr(type(x), "__cuda_array_interface__"):
        raise Elsewhere(Place(2, 0, "cuda", _COPY))
    return numpy_view(_protocol_array(x))


# ---- protocols


def _protocol_array(x: Any) -> Array:
    if isinstance(x, list | tuple | str | dict) or x is None:
        raise Unusable(f"is {_article(x)}, not an array", "convert it first: `numpy.array(...)`")
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array_interface__"):
        return _dlpack_array(x)
    try:
        found = np.asarray(x if hasattr(x, "__array_interface__") else memoryview(x))
    except (TypeError, ValueError, NotImplementedError):
        library = type(x).__module__.partition(".")[0]
        if library in _APPLY:
            lazy = f"is {_article(x)} of {library}, not one in memory"
            raise Unusable(lazy, f"call `tcsym.{library}.apply(kernel, ...)`") from None
        hint = "give a numpy array, or anything with `__dlpack__` or the buffer protocol"
        raise Unusable(f"is {_article(x)}, not an array", hint) from None
    return found


_APPLY = ("dask", "xarray")  # whose arrays have a function of ours


def _article(x: object) -> str:
    name = type(x).__name__
    return "None" if x is None else f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


_COPY = "copy it to the CPU first"
# DLPack's types of devices: whose memory the CPU reads (CPU, CUDAHost, ROCMHost, CUDAManaged), and
# names of others.
CPU_READS = frozenset((1, 3, 11, 13))
_NAMES = {2: "cuda", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}


def _dlpack_array(x: Any) -> Array:
    kind, number = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else (1, 0)
    if int(kind) not in CPU_READS:
        name = _NAMES.get(int(kind), f"of type {int(kind)}")
        raise Elsewhere(Place(int(kind), int(number), f"{name}:{number}", _COPY))
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise Unusable(f"cannot be read through DLPack ({error})") from None


# ---- jax


def _jax_view(x: Any) -> View:
    if isinstance(x, sys.modules["jax"].core.Tracer):
        hint = "call without `out=` and `threads=`, and `kernel.functional()` for what it updates"
        raise Unusable("is being traced by jax", hint)
    for device in x.devices():
        if device.platform != "cpu":
            cpu = "jax.devices('cpu')[0]"
            hint = f"move it first: `jax.device_put(x, {cpu})`"
            raise Elsewhere(Place(0, device.id, str(device), hint))
    return numpy_view(np.asarray(x), "jax")


# ---- from views to arrays


class _Holder:
    """Presents a view's memory to numpy and keeps it alive."""

    def __init__(self, view: View, typestr: str) -> None:
        self.owner = view.owner
        self.__array_interface__ = {
            "version": 3,
            "shape": view.shape,
            "strides": view.strides,
            "typestr": typestr,
            "data": (view.pointer, not view.writable),
        }


def numpy_array(view: View) -> Array:
    """The same memory as a numpy array."""
    if isinstance(view.owner, np.ndarray):
        return view.owner
    assert view.dtype is not None
    if view.dtype is DType.BFLOAT16:
        return np.asarray(_Holder(view, "<u2")).view(view.dtype.numpy)
    return np.asarray(_Holder(view, view.dtype.numpy.str))


def dense_view(shape: tuple[int, ...], dtype: DType) -> View:
    """A view without memory: what a dense numpy array of that shape would look like."""
    strides, stride = [], dtype.bytes
    for extent in reversed(shape):
        strides.append(stride)
        stride *= max(1, extent)
    return View("numpy", dtype, shape, tuple(reversed(strides)), 0, True, True, True, None)


def private_copy(view: View) -> View:
    """A dense copy; it remembers what it was copied from."""
    copy = numpy_view(np.array(numpy_array(view), order="C"), view.library)
    return copy._replace(original=view)


def empty(library: Library, shape: tuple[int, ...], dtype: DType) -> View:
    """New uninitialised memory in `library`'s kind of array."""
    large = large_array(shape, dtype.numpy)
    view = numpy_view(np.empty(shape, dtype.numpy) if large is None else large, library)
    if library != "torch":
        return view
    from tcsym.runtime.torch_views import tensor_of

    return view._replace(owner=tensor_of(view))


def written_view(x: object, adapt: Callable[[object], View] = view_of) -> View:
    """View of an array to write into. Raises Unusable."""
    if isinstance(x, np.generic):  # numpy would offer a copy
        raise Unusable("is a scalar, not an array")
    return adapt(x)


def note_written(x: Any) -> None:
    """Tell torch that a tensor changed, so that autograd does not use it as it was."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor) and not x.is_inference():
        torch.autograd.graph.increment_version(x)


def result_object(view: View) -> Any:
    """The array to hand to the user for an output made by `empty`."""
    if view.library == "jax" and view.place != HERE:
        return sys.modules["jax"].dlpack.from_dlpack(view.owner)
    if view.library == "jax":
        return _jax_array(view.owner)
    return view.owner


def _jax_array(x: Array) -> Any:
    """A jax array of exactly the same type, also where jax would make 64 bits 32."""
    jax = sys.modules["jax"]
    if x.dtype.itemsize < 8:
        return jax.numpy.asarray(x)
    if hasattr(jax, "enable_x64"):
        with jax.enable_x64(True):
            return jax.numpy.asarray(x)
    with import_module("jax.experimental").enable_x64():
        return jax.numpy.asarray(x)
