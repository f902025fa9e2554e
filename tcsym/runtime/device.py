# SPDX-License-Identifier: Apache-2.0
"""Kind of target -> `Device`: what loads its code, holds its arrays and runs its calls.

`DEVICES` has those that were asked for. Calls, layouts, variants and dispatch know a device by
these protocols alone; scratch memory, threads and pages of code are its own affair. Faults that
code finds are the result of `Code.run`, if that waits for the end of the code; else a later one
raises them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tcsym.runtime.cpu import Cpu, Twin
from tcsym.runtime.view import HERE, Place
from tcsym.target.target import Target, kind_of

if TYPE_CHECKING:
    import numpy as np

    from tcsym.errors import TCError
    from tcsym.ir.compiled import Compiled, Fault
    from tcsym.runtime.entering import EntryImage, Failed, Slow
    from tcsym.runtime.view import Library, View
    from tcsym.types import DType


class Code(Protocol):
    """Code of one variant; of some of it, as calls need it. For several threads at once."""

    @property
    def compiled(self) -> Compiled:
        """What there is of it."""

    @property
    def is_whole(self) -> bool:
        """True if no code is missing."""

    def run(
        self,
        data_pointers: Sequence[int],
        sizes: Sequence[int],
        threads: int,
        place: Place = HERE,
    ) -> int:
        """Runs on arguments and sizes in the variant's order: 0, or 1 + the index of a fault.

        place: where the arguments are. There it may run after this returns.
        """

    def whole(self) -> LoadedCode:
        """With all of the code; what is missing is compiled now."""

    def grown(self) -> LoadedCode:
        """With all of the code; calls go first while that is made."""

    def ready(self, sizes: Sequence[int]) -> LoadedCode:
        """With what calls of these sizes, in the variant's order, launch."""


class LoadedCode(Code, Protocol):
    """All code of one variant, in the device's memory."""

    @property
    def address(self) -> int:
        """Of its host half."""

    def byte_counts(self, sizes: tuple[int, ...], threads: int) -> tuple[int, int]:
        """Scratch memory that a call needs: shared, and of each task. Errors: MemoryError."""

    def launcher(self, place: Place) -> Any:
        """What native code launches it by on a device; None on the host."""

    def enter(self, image: EntryImage, slow: Slow, failed: Failed) -> Any:
        """A native way in, which passes what it does not serve to `slow`; `failed` raises what a
        check in the code found."""

    def __hash__(self) -> int:
        """By identity."""


class Device(Protocol):
    """What one kind of target runs on.

    name: in messages. reads: DLPack's types of devices whose memory its code reads in place. waits:
    a call returns when its results are there, so that it can be timed.
    """

    name: str
    waits: bool
    reads: frozenset[int]

    def require(self, target: Target) -> None:
        """TargetError if code for the target cannot run here."""

    def present(self) -> None:
        """TargetError if there is none here."""

    def load(self, compiled: Compiled, fault_error: Callable[[Fault], TCError]) -> LoadedCode:
        """Code that can be run. fault_error: of a check that failed in it."""

    def view_of(self, x: object) -> View:
        """View of any array, also where the device cannot read it. Raises Unusable."""

    def gathered(
        self, names: Sequence[str], views: Sequence[View]
    ) -> tuple[tuple[View, ...], Place]:
        """The inputs of a call as its code reads them, and where it runs.

        Raises Misplaced.
        """

    def admitted(self, view: View, place: Place) -> View:
        """An array that a call there may write. Raises Unusable."""

    def result(self, library: Library, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
        """New uninitialised memory for a result, in the library's kind of array."""

    def temporary(self, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
        """New uninitialised memory that no caller sees."""

    def private_copy(self, view: View) -> View:
        """A dense copy; it remembers what it was copied from. Raises Unusable."""

    def copy(self, to: View, source: View) -> None:
        """All elements, between memory of the device."""

    def moved(self, x: np.ndarray[Any, Any], number: int = 0) -> View:
        """A dense array of the host in the memory of the device of that number; `x` itself where
        the host's is that."""

    def block(self, n_bytes: int, place: Place) -> View:
        """New memory of just so many bytes, which begins at a line."""

    def part(self, block: View, at: int, shape: tuple[int, ...], dtype: DType) -> View:
        """A dense array in a block, from a byte on."""

    def in_library(self, view: View, library: Library) -> Any:
        """An array of `part` in the library's kind, in the same memory. JAX's is a copy."""

    def begin(self, place: Place, before: Place | None) -> None:
        """Before a call in memory that a call at `before` used: it follows that. Raises what checks
        in earlier calls found."""

    def fetched(self, view: View) -> np.ndarray[Any, Any]:
        """The contents of a dense array, once they are computed."""

    def synchronize(self) -> None:
        """Until all that was begun there is done. Raises what checks in it found."""


DEVICES: dict[str, Device] = {"cpu": Cpu(), "twin": Twin()}


def device_of(target: Target | str | None) -> Device:
    """That of a target, or of the target of that name."""
    kind = target.kind if isinstance(target, Target) else kind_of(target)
    if kind == "cuda" and kind not in DEVICES:  # nothing of it is loaded before
        from tcsym.runtime.cuda.device import Cuda

        DEVICES[kind] = Cuda()
    return DEVICES[kind]


def synchronize() -> None:
    """Wait for all kernels that were called: those on a device may run after their call returned.

    Errors: those of checks that kernels make while they run, such as BoundsError of a gather.
    """
    for device in tuple(DEVICES.values()):
        device.synchronize()
