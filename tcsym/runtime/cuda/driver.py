# SPDX-License-Identifier: Apache-2.0
"""The driver's functions that pycuda lacks, by ctypes.

pycuda shows no handles of functions, takes no streams but its own, launches no grids whose blocks
wait for each other, and knows no graphs; and kernels have to run on the stream of whoever calls. So
modules are loaded, functions found and launched, numbers and orders put on streams, and captures
asked about through the driver itself. All else (devices, contexts, memory) is what `driver()`
gives: pycuda, or `libcuda` in its place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from tcsym.errors import TargetError
from tcsym.runtime.native import native
from tcsym.target import libcuda
from tcsym.target.devices import driver
from tcsym.target.libcuda import LIBRARY, OUT_OF_MEMORY

_LOG_BYTES = 8192
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
# Of cuda.h: CUjit_option, CUfunction_attribute, CUpointer_attribute.
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6
_MOST_SHARED_BYTES = 8
_DEVICE_ORDINAL = 9
_NO_TIMING = 2

_RELAXED = 2  # CUstreamCaptureMode: calls that no graph could hold are no error
_CAPTURED = 1  # CUstreamCaptureStatus
_NO_ORDER, _MOVE = 1, 1  # CUuserObject_flags, CUuserObjectRetain_flags


@lru_cache(None)
def _library() -> ctypes.CDLL:
    driver()  # first, for its errors
    if native.missing_of_driver():
        hint = "renew it"
        raise TargetError("the CUDA driver is older than that of CUDA 12", hint=hint)
    return libcuda.library()


@lru_cache(None)
def address(name: str) -> int:
    """Of a function, for native code."""
    found = ctypes.cast(_library()[name], _POINTER).value
    assert found
    return found


def _call(
    what: str, name: str, *given: object, log: ctypes.Array[ctypes.c_char] | None = None
) -> None:
    """A function of the driver."""
    _library()  # first, for its errors
    code = libcuda.call(name, *given)
    if code:
        raise driver_error(code, what, log.value.decode(errors="replace").strip() if log else "")


def driver_error(code: int, what: str, log: str = "") -> Exception:
    """What the driver's code says, met while doing `what`."""
    why = libcuda.meaning(code)
    if code == OUT_OF_MEMORY:
        return MemoryError(f"{what}: the CUDA driver says: {why}")
    said = f": {log}" if log else ""
    return TargetError(f"{what}: the CUDA driver says: {why} ({code}){said}")


class Module:
    """Code on the device of the current context."""

    def __init__(self, code: bytes) -> None:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (_INT * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (_POINTER * 2)(ctypes.addressof(log), _LOG_BYTES)
        self._handle = _POINTER()
        given = ctypes.byref(self._handle), code, 2, options, values
        _call("the device's code cannot be loaded", "cuModuleLoadDataEx", *given, log=log)

    def function(self, name: str, most_shared_bytes: int) -> int:
        """A handle. Blocks may have more shared memory than the 48 KiB that are usual."""
        handle, what = _POINTER(), f"no function `{name}` in the device's code"
        _call(what, "cuModuleGetFunction", ctypes.byref(handle), self._handle, name.encode())
        what = f"{most_shared_bytes} bytes of shared memory for `{name}`"
        _call(what, "cuFuncSetAttribute", handle, _MOST_SHARED_BYTES, most_shared_bytes)
        assert handle.value
        return handle.value

    def unload(self) -> None:
        """In its context."""
        _library().cuModuleUnload(self._handle)


# ---- on streams that pycuda does not know


def set_number(pointer: int, content: bytes, stream: int) -> None:
    """Writes a number into 8 bytes. It is not read later: graphs keep it by value."""
    for k in range(0, len(content), 4):
        part = int.from_bytes(content[k : k + 4], "little")
        _call("a number for a kernel", "cuMemsetD32Async", pointer + k, part, 1, stream)


def copy(to: int, source: int, n_bytes: int, stream: int) -> None:
    """In memory of the device."""
    _call("a copy on the device", "cuMemcpyDtoDAsync_v2", to, source, n_bytes, stream)


def order(first: int, then: int) -> None:
    """What comes on stream `then` waits for what is on stream `first`; nothing waits here.

    What one graph captures cannot wait for anything else: who launches it has to see to that.
    """
    if capture_on(first) != capture_on(then):
        return
    event, what = _POINTER(), "an order of two streams"
    _call(what, "cuEventCreate", ctypes.byref(event), _NO_TIMING)
    try:
        _call(what, "cuEventRecord", event, first)
        _call(what, "cuStreamWaitEvent", then, event, 0)
    finally:
        _library().cuEventDestroy_v2(event)


def wait(stream: int) -> None:
    """Until all on the stream is done."""
    _call("waiting for the device", "cuStreamSynchronize", stream)


# ---- graphs that somebody captures


@contextmanager
def relaxed() -> Iterator[None]:
    """Inside, this thread may allocate and load code, whoever captures a stream."""
    mode = _INT(_RELAXED)
    exchange = "cuThreadExchangeStreamCaptureMode", ctypes.byref(mode)
    _call("a call while a graph is captured", *exchange)
    try:
        yield
    finally:
        _call("the end of a call while a graph is captured", *exchange)


class Capture(NamedTuple):
    """What is captured on a stream: a number that no other capture has, and its graph."""

    number: int
    graph: int


@lru_cache(None)
def _is_captured() -> Callable[[int], bool]:
    """Asked for each result, so quickly: Python's lock is kept, and with it the word in use."""
    ask, status = ctypes.PyDLL(LIBRARY).cuStreamIsCapturing, _INT()
    ask.argtypes, word = (_POINTER, _POINTER), ctypes.addressof(status)
    return lambda stream: ask(stream, word) == 0 and status.value == _CAPTURED


def capture_on(stream: int) -> Capture | None:
    """That in which the stream takes part, as the default one cannot."""
    if not stream or not _is_captured()(stream):
        return None
    status, number, graph = _INT(), ctypes.c_uint64(), _POINTER()
    found = map(ctypes.byref, (status, number, graph))
    asked = "asking whether a stream is captured"
    _call(asked, "cuStreamGetCaptureInfo_v2", stream, *found, None, None)
    return Capture(number.value, graph.value or 0)


def note_end(graph: int, word: int, mark: int) -> None:
    """Once the graph and what was made of it are gone, the driver calls `mark(word)`."""
    made, noted = _POINTER(), "memory for a graph"
    _call(noted, "cuUserObjectCreate", ctypes.byref(made), word, mark, 1, _NO_ORDER)
    _call(noted, "cuGraphRetainUserObject", graph, made, 1, _MOVE)


def device_of_pointer(pointer: int) -> int:
    """Number of the device whose memory it points to."""
    number, what = _INT(), "memory of which the driver knows no device"
    _call(what, "cuPointerGetAttribute", ctypes.byref(number), _DEVICE_ORDINAL, pointer)
    return number.value
