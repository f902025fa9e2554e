# SPDX-License-Identifier: Apache-2.0
"""The processor and its memory as a `Device`: code in pages, arenas, worker pool, result blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsym.errors import TargetError
from tcsym.ir.compiled import ARENA_LINE
from tcsym.process.config import CHECK_TWIN, VERIFY
from tcsym.process.system import require_runs_code
from tcsym.runtime.arrays import (
    CPU_READS,
    empty,
    numpy_array,
    numpy_view,
    private_copy,
    result_object,
    view_of,
)
from tcsym.runtime.native import native, require_native
from tcsym.runtime.processor import known_processor
from tcsym.runtime.view import HERE, Library, Place, View
from tcsym.target.host import runs_here

if TYPE_CHECKING:
    from tcsym.errors import TCError
    from tcsym.ir.compiled import Compiled, Fault
    from tcsym.runtime.jit import LoadedKernel
    from tcsym.target.target import Target
    from tcsym.types import DType


class Cpu:
    """The processors of this machine."""

    name = "CPU"
    waits = True
    reads = CPU_READS

    def require(self, target: Target) -> None:
        require_runs_code()
        if not runs_here(target, known_processor()):
            raise TargetError(
                f"target `{target.name}` needs processor features this machine lacks",
                hint='use "cpu", or "cpu:novector"',
            )

    def present(self) -> None:
        """Always."""

    def load(self, compiled: Compiled, fault_error: Callable[[Fault], TCError]) -> LoadedKernel:
        from tcsym.runtime.jit import load

        return load(compiled)

    def view_of(self, x: object) -> View:
        return view_of(x)

    def gathered(
        self, names: Sequence[str], views: Sequence[View]
    ) -> tuple[tuple[View, ...], Place]:
        return tuple(views), HERE

    def admitted(self, view: View, place: Place) -> View:
        return view

    def result(self, library: Library, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
        return empty(library, shape, dtype)

    def temporary(self, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
        return empty("numpy", shape, dtype)

    def private_copy(self, view: View) -> View:
        return private_copy(view)

    def copy(self, to: View, source: View) -> None:
        np.copyto(numpy_array(to), numpy_array(source))

    def moved(self, x: np.ndarray[Any, Any], number: int = 0) -> View:
        return numpy_view(x)

    def block(self, n_bytes: int, place: Place) -> View:
        memory = np.empty(n_bytes + ARENA_LINE, np.uint8)
        start = -memory.ctypes.data % ARENA_LINE
        return numpy_view(memory[start : start + n_bytes])

    def part(self, block: View, at: int, shape: tuple[int, ...], dtype: DType) -> View:
        memory = numpy_array(block)[at : at + prod(shape) * dtype.bytes]
        return numpy_view(memory.view(dtype.numpy).reshape(shape))

    def in_library(self, view: View, library: Library) -> Any:
        if library != "torch":
            return result_object(view._replace(library=library))
        from tcsym.runtime.torch_views import tensor_of

        return tensor_of(view)

    def begin(self, place: Place, before: Place | None) -> None:
        """A call has ended when the next begins."""

    def fetched(self, view: View) -> np.ndarray[Any, Any]:
        return numpy_array(view)

    def synchronize(self) -> None:
        """Nothing runs when a call has returned."""


class Twin(Cpu):
    """The processor in place of a device."""

    name = "CPU, as the twin of a CUDA device"

    def require(self, target: Target) -> None:
        require_runs_code()
        require_native(target.name)

    def load(self, compiled: Compiled, fault_error: Callable[[Fault], TCError]) -> LoadedKernel:
        native.simt_check(CHECK_TWIN.read() or VERIFY.read())
        return super().load(compiled, fault_error)
