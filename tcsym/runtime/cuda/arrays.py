# SPDX-License-Identifier: Apache-2.0
"""Arrays on devices -> `View`s, and new arrays there in the kind of a call's arguments.

torch's tensors and cupy's arrays are read by their attributes, all others through DLPack or
`__cuda_array_interface__` (which has no bfloat16). What has neither is a host's.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from tcsym.runtime.arrays import dense_view, numpy_view, result_object, view_of
from tcsym.runtime.cuda.driver import address, device_of_pointer, order
from tcsym.runtime.cuda.pool import Lease
from tcsym.runtime.cuda.primary import Memory, primary
from tcsym.runtime.native import native
from tcsym.runtime.view import (
    ANY_STREAM,
    CUDA,
    CUDA_MANAGED,
    Library,
    Place,
    Unusable,
    View,
    dlpack_type,
)
from tcsym.target.devices import driver
from tcsym.types import DType

_LEGACY, _LEGACY_HANDLE = 1, 0  # the default stream: in the protocols, and the driver's
_TYPES = {dlpack_type(t): t for t in DType}
_COPY = "copy it there first"


def device_view(x: Any) -> View:
    """View of any array; of a host's where it is. Raises Unusable."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(x, torch.Tensor):
        return _torch_view(x, torch)
    if cupy is not None and isinstance(x, cupy.ndarray):
        return _cupy_view(x, cupy)
    if type(x) is DeviceArray:
        return x.view
    kind, number = _dlpack_device(x)
    if kind == CUDA and type(x).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return _dlpack_view(x, number, "jax")
    interface = getattr(x, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        return _interface_view(x, interface, number if kind == CUDA else None)
    return _dlpack_view(x, number, "dlpack") if kind == CUDA else view_of(x)


@lru_cache(64)
def place_of(number: int, stream: int) -> Place:
    return Place(CUDA, number, f"cuda:{number}", _COPY, stream)


def _torch_view(x: Any, torch: Any) -> View:
    from tcsym.runtime.torch_views import torch_view

    view = torch_view(x, torch)
    if view.place.type != CUDA:
        return view._replace(place=view.place._replace(hint="pass `x.to('cuda')`"))
    number = view.place.number
    return view._replace(place=place_of(number, torch.cuda.current_stream(number).cuda_stream))


def _cupy_view(x: Any, cupy: Any) -> View:
    number = int(x.device.id)
    with cupy.cuda.Device(number):
        stream = int(cupy.cuda.get_current_stream().ptr)
    return _shown("cupy", x.__cuda_array_interface__, x, place_of(number, stream))


def _dlpack_device(x: Any) -> tuple[int, int]:
    find = getattr(x, "__dlpack_device__", None)
    if find is None or isinstance(x, np.ndarray):
        return 1, 0
    kind, number = find()
    return CUDA if kind == CUDA_MANAGED else int(kind), int(number)


def _interface_view(x: Any, interface: dict[str, Any], number: int | None) -> View:
    """https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html, versions 2 and 3."""
    if interface.get("mask") is not None:
        raise Unusable("is a masked array", "fill it first")
    stream = interface.get("stream", _LEGACY if interface.get("version", 0) < 3 else None)
    if number is None:
        pointer = interface["data"][0]
        several = driver().Device.count() > 1 and pointer
        number = device_of_pointer(pointer) if several else 0
    place = place_of(number, ANY_STREAM if stream is None else _handle(int(stream)))
    library: Library = "pycuda" if type(x).__module__ == "pycuda.gpuarray" else "dlpack"
    return _shown(library, interface, x, place)


def _handle(stream: int) -> int:
    """That of the driver; the protocols' 0 is ambiguous and nobody's."""
    return _LEGACY_HANDLE if stream == _LEGACY else stream


def _dlpack_view(x: Any, number: int, library: Library) -> View:
    """The producer makes the default stream wait for what it has begun."""
    try:
        try:
            capsule = x.__dlpack__(stream=_LEGACY, max_version=(1, 0))
        except TypeError:  # of before version 1
            capsule = x.__dlpack__(stream=_LEGACY)
        pointer, shape, strides, code, writable = native.read_capsule(capsule)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise Unusable(f"cannot be read through DLPack ({error})") from None
    dtype = _TYPES.get(code)
    size = dtype.bytes if dtype else 1
    interface = {
        "data": (pointer, not writable),
        "shape": shape,
        "typestr": f"<u{size}",
        "strides": None if strides is None else tuple([s * size for s in strides]),
    }
    view = _shown(library, interface, (x, capsule), place_of(number, _LEGACY_HANDLE))
    return view._replace(dtype=dtype)


def _shown(library: Library, interface: dict[str, Any], owner: Any, place: Place) -> View:
    """As numpy describes what has such an interface. It does not look into the memory."""
    array = np.asarray(SimpleNamespace(__array_interface__=interface))
    view = numpy_view(array, library)
    return view._replace(pointer=interface["data"][0], owner=owner, place=place)


# ---- new arrays


class DeviceArray:
    """A dense array on a device, for libraries to take over: DLPack, `__cuda_array_interface__`.

    Its memory is of a pool of the stream it was made on, so what follows there may use it again; or
    what an owner has from a byte on.
    """

    __slots__ = ("_interface", "_owner", "_place", "_type", "dtype", "pointer", "shape")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        place: Place,
        owner: Lease | Memory | None = None,
        at: int = 0,
    ) -> None:
        if owner is None:
            n_bytes = dtype.bytes * prod(shape)
            owner = primary(place.number).pool(place.stream).lease(n_bytes)
        self._owner = owner
        self.pointer = owner.pointer + at
        self.dtype = dtype.numpy
        self.shape = shape
        self._type = dtype
        self._place = place
        self._interface: dict[str, Any] | None = None

    @property
    def view(self) -> View:
        """It owns what it shows. (Kept, that would be a cycle.)"""
        made = dense_view(self.shape, self._type)
        return made._replace(library="dlpack", pointer=self.pointer, place=self._place, owner=self)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self._type.bytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._type is DType.BFLOAT16:
            raise AttributeError("bfloat16 has no typestr: use DLPack")
        if self._interface is None:
            self._interface = {
                "version": 3,
                "shape": self.shape,
                "typestr": self.dtype.str,
                "data": (self.pointer, False),
                "strides": None,
                "stream": self._place.stream or _LEGACY,
            }
        return self._interface

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self._place.number

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        place = self._place
        if copy or (dl_device is not None and dl_device != self.__dlpack_device__()):
            raise BufferError("it is shown where it is, and not copied")
        taker = _handle(_LEGACY if stream is None else stream)
        if stream != -1 and taker != place.stream:
            with primary(place.number):
                order(place.stream, taker)
        given = self.pointer, self.shape, dlpack_type(self._type), CUDA, place.number
        return native.make_capsule(self, *given, bool(max_version and max_version[0] >= 1))

    def copy_to_host(self) -> np.ndarray[Any, Any]:
        """Once it is computed. Errors: those of checks that kernels on the device made before."""
        host, place = np.empty(self.shape, self.dtype), primary(self._place.number)
        place.synchronize()
        place.faults.raise_found()
        if host.nbytes:
            with place:
                driver().memcpy_dtoh(host, self.pointer)
        return host

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, {self.dtype}, {self._place.name})"


