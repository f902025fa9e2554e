# SPDX-License-Identifier: Apache-2.0
"""Calls machine code of this process in an emulated processor with AVX-512.

The processor is that of Bochs (package bochscpu-python). It shares our memory: gigabyte pages map
every address of the process to itself, and a page appears when it is first touched. So generated
code runs where it was loaded, on the arrays it was given, whatever vector unit this machine has.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tests.emulation.newer_glibc import provide_newer_symbols

PAGE, GIGA = 1 << 12, 1 << 30
_TABLES = PAGE  # physical address of the page tables: one of the top level, then 256 below it
_TOP_ENTRIES = 256
_PRESENT_WRITABLE_USER, _GIGABYTE_PAGE = 0b111, 0x80
_ARGUMENT_REGISTERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_HLT, _INVALID_OPCODE = b"\xf4", 6
_EVEX = b"\x62"
_GATHERS = (*range(0x90, 0x94), *range(0xA0, 0xA4))  # and scatters


class EmulationError(RuntimeError):
    """The emulated processor raised an exception.

    is_refusal: a defect of the emulator, at a valid gather or scatter with an index register above
    15, or in code for which `inserts_bytes` holds.
    """

    def __init__(self, message: str, is_refusal: bool) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


def bochs() -> ModuleType:
    """The emulator's package. ImportError if it is not installed or does not load."""
    provide_newer_symbols()
    import bochscpu.cpu
    import bochscpu.memory

    return bochscpu


def _pages(size: int) -> int:
    """Address of zeroed pages that are never given back: the emulator outlives Python's objects."""
    mmap = ctypes.CDLL(None).mmap
    mmap.restype = ctypes.c_void_p
    mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    read_write, private_anonymous = 3, 0x22
    address = mmap(None, size, read_write, private_anonymous, -1, 0)
    assert address not in (None, ctypes.c_void_p(-1).value), "mmap failed"
    return int(address)


class Processor:
    """One emulated processor. Code once executed must stay loaded: the emulator remembers it."""

    def __init__(self, stack_bytes: int = 8 << 20) -> None:
        self._bochs = bochs()
        self._gigabytes: list[int] = []  # number of ours behind each gigabyte of physical memory
        tables = _pages((_TOP_ENTRIES + 1) * PAGE)
        self._entries = (ctypes.c_uint64 * (512 * (_TOP_ENTRIES + 1))).from_address(tables)
        self._stack_top = _pages(stack_bytes) + stack_bytes - PAGE
        self._return_address = _pages(PAGE)
        ctypes.memmove(self._return_address, _HLT, 1)
        self._fault: EmulationError | None = None
        self._session = self._bochs.Session()
        self._session.missing_page_handler = self._add_page
        self._hook = self._bochs.Hook()
        self._hook.hlt = lambda session, _: session.stop()
        self._hook.exception = self._raised
        atexit.register(self._close)
        for k in range(_TOP_ENTRIES + 1):
            self._bochs.memory.page_insert(_TABLES + k * PAGE, tables + k * PAGE)
        for k in range(_TOP_ENTRIES):
            self._entries[k] = _TABLES + (k + 1) * PAGE | _PRESENT_WRITABLE_USER

    def call(self, address: int, arguments: Sequence[int]) -> int:
        """Result of the C function at `address` for at most six integers or addresses."""
        self._map_process()
        self._fault = None
        self._session.cpu.state = self._state(address, arguments)
        self._session.run([self._hook])
        if self._fault:
            raise self._fault
        return int(self._session.cpu.state.rax)

    def _close(self) -> None:
        """The emulator's objects must go one by one, before the interpreter does."""
        del self._hook
        self._session.missing_page_handler = print  # no cycle through us any more
        del self._session

    # ---- memory

    def _map_process(self) -> None:
        """A gigabyte page for every gigabyte in which this process has memory."""
        known = set(self._gigabytes)
        with open("/proc/self/maps") as maps:
            for line in maps:
                first, last = (int(x, 16) for x in line.split(" ", 1)[0].split("-"))
                for number in range(first // GIGA, (last - 1) // GIGA + 1):
                    if number not in known and number < _TOP_ENTRIES * 512:
                        known.add(number)
                        self._gigabytes.append(number)
                        physical = len(self._gigabytes) * GIGA
                        flags = _PRESENT_WRITABLE_USER | _GIGABYTE_PAGE
                        self._entries[512 + number] = physical | flags

    def _add_page(self, physical: int) -> None:
        number, offset = divmod(physical & -PAGE, GIGA)
        ours = self._gigabytes[number - 1] * GIGA + offset
        self._bochs.memory.page_insert(physical & -PAGE, ours)

    # ---- registers

    def _state(self, address: int, arguments: Sequence[int]) -> Any:
        """Registers at the entry of a C function, in 64-bit mode with every vector unit on."""
        state = self._bochs.State()
        state.cr0, state.cr3, state.cr4 = 0x80050033, _TABLES, 0x000406B0
        state.efer, state.xcr0 = 0xD01, 0xE7
        state.rflags, state.mxcsr, state.mxcsr_mask, state.fpcw = 2, 0x1F80, 0xFFFF, 0x37F
        for name in ("cs", "ss", "ds", "es", "fs", "gs"):
            setattr(state, name, self._segment(name))
        state.rip, state.rsp = address, self._stack_top - 8
        ctypes.c_uint64.from_address(state.rsp).value = self._return_address
        for name, value in zip(_ARGUMENT_REGISTERS, arguments):
            setattr(state, name, value)
        return state

    def _segment(self, name: str) -> Any:
        segment = self._bochs.Segment()
        segment.present, segment.limit = True, 0xFFFFFFFF
        segment.selector, segment.attr = (0x10, 0xA09B) if name == "cs" else (0x18, 0xC093)
        segment.base = _thread_pointer() if name == "fs" else 0
        return segment

    def _raised(self, session: Any, _cpu: int, vector: int, code: int) -> None:
        state = session.cpu.state
        text = f"exception {vector} ({code}) near {state.rip:#x}, address {state.cr2:#x}"
        is_refusal = vector == _INVALID_OPCODE and _ends_high_index_gather(state.rip)
        self._fault = EmulationError(text, is_refusal)
        session.stop()


def _ends_high_index_gather(end: int) -> bool:
    """A gather or scatter of that kind ends at `end` (EVEX.V' = 0, Intel SDM volume 2A, 2.7.2)."""
    for length in range(7, 12):
        code = ctypes.string_at(end - length, length)
        if code[:1] == _EVEX and code[4] in _GATHERS and not code[3] & 0b1000:
            return True
    return False


def inserts_bytes(code: bytes) -> bool:
    """VPINSRB of a byte in memory into a register above 15 is in `code`: the emulator's is wrong.

    By the EVEX prefix, map 0F3A, opcode 20 and an operand in memory; data may look like that, too.
    """
    at = code.find(_EVEX)
    while 0 <= at < len(code) - 5:
        is_map, is_opcode = code[at + 1] & 0b111 == 0b011, code[at + 4] == 0x20
        if is_map and is_opcode and code[at + 2] & 0b11 == 1 and code[at + 5] < 0xC0:
            return True
        at = code.find(_EVEX, at + 1)
    return False


def _thread_pointer() -> int:
    value, get_fs = ctypes.c_uint64(), 0x1003
    ctypes.CDLL(None).syscall(158, get_fs, ctypes.byref(value))  # arch_prctl
    return value.value


def available() -> bool:
    with contextlib.suppress(ImportError, OSError):
        bochs()
        return True
    return False
