"""What is known of an array's memory, or why there is none that can be used."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from tcsym.types import DType

Library = Literal["numpy", "torch", "jax"]


class Unusable(Exception):
    """An object that is no array we can read in place; the text says why and what to do."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


class Place(NamedTuple):
    """A device that holds memory: DLPack's type and number of it, and what its library calls it.

    `hint`: how an array gets from there to the kernel's device.
    """

    type: int
    number: int
    name: str
    hint: str = "copy it there first"


HERE = Place(1, 0, "cpu")


class Elsewhere(Unusable):
    """An array in the memory of a device that the kernel does not run on."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"is on device {place.name}", place.hint)


class View(NamedTuple):
    """Memory of one array. Strides in bytes. `dtype` is None for types that tcsym does not have.

    `original`: the view of which this one is a private copy. `place`: where the memory is.
    """

    library: Library
    dtype: DType | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: int
    dense: bool  # row-major without gaps (sizes 0 and 1 count as such)
    aligned: bool  # address and strides are whole multiples of the element
    writable: bool
    owner: Any
    original: View | None = None
    place: Place = HERE

    @property
    def type_name(self) -> str:
        """The element type in the words of its library."""
        return str(self.dtype) if self.dtype else str(getattr(self.owner, "dtype", "unknown"))