def device_array(x: np.ndarray[Any, Any], number: int = 0) -> DeviceArray:
    """A copy of a dense array on the device of that number."""
    made = DeviceArray(x.shape, _OF_NUMPY[x.dtype], place_of(number, _LEGACY_HANDLE))
    if x.nbytes:
        with primary(number):
            driver().memcpy_htod(made.pointer, x)
    return made


def new_array(library: Library, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
    """Uninitialised, in the library's kind of array if it has the type."""
    if library == "torch":
        from tcsym.runtime.torch_views import empty_on_device

        return empty_on_device(shape, dtype, sys.modules["torch"], place)
    owner, pointer = _made(library, shape, dtype, place)
    kind: Library = "dlpack" if library == "numpy" else library
    view = dense_view(shape, dtype)
    return view._replace(library=kind, pointer=pointer, owner=owner, place=place)


def _made(
    library: Library, shape: tuple[int, ...], dtype: DType, place: Place
) -> tuple[object, int]:
    """A new array, and where its memory is."""
    if library == "cupy" and dtype is not DType.BFLOAT16:
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(place.number):
            array = cupy.empty(shape, dtype.numpy)
        return array, int(array.data.ptr)
    made = DeviceArray(shape, dtype, place)
    return (shown_in(library, made) if library == "pycuda" else made), made.pointer


def shown_in(library: Library, made: DeviceArray) -> Any:
    """In the library's kind of array if it has the type."""
    is_named = made.dtype is not DType.BFLOAT16.numpy
    if library == "pycuda" and is_named:
        from pycuda.gpuarray import GPUArray

        with primary(made.__dlpack_device__()[1]):
            return GPUArray(made.shape, made.dtype, base=made, gpudata=made.pointer)
    if library == "torch":
        return sys.modules["torch"].from_dlpack(made)
    if library == "cupy" and is_named:
        return sys.modules["cupy"].from_dlpack(made)
    return result_object(made.view._replace(library=library))


# ---- calls that do not pass through Python


def enters(view: View) -> bool:
    """Calls of such arrays may be served natively: of a type that describes itself."""
    if view.library == "jax":  # which takes its results over once they are begun
        return False
    _described()
    if isinstance(view.owner, tuple):  # `_dlpack_view`'s
        return native.describe(type(view.owner[0]), False)
    return view.dtype is not DType.BFLOAT16 and native.describe(type(view.owner), True)


@lru_cache(None)
def _described() -> None:
    several = driver().Device.count() > 1
    native.set_described(_made_beside, address("cuPointerGetAttribute") if several else 0)


def _made_beside(
    like: object, dtype: np.dtype[Any], shape: tuple[int, ...], number: int, stream: int
) -> tuple[object, int]:
    """A new array in the kind of `like`, and where its memory is."""
    library = "dlpack" if type(like) is DeviceArray else _library_of(type(like).__module__)
    return _made(library, shape, _OF_NUMPY[dtype], place_of(number, stream))


_OF_NUMPY = {t.numpy: t for t in DType}


@lru_cache(64)
def _library_of(module: str) -> Library:
    """Of which arrays of a type from there are, by `device_view`."""
    known: dict[str, Library] = {"cupy": "cupy", "pycuda": "pycuda"}
    return known.get(module.partition(".")[0], "dlpack")
