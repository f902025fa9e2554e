"""Memory of large results: numpy arrays whose blocks are used again once the arrays are gone.

The system takes large memory back as soon as it is freed, and gives it zeroed, page by page, when
it is written again: for a result of 32 MiB that takes twice as long as computing it. Results of at
least `LEAST` bytes get blocks of huge pages instead, through numpy's interface for memory handlers
(NEP 49): such an array owns its data, and may be resized as any other. Idle blocks are kept up to a
bound, and until many others became idle after them. Everything is loaded by the first large result.
"""

from __future__ import annotations

import ctypes
from _thread import allocate_lock
from typing import Any, NamedTuple

from tcsym.runtime.numpy_facts import array_function, arrays_are_as_expected

_FIELDS = (  # the words of %State in blocks.ll, before its slots
    *("least", "new_array", "loader", "lock", "count", "idle", "most", "clock"),
    *("capsule", "handler_at", "new_from_descr", "ndarray"),
)
_AT = {name: k for k, name in enumerate(_FIELDS)}
_NEVER, _UNDECIDED = 2**62, -1
_HANDLER_AT, _NEW_FROM_DESCR, _GET_HANDLER = 88, 94, 305  # in an array; in numpy's table
LEAST = 4 * 2**20  # bytes of a large result
STATE = (ctypes.c_int64 * 28)()  # %State of blocks.ll
STATE[_AT["least"]], STATE[_AT["most"]] = LEAST, _UNDECIDED
_lock = allocate_lock()
_functions: dict[str, Any] = {}


class ResultMemory(NamedTuple):
    """Bytes. `most`: of idle memory that may be kept; `idle`: that is kept now, in `blocks`."""

    most: int
    idle: int
    blocks: int


def set_result_memory(most: int) -> None:
    """Keeps at most that many bytes of freed large results for later ones; 0: none.

    What is idle beyond it is given back to the system now. Errors: OptionError unless it is an
    integer >= 0. Without a call, TCSYM_RESULT_MEMORY says it.
    """
    from tcsym.errors import OptionError

    if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= _NEVER:
        raise OptionError(f"result memory is {most!r}, expected a number of bytes >= 0")
    STATE[_AT["most"]] = most
    if "trim" in _functions:
        _functions["trim"](ctypes.addressof(STATE))


def get_result_memory() -> ResultMemory:
    """The bound in force, and what is idle now."""
    return ResultMemory(_decided(), STATE[_AT["idle"]], STATE[_AT["count"]])


def large_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """A new uninitialised array; None if it is not large, or must be numpy's own."""
    n_bytes = int(dtype.itemsize)
    for extent in shape:
        n_bytes *= extent
    if n_bytes < STATE[_AT["least"]] or not is_loaded():
        return None
    extents = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    made = _functions["new"](ctypes.addressof(STATE), len(shape), extents, id(dtype), n_bytes)
    if not made:
        return None
    array = ctypes.cast(made, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(array))  # the function's own reference
    return array


def _decided() -> int:
    if STATE[_AT["most"]] == _UNDECIDED:
        from tcsym.config import RESULT_MEMORY

        STATE[_AT["most"]] = RESULT_MEMORY.read()
    return int(STATE[_AT["most"]])


def is_loaded() -> bool:
    """Loads the native part, once; False where numpy does not look as expected."""
    if not _functions:
        with _lock:
            if not _functions and STATE[_AT["least"]] != _NEVER:
                STATE[_AT["least"]] = LEAST if _load() else _NEVER
    return bool(_functions)


STATE[_AT["loader"]] = id(is_loaded)  # the first large result of an entry calls it


def _load() -> bool:
    from tcsym.runtime.loader import load_object
    from tcsym.runtime.memory import c_function
    from tcsym.runtime.own_objects import own_object

    if not arrays_are_as_expected() or not _handlers_are_as_expected():
        return False
    image = load_object(own_object("blocks"), c_function)
    names = ("malloc", "calloc", "realloc", "free")
    handler = _Handler(b"tcsym", 1, ctypes.addressof(STATE))
    for name in names:
        setattr(handler, name, image.address(f"tcsym_block_{name}"))
    make, address, integer = ctypes.pythonapi.PyCapsule_New, ctypes.c_void_p, ctypes.c_int64
    make.restype, make.argtypes = ctypes.py_object, (address, ctypes.c_char_p, address)
    capsule = make(ctypes.addressof(handler), _CAPSULE_NAME, None)
    for kept in (image, handler, capsule, STATE, _CAPSULE_NAME):  # arrays outlive our modules
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    import numpy as np

    facts = {
        "capsule": id(capsule),
        "handler_at": _HANDLER_AT,
        "new_from_descr": array_function(_NEW_FROM_DESCR),
        "ndarray": id(np.ndarray),
    }
    _decided()
    for name, word in facts.items():
        STATE[_AT[name]] = word
    new = ctypes.PYFUNCTYPE(address, address, ctypes.c_int32, address, address, integer)
    start = image.address("tcsym_new_array")
    _functions["trim"] = ctypes.PYFUNCTYPE(None, address)(image.address("tcsym_trim"))
    _functions["new"] = new(start)
    STATE[_AT["new_array"]] = start  # the last: entries may use it now
    return True


_CAPSULE_NAME = b"mem_handler"


class _Handler(ctypes.Structure):
    """numpy's PyDataMem_Handler."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


def _handlers_are_as_expected() -> bool:
    """True if arrays that own their data, and only those, name numpy's handler at its place."""
    import numpy as np

    if tuple(map(int, np.__version__.split(".")[:2])) < (1, 22):
        return False
    get = ctypes.PYFUNCTYPE(ctypes.py_object)(array_function(_GET_HANDLER))
    own = np.empty((3, 5))
    word = [ctypes.c_uint64.from_address(id(x) + _HANDLER_AT).value for x in (own, own[1:])]
    return word == [id(get()), 0] and np.ndarray.__basicsize__ >= _HANDLER_AT + 8
