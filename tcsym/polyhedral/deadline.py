"""Seconds -> a wall-clock bound on isl work: checks between calls, and an abort inside a long call.

islpy holds the interpreter lock during a call, so no Python thread could interrupt one. A POSIX
timer starts a native thread that calls `isl_ctx_abort` instead; isl then fails with an error at its
next operation. Where that is not possible (no glibc, another islpy), only the checks between calls
remain.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import islpy as isl
from msgspec import Struct

_MAGIC = 0x5EED_C0DE_7357
_SIGEV_THREAD = 2
_CLOCK_MONOTONIC = 1
_late: deque[isl.Context] = deque(maxlen=64)  # a timer's thread may still be about to abort these


class TimeLimit(Exception):
    """The time for scheduling is used up."""


class Deadline(Struct, frozen=True):
    """A moment of `time.perf_counter()`."""

    at: float

    @staticmethod
    def after(seconds: float) -> Deadline:
        return Deadline(time.perf_counter() + seconds)

    @property
    def left(self) -> float:
        return self.at - time.perf_counter()

    def check(self) -> None:
        """Raise TimeLimit when the time is up."""
        if self.left <= 0:
            raise TimeLimit


@contextmanager
def isl_within(context: isl.Context, deadline: Deadline) -> Iterator[None]:
    """isl calls on `context` in the body fail once `deadline` has passed: TimeLimit."""
    deadline.check()
    timer = _start_timer(context, deadline.left)
    try:
        yield
    except Exception:  # isl's own, or Python's over a null object: islpy reads texts as None
        if context.aborted():
            raise TimeLimit from None
        raise
    else:
        if context.aborted():  # what the body has found may come of a null object
            raise TimeLimit
    finally:
        if timer is not None:
            _stop_timer(timer)
            if deadline.left < 0.1:
                _late.append(context)
            context.resume()


# ---- the native timer


class _Event(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("padding", ctypes.c_char * 40),
    )


class _Times(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


@lru_cache(None)
def _libraries() -> tuple[ctypes.CDLL, int] | None:
    """libc with POSIX timers, and the address of `isl_ctx_abort`."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        from islpy import _isl

        libc = ctypes.CDLL(None)
        abort = ctypes.CDLL(str(_isl.__file__)).isl_ctx_abort
        libc.timer_create.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        libc.timer_settime.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        libc.timer_delete.argtypes = [ctypes.c_void_p]
    except (AttributeError, ImportError, OSError):
        return None
    return libc, ctypes.cast(abort, ctypes.c_void_p).value or 0


def _start_timer(context: isl.Context, seconds: float) -> ctypes.c_void_p | None:
    found, address = _libraries(), _context_address(context)
    if found is None or address is None:
        return None
    libc, abort = found
    event = _Event(value=address, notify=_SIGEV_THREAD, function=abort)
    timer = ctypes.c_void_p()
    if libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
        return None
    whole = int(seconds)
    times = _Times(s=whole, ns=max(1, int((seconds - whole) * 1e9)))
    libc.timer_settime(timer, 0, ctypes.byref(times), None)
    return timer


def _stop_timer(timer: ctypes.c_void_p) -> None:
    found = _libraries()
    if found is not None:
        found[0].timer_delete(timer)


def _context_address(context: isl.Context) -> int | None:
    """Address of the isl_ctx behind `context`, recognised by a number stored in it.

    Read through /proc/self/mem: a wrong guess is then an error, never a crash.
    """
    before = context.get_max_operations()
    context.set_max_operations(_MAGIC)
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            fd = memory.fileno()
            # the object may end where its page does, so that fewer bytes come
            words = os.pread(fd, 48, id(context) + 16)
            for (pointer,) in struct.iter_unpack("Q", words[: len(words) // 8 * 8]):
                if _holds_magic(fd, pointer):
                    return int(pointer)
    except OSError:
        return None
    finally:
        context.set_max_operations(before)
    return None


def _holds_magic(fd: int, pointer: int) -> bool:
    if pointer < 4096 or pointer % 8:
        return False
    try:
        data = os.pread(fd, 2048, pointer)
    except (OSError, OverflowError):
        return False
    return struct.pack("Q", _MAGIC) in data
