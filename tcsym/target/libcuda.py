# SPDX-License-Identifier: Apache-2.0
"""What the run time asks of CUDA's driver, from `libcuda` itself by ctypes.

It has the names of `pycuda.driver` that we use, which mean the same there, and stands in its place
where pycuda is not installed. The library is looked for when something is first asked.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from functools import lru_cache
from typing import Any

import numpy as np

LIBRARY = "libcuda.so.1"
OUT_OF_MEMORY = 2  # CUresult
_NAME_BYTES = 256


class Error(Exception):
    """What the driver refuses."""


class MemoryError(Error):
    """There is not as much memory."""


class device_attribute:
    """CUdevice_attribute."""

    MULTIPROCESSOR_COUNT = 16
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97


class host_alloc_flags:
    """Of cuMemHostAlloc."""

    PORTABLE = 1
    DEVICEMAP = 2


@lru_cache(None)
def library() -> ctypes.CDLL:
    """Errors: OSError where there is none."""
    return ctypes.CDLL(LIBRARY)


def call(name: str, *given: object) -> int:
    """The CUresult of a function. Numbers fill registers: it takes of them what it needs."""
    words = [ctypes.c_uint64(x) if isinstance(x, int) else x for x in given]
    return int(getattr(library(), name)(*words))


def meaning(code: int) -> str:
    """Of a CUresult, in the driver's words."""
    text = ctypes.c_char_p()
    library().cuGetErrorString(code, byref(text))
    return (text.value or b"unknown error").decode()


def _done(name: str, *given: object) -> None:
    code = call(name, *given)
    if code:
        kind = MemoryError if code == OUT_OF_MEMORY else Error
        raise kind(f"{name} failed: {meaning(code)}")


def init() -> None:
    _done("cuInit", 0)


class Device:
    def __init__(self, number: int) -> None:
        found = ctypes.c_int()
        _done("cuDeviceGet", byref(found), number)
        self._handle = found.value

    @staticmethod
    def count() -> int:
        found = ctypes.c_int()
        _done("cuDeviceGetCount", byref(found))
        return found.value

    def name(self) -> str:
        text = ctypes.create_string_buffer(_NAME_BYTES)
        _done("cuDeviceGetName", text, _NAME_BYTES, self._handle)
        return text.value.decode()

    def get_attribute(self, attribute: int) -> int:
        found = ctypes.c_int()
        _done("cuDeviceGetAttribute", byref(found), attribute, self._handle)
        return found.value

    def compute_capability(self) -> tuple[int, int]:
        major = self.get_attribute(device_attribute.COMPUTE_CAPABILITY_MAJOR)
        return major, self.get_attribute(device_attribute.COMPUTE_CAPABILITY_MINOR)

    def retain_primary_context(self) -> Context:
        """For the rest of the process."""
        found = ctypes.c_void_p()
        _done("cuDevicePrimaryCtxRetain", byref(found), self._handle)
        return Context(found.value or 0)


class Context:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def push(self) -> None:
        _done("cuCtxPushCurrent_v2", self.handle)

    @staticmethod
    def pop() -> None:
        _done("cuCtxPopCurrent_v2", byref(ctypes.c_void_p()))

    @staticmethod
    def synchronize() -> None:
        _done("cuCtxSynchronize")


class DeviceAllocation:
    """Memory of the device whose context is current, until it is freed."""

    def __init__(self, n_bytes: int) -> None:
        found = ctypes.c_uint64()
        _done("cuMemAlloc_v2", byref(found), n_bytes)
        self._pointer = found.value

    def __int__(self) -> int:
        return self._pointer

    def free(self) -> None:
        _done("cuMemFree_v2", self._pointer)


def mem_alloc(n_bytes: int) -> DeviceAllocation:
    return DeviceAllocation(n_bytes)


def pagelocked_zeros(n: int, dtype: Any, mem_flags: int) -> np.ndarray[Any, Any]:
    """Memory of the host that devices reach; it stays for the rest of the process."""
    found, n_bytes = ctypes.c_void_p(), n * np.dtype(dtype).itemsize
    _done("cuMemHostAlloc", byref(found), n_bytes, mem_flags)
    array = np.frombuffer((ctypes.c_char * n_bytes).from_address(found.value or 0), dtype)
    array[...] = 0
    return array


def memcpy_htod(to: int, source: np.ndarray[Any, Any]) -> None:
    assert source.flags.forc
    _done("cuMemcpyHtoD_v2", to, source.ctypes.data, source.nbytes)


def memcpy_dtoh(to: np.ndarray[Any, Any], source: int) -> None:
    assert to.flags.forc
    _done("cuMemcpyDtoH_v2", to.ctypes.data, source, to.nbytes)
