# SPDX-License-Identifier: Apache-2.0
"""CUDA devices as a `Device`. The driver is not loaded before a call needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tcsym.errors import TargetError
from tcsym.process.system import require_runs_code
from tcsym.runtime.arrays import numpy_array
from tcsym.runtime.cuda.arrays import (
    DeviceArray,
    device_array,
    device_view,
    new_array,
    place_of,
    shown_in,
)
from tcsym.runtime.cuda.code import CudaKernel
from tcsym.runtime.cuda.driver import copy, order, set_number
from tcsym.runtime.cuda.primary import primary, used
from tcsym.runtime.native import require_native
from tcsym.runtime.view import (
    ANY_STREAM,
    CUDA,
    CUDA_MANAGED,
    Library,
    Misplaced,
    Place,
    Unusable,
    View,
)
from tcsym.target.devices import capability, driver, runs_on
from tcsym.target.target import TWIN, Target
from tcsym.types import DType

if TYPE_CHECKING:
    import numpy as np

    from tcsym.errors import TCError
    from tcsym.ir.compiled import Compiled, Fault


class Cuda:
    """NVIDIA's devices."""

    name = "CUDA device"
    waits = False
    reads = frozenset((CUDA, CUDA_MANAGED))

    def require(self, target: Target) -> None:
        require_runs_code()
        require_native(target.name)
        here = capability()
        if not runs_on(target.machine.name, here):
            major, minor = here
            raise TargetError(
                f"code for `{target.machine.name}` does not run on the device here, "
                f"of compute capability {major}.{minor}",
                hint=f'use "cuda" for this device; "{TWIN}" runs on the host',
            )

    def present(self) -> None:
        driver()

    def load(self, compiled: Compiled, fault_error: Callable[[Fault], TCError]) -> CudaKernel:
        return CudaKernel(compiled, fault_error)

    def view_of(self, x: object) -> View:
        return device_view(x)

    def gathered(
        self, names: Sequence[str], views: Sequence[View]
    ) -> tuple[tuple[View, ...], Place]:
        """On the stream on which the library of the arguments works, which waits for the others'.

        Numbers, which are no library's, are written into memory of the device.
        """
        arrays = [(k, v) for k, v in enumerate(views) if v.place.type in self.reads]
        place = place_of(0, 0)
        if arrays:
            first, place = arrays[0][0], arrays[0][1].place
            for k, view in arrays:
                if view.place.number != place.number:
                    why = f"is on {view.place.name}, but `{names[first]}` is on {place.name}"
                    raise Misplaced(k, why, "all arguments of a call have to be on one device")
            place = place_of(place.number, _stream([view for _, view in arrays]))
            for _, view in arrays:
                _follow(view.place.stream, place)
        moved = [
            v._replace(place=place) if v.place.type in self.reads else self._number(v, place)
            for v in views
        ]
        return tuple(moved), place

    def _number(self, view: View, place: Place) -> View:
        """In memory of the stream, which the next call there may use again."""
        assert view.dtype is not None
        made = self.temporary((), view.dtype, place)
        with primary(place.number):
            set_number(made.pointer, numpy_array(view).tobytes(), place.stream)
        return made._replace(library="numpy")

    def admitted(self, view: View, place: Place) -> View:
        """An array to write into, on the call's stream."""
        if view.place.number != place.number:
            raise Unusable(f"is on {view.place.name}, but the arguments are on {place.name}")
        if not view.aligned:
            raise _unaligned()
        _follow(view.place.stream, place)
        return view._replace(place=place)

    def result(self, library: Library, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
        return new_array(library, shape, dtype, place)

    def temporary(self, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
        return self.result("dlpack", shape, dtype, place)

    def private_copy(self, view: View) -> View:
        if not (view.dense and view.aligned and view.dtype is not None):
            raise _unaligned()
        made = self.temporary(view.shape, view.dtype, view.place)
        self.copy(made, view)
        return made._replace(library=view.library, original=view)

    def copy(self, to: View, source: View) -> None:
        """Of dense arrays."""
        assert to.dense and source.dense
        with primary(to.place.number):
            copy(to.pointer, source.pointer, to.n_bytes, to.place.stream)

    def moved(self, x: np.ndarray[Any, Any], number: int = 0) -> View:
        return device_array(x, number).view

    def block(self, n_bytes: int, place: Place) -> View:
        memory = primary(place.number).allocate(n_bytes)
        return DeviceArray((n_bytes,), DType.UINT8, place, memory).view

    def part(self, block: View, at: int, shape: tuple[int, ...], dtype: DType) -> View:
        return DeviceArray(shape, dtype, block.place, block.owner, at).view

    def in_library(self, view: View, library: Library) -> Any:
        return shown_in(library, (self.private_copy(view) if library == "jax" else view).owner)

    def begin(self, place: Place, before: Place | None) -> None:
        primary(place.number).faults.raise_found()
        if before is not None:
            _follow(before.stream, place)

    def fetched(self, view: View) -> np.ndarray[Any, Any]:
        host: np.ndarray[Any, Any] = view.owner.copy_to_host()
        return host

    def synchronize(self) -> None:
        places = used()
        for place in places:
            place.synchronize()
        for place in places:
            place.faults.raise_found()


def _stream(views: Sequence[View]) -> int:
    """torch and cupy work on streams that they call the current ones; others do not move."""
    for library in ("torch", "cupy"):
        for view in views:
            if view.library == library:
                return view.place.stream
    streams = [v.place.stream for v in views if v.place.stream != ANY_STREAM]
    return streams[0] if streams else 0


def _follow(stream: int, place: Place) -> None:
    """What the call does comes after what is on the stream now."""
    if stream not in (ANY_STREAM, place.stream):
        with primary(place.number):
            order(stream, place.stream)


def _unaligned() -> Unusable:
    return Unusable(
        "does not lie at multiples of its element, and copies on devices are not made",
        "make a copy: `x.clone()`, `x.copy()`",
    )
