"""Kind of target -> `Device`: what loads its code, holds its arrays and runs its calls.

`DEVICES` has a line for each kind. Calls, layouts, variants and dispatch know a device by these
protocols alone; scratch memory, threads and pages of code are its own affair. Faults that code
finds are the result of `Code.run`, so whoever runs code elsewhere waits there for its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tcsym.runtime.cpu import Cpu, Nowhere, Twin
from tcsym.target.target import Target, kind_of

if TYPE_CHECKING:
    from tcsym.ir.compiled import Compiled
    from tcsym.runtime.entering import EntryImage
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

    def run(self, data_pointers: Sequence[int], sizes: Sequence[int], threads: int) -> int:
        """Runs on arguments and sizes in the variant's order: 0, or 1 + the index of a fault."""

    def whole(self) -> LoadedCode:
        """With all of the code; what is missing is compiled now."""

    def grown(self) -> LoadedCode:
        """With all of the code; calls go first while that is made."""


class LoadedCode(Code, Protocol):
    """All code of one variant, in the device's memory."""

    def enter(self, image: EntryImage, slow: Callable[..., Any]) -> Any:
        """A native way in, which passes what it does not serve to `slow`."""

    def __hash__(self) -> int:
        """By identity."""


class Device(Protocol):
    """What one kind of target runs on.

    name: in messages. reads: DLPack's types of devices whose memory its code reads in place.
    """

    name: str
    reads: frozenset[int]

    def require(self, target: Target) -> None:
        """TargetError if code for the target cannot run here."""

    def load(self, compiled: Compiled) -> LoadedCode: ...

    def result(self, library: Library, shape: tuple[int, ...], dtype: DType) -> View:
        """New uninitialised memory for a result, in the library's kind of array."""

    def temporary(self, shape: tuple[int, ...], dtype: DType) -> View:
        """New uninitialised memory that no caller sees."""

    def private_copy(self, view: View) -> View:
        """A dense copy; it remembers what it was copied from."""

    def copy(self, to: View, source: View) -> None:
        """All elements, between memory of the device."""


DEVICES: dict[str, Device] = {
    "cpu": Cpu(),
    "twin": Twin(),
    "cuda": Nowhere(),
}


def device_of(target: Target | str | None) -> Device:
    """That of a target, or of the target of that name."""
    return DEVICES[target.kind if isinstance(target, Target) else kind_of(target)]
