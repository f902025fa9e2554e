"""The driver's functions that pycuda lacks, by ctypes; the driver is found as pycuda finds it.

pycuda shows no handles of functions, takes no streams but its own, launches no grids whose blocks
wait for each other, and knows no graphs; and kernels have to run on the stream of whoever calls. So
modules are loaded, functions found and launched, numbers and orders put on streams, and captures
asked about through the driver itself. All else (devices, contexts, memory) is pycuda's.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from tcsym.errors import TargetError
from tcsym.target.devices import LIBRARY, driver

_LOG_BYTES = 8192
_POINTER, _UNSIGNED, _INT = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int
_ADDRESS, _SIZE = ctypes.c_uint64, ctypes.c_size_t
# Of cuda.h: CUjit_option, CUfunction_attribute, CUpointer_attribute.
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6
_MOST_SHARED_BYTES = 8
_DEVICE_ORDINAL = 9
_NO_TIMING = 2
OUT_OF_MEMORY = 2

_RELAXED = 2  # CUstreamCaptureMode: calls that no graph could hold are no error
_CAPTURED = 1  # CUstreamCaptureStatus
_NO_ORDER, _MOVE = 1, 1  # CUuserObject_flags, CUuserObjectRetain_flags

# What native code calls, in the order of `Driver` (tcsym/native/device.c).
TABLE = (
    "cuLaunchKernel",
    "cuLaunchCooperativeKernel",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    *(WRITES := ("cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async")),
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphExecUpdate_v2",
    "cuGraphExecDestroy",
    "cuGraphLaunch",
    "cuMemcpyDtoDAsync_v2",
)
_SIGNATURES = {
    "cuModuleLoadDataEx": (_POINTER, ctypes.c_char_p, _UNSIGNED, _POINTER, _POINTER),
    "cuModuleUnload": (_POINTER,),
    "cuModuleGetFunction": (_POINTER, _POINTER, ctypes.c_char_p),
    "cuFuncSetAttribute": (_POINTER, _INT, _INT),
    "cuMemsetD8Async": (_ADDRESS, ctypes.c_ubyte, _SIZE, _POINTER),
    "cuMemsetD16Async": (_ADDRESS, ctypes.c_ushort, _SIZE, _POINTER),
    "cuMemsetD32Async": (_ADDRESS, _UNSIGNED, _SIZE, _POINTER),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, _SIZE, _POINTER),
    "cuStreamSynchronize": (_POINTER,),
    "cuEventCreate": (_POINTER, _UNSIGNED),
    "cuEventRecord": (_POINTER, _POINTER),
    "cuEventDestroy_v2": (_POINTER,),
    "cuStreamWaitEvent": (_POINTER, _POINTER, _UNSIGNED),
    "cuPointerGetAttribute": (_POINTER, _INT, _ADDRESS),
    "cuThreadExchangeStreamCaptureMode": (_POINTER,),
    "cuStreamGetCaptureInfo_v2": (_POINTER,) * 6,
    "cuUserObjectCreate": (_POINTER, _POINTER, _POINTER, _UNSIGNED, _UNSIGNED),
    "cuGraphRetainUserObject": (_POINTER, _POINTER, _UNSIGNED, _UNSIGNED),
    "cuGetErrorString": (_INT, _POINTER),
}


@lru_cache(None)
def _library() -> ctypes.CDLL:
    driver()  # first, for its errors
    library = ctypes.CDLL(LIBRARY)
    try:
        for name, arguments in _SIGNATURES.items():
            getattr(library, name).argtypes = arguments
    except AttributeError:
        raise TargetError(
            "the CUDA driver is older than that of CUDA 12", hint="renew it"
        ) from None
    return library


@lru_cache(None)
def address(name: str) -> int:
    """Of a function, for native code."""
    found = ctypes.cast(_library()[name], _POINTER).value
    assert found
    return found


@lru_cache(None)
def table() -> bytes:
    """Addresses of what native code calls."""
    return struct.pack(f"{len(TABLE)}P", *map(address, TABLE))


def driver_error(code: int, what: str, log: str = "") -> Exception:
    """What the driver's code says, met while doing `what`."""
    text = ctypes.c_char_p()
    _library().cuGetErrorString(code, ctypes.byref(text))
    why = (text.value or b"unknown error").decode()
    if code == OUT_OF_MEMORY:
        return MemoryError(f"{what}: the CUDA driver says: {why}")
    said = f": {log}" if log else ""
    return TargetError(f"{what}: the CUDA driver says: {why} ({code}){said}")


