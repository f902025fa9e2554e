# SPDX-License-Identifier: Apache-2.0
"""The interpreter in place of a device: kernels for `cuda:sm_80` or `cuda:sm_90a` run here.

A kernel's host half is machine code of this machine; what it launches is run by `machine.py`, in a
memory that holds copies of the call's arrays, apart from each other, and of nothing else.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tcsym.errors import TCError
from tcsym.ir.archive import SYMBOL
from tcsym.ir.compiled import CONTEXT_FIELDS, Compiled, Fault
from tcsym.runtime.cpu import Cpu
from tcsym.runtime.device import DEVICES
from tcsym.runtime.entering import EntryImage, Failed, Slow
from tcsym.runtime.jit import WholeKernel
from tcsym.runtime.loader import load_archive
from tcsym.runtime.memory import c_function
from tcsym.runtime.view import HERE, Library, Place, View
from tcsym.target.target import Target
from tcsym.types import DType
from tests.ptx.machine import Launch, Program
from tests.ptx.memory import READ, SHARED, WRITE, Space

IN_TEXTS, RUN = Counter[str](), set[str]()  # names of instructions, in this process
_NAME = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]+)", re.M)
MEMORY_AT = 1 << 40  # the first address; none is one of this process
_APART, _LINE = 4096, 256
STAYING = 3  # blocks that run together, where a kernel asks for that
_GIVEN = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 5)
_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, *_GIVEN)
_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)


class PtxDevice(Cpu):
    """Arrays are numpy's. loaded: the kernels. updated: names of inputs that may be written."""

    name = "interpreter of PTX"

    def __init__(self, updated: Collection[str] = ()) -> None:
        self.loaded: list[PtxKernel] = []
        self._updated = updated
        self._extents: dict[int, tuple[int, int, bool]] = {}

    def require(self, target: Target) -> None:
        """All of them."""

    def load(self, compiled: Compiled, fault_error: Callable[[Fault], TCError]) -> PtxKernel:
        self.loaded.append(PtxKernel(compiled, self._extents))
        return self.loaded[-1]

    def gathered(
        self, names: Sequence[str], views: Sequence[View]
    ) -> tuple[tuple[View, ...], Place]:
        for view in views:
            self._extents.pop(view.pointer, None)
        for name, view in zip(names, views, strict=True):
            self._note(view, name in self._updated)
        return super().gathered(names, views)

    def admitted(self, view: View, place: Place) -> View:
        self._note(view, True)
        return super().admitted(view, place)

    def result(self, library: Library, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
        return self._new(super().result(library, shape, dtype, place))

    def temporary(self, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
        return self._new(super().temporary(shape, dtype, place))

    def private_copy(self, view: View) -> View:
        made = super().private_copy(view)
        self._note(made, True)
        return made

    def _new(self, view: View) -> View:
        self._note(view, True)
        low, high, _ = self._extents[view.pointer]
        ctypes.memset(low, 0xFF, high - low)
        return view

    def _note(self, view: View, is_written: bool) -> None:
        assert view.dtype is not None
        ends = [(n - 1) * s for n, s in zip(view.shape, view.strides)]
        low = view.pointer + sum(min(0, e) for e in ends)
        high = view.pointer + sum(max(0, e) for e in ends) + view.dtype.bytes
        if 0 in view.shape:
            low = high = view.pointer
        if not is_written and view.pointer in self._extents:  # another view of the same memory
            other = self._extents[view.pointer]
            low, high, is_written = min(low, other[0]), max(high, other[1]), other[2]
        self._extents[view.pointer] = low, high, is_written


class PtxKernel(WholeKernel):
    """Code of one variant. program: its PTX, which tests may replace."""

    def __init__(self, compiled: Compiled, extents: dict[int, tuple[int, int, bool]]) -> None:
        super().__init__(compiled)
        self._image = load_archive(compiled.object_code, c_function)
        self.address = self._image.address(SYMBOL)
        self._extents = extents
        self.text = compiled.device_code.decode().rstrip("\0")
        self.program = Program(self.text)

    def run(
        self,
        data_pointers: Sequence[int],
        sizes: Sequence[int],
        threads: int,
        place: Place = HERE,
    ) -> int:
        n_scratch = self.byte_counts(tuple(sizes), threads)[0]
        call = _Call(self, [self._extents[p] for p in data_pointers], n_scratch)
        addresses = [call.address_of(p) for p in data_pointers]
        given = self._pack_buffers(*addresses), self._pack_sizes(*sizes)
        result = call.run(*given)
        call.fetch()
        return result

    def launcher(self, place: Place) -> None:
        """None: it runs here."""

    def enter(self, image: EntryImage, slow: Slow, failed: Failed) -> Any:
        return _Through(slow)


class _Through:
    """A way in that is none: every call goes through Python."""

    def __init__(self, slow: Slow) -> None:
        self.slow, self.kept = slow, (None, ctypes.c_int64(0))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.slow(*args, **kwargs)


class _Call:
    """Memory of one call. extents: of its arrays, from address to address of the host, and whether
    they are written."""

    def __init__(
        self, kernel: PtxKernel, extents: Sequence[tuple[int, int, bool]], n_scratch: int
    ) -> None:
        self._kernel = kernel
        self._host = sorted(set(extents))
        program = kernel.program
        end, places = _APART, {}
        for name, content in program.constants.items():  # at the same places in every call
            places[name] = end
            end = -(-(end + len(content)) // _APART) * _APART + _APART
        self._first: list[int] = []
        for low, high, _ in self._host:  # as far into a line as on the host
            self._first.append(end + low % _LINE)
            end = -(-(self._first[-1] + high - low) // _APART) * _APART + _APART
        self._scratch = -(-end // _LINE) * _LINE
        self._fault = self._scratch + n_scratch + _APART
        self._fault -= self._fault % 4
        self._n_scratch = n_scratch
        self.memory = Space("global", MEMORY_AT, self._fault + _APART, program.unit)
        self.constants = {name: MEMORY_AT + at for name, at in places.items()}
        for name, content in program.constants.items():
            self._hold(places[name], content, READ)
        self._bring()
        self._raised: BaseException | None = None
        self._time = 1

    def _bring(self) -> None:
        for first, (low, high, is_written) in zip(self._first, self._host):
            content = ctypes.string_at(low, high - low)
            self._hold(first, content, READ | WRITE if is_written else READ)
        self.memory.allowed[self._scratch : self._scratch + self._n_scratch] = READ | WRITE
        self._hold(self._fault, bytes(4), READ | WRITE | SHARED)

    def _hold(self, at: int, content: bytes, use: int) -> None:
        self.memory.bytes[at : at + len(content)] = np.frombuffer(content, "u1")
        self.memory.allowed[at : at + len(content)] |= use

    def address_of(self, pointer: int) -> int:
        """Of what the host has at that pointer."""
        for first, (low, high, _) in zip(self._first, self._host):
            if low <= pointer < high or low == pointer == high:
                return MEMORY_AT + first + pointer - low
        raise AssertionError(pointer)

    def run(self, buffers: bytes, sizes: bytes) -> int:
        """The host half, and what it launches. Raises what the interpreter finds."""
        launch = _RUN(self._launched)
        values = {
            "parallel_for": ctypes.cast(launch, ctypes.c_void_p).value,
            "threads": 1,
            "shared_arena": MEMORY_AT + self._scratch,
            "fault_word": MEMORY_AT + self._fault,
        }
        context = (ctypes.c_uint64 * len(CONTEXT_FIELDS))(
            *(values.get(field) or 0 for field in CONTEXT_FIELDS)
        )
        result = _KERNEL(self._kernel.address)(buffers, sizes, context)
        if self._raised is not None:
            raise self._raised
        found = int(self.memory.load(np.array([self._fault]), 4)[0])
        return int(result) or found

    def _launched(self, pool: int, function: int, words: int, n_words: int, *shape: int) -> int:
        blocks, threads, shared_bytes, together = shape
        if self._raised is not None:
            return -1
        given = list((ctypes.c_uint64 * n_words).from_address(words))
        if together:
            blocks = min(blocks, STAYING)
        try:
            if blocks > 0:
                self._run(function, given, (blocks, threads, shared_bytes), bool(together))
        except BaseException as error:
            self._raised = error
            return -1
        return 0

    def _run(
        self, function: int, words: list[int], shape: tuple[int, int, int], together: bool
    ) -> None:
        program, name = self._kernel.program, self._kernel.compiled.device_functions[function]
        launch = Launch(program, self.constants, self.memory, name, words, shape)
        self._time = launch.run(self._time, together)

    def fetch(self) -> None:
        """What was written, into the host's arrays."""
        for first, (low, high, is_written) in zip(self._first, self._host):
            if is_written:
                content = self.memory.bytes[first : first + high - low].tobytes()
                ctypes.memmove(low, content, high - low)


@contextmanager
def interpreted(updated: Collection[str] = ()) -> Iterator[PtxDevice]:
    """Inside, kernels for CUDA run in the interpreter."""
    before, device = DEVICES.get("cuda"), PtxDevice(updated)
    DEVICES["cuda"] = device
    try:
        yield device
    finally:
        for kernel in device.loaded:
            IN_TEXTS.update(_NAME.findall(kernel.text))
            RUN.update(s.name for s in kernel.program.ran())
        if before is None:
            del DEVICES["cuda"]
        else:
            DEVICES["cuda"] = before