def _check(code: int, what: str, log: str = "") -> None:
    if code:
        raise driver_error(code, what, log)


class Module:
    """Code on the device of the current context, unloaded with the object."""

    def __init__(self, code: bytes) -> None:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (_INT * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (_POINTER * 2)(ctypes.addressof(log), _LOG_BYTES)
        self._handle = _POINTER()
        given = ctypes.byref(self._handle), code, 2, options, values
        code_of_error = _library().cuModuleLoadDataEx(*given)
        text = log.value.decode(errors="replace").strip()
        _check(code_of_error, "the device's code cannot be loaded", text)

    def function(self, name: str, most_shared_bytes: int) -> int:
        """A handle. Blocks may have more shared memory than the 48 KiB that are usual."""
        handle = _POINTER()
        found = _library().cuModuleGetFunction(ctypes.byref(handle), self._handle, name.encode())
        _check(found, f"no function `{name}` in the device's code")
        allowed = _library().cuFuncSetAttribute(handle, _MOST_SHARED_BYTES, most_shared_bytes)
        _check(allowed, f"{most_shared_bytes} bytes of shared memory for `{name}`")
        assert handle.value
        return handle.value

    def unload(self) -> None:
        """In its context."""
        _library().cuModuleUnload(self._handle)


# ---- on streams that pycuda does not know


def set_number(pointer: int, content: bytes, stream: int) -> None:
    """Writes 1, 2, 4 or 8 bytes, none of which are read later: graphs keep them by value."""
    library, n = _library(), len(content)
    if n == 8:
        set_number(pointer, content[:4], stream)
        set_number(pointer + 4, content[4:], stream)
        return
    names = dict(zip((1, 2, 4), WRITES, strict=True))
    value = int.from_bytes(content, "little")
    _check(getattr(library, names[n])(pointer, value, 1, stream), "a number for a kernel")


def copy(to: int, source: int, n_bytes: int, stream: int) -> None:
    """In memory of the device."""
    _check(_library().cuMemcpyDtoDAsync_v2(to, source, n_bytes, stream), "a copy on the device")


def order(first: int, then: int) -> None:
    """What comes on stream `then` waits for what is on stream `first`; nothing waits here.

    What one graph captures cannot wait for anything else: who launches it has to see to that.
    """
    library, event = _library(), _POINTER()
    if capture_on(first) != capture_on(then):
        return
    _check(library.cuEventCreate(ctypes.byref(event), _NO_TIMING), "an order of two streams")
    try:
        _check(library.cuEventRecord(event, first), "an order of two streams")
        _check(library.cuStreamWaitEvent(then, event, 0), "an order of two streams")
    finally:
        library.cuEventDestroy_v2(event)


def wait(stream: int) -> None:
    """Until all on the stream is done."""
    _check(_library().cuStreamSynchronize(stream), "waiting for the device")


# ---- graphs that somebody captures


@contextmanager
def relaxed() -> Iterator[None]:
    """Inside, this thread may allocate and load code, whoever captures a stream."""
    mode = _INT(_RELAXED)
    exchange = _library().cuThreadExchangeStreamCaptureMode
    _check(exchange(ctypes.byref(mode)), "a call while a graph is captured")
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


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
    asked = _library().cuStreamGetCaptureInfo_v2(stream, *found, None, None)
    _check(asked, "asking whether a stream is captured")
    return Capture(number.value, graph.value or 0)


def note_end(graph: int, word: int, mark: int) -> None:
    """Once the graph and what was made of it are gone, the driver calls `mark(word)`."""
    library, made = _library(), _POINTER()
    noted = "memory for a graph"
    _check(library.cuUserObjectCreate(ctypes.byref(made), word, mark, 1, _NO_ORDER), noted)
    _check(library.cuGraphRetainUserObject(graph, made, 1, _MOVE), noted)


def device_of_pointer(pointer: int) -> int:
    """Number of the device whose memory it points to."""
    number = _INT()
    given = ctypes.byref(number), _DEVICE_ORDINAL, pointer
    _check(_library().cuPointerGetAttribute(*given), "memory of which the driver knows no device")
    return number.value


def functions_of(module: Module, names: Sequence[str], most_shared_bytes: int) -> tuple[int, ...]:
    return tuple([module.function(name, most_shared_bytes) for name in names])
