# SPDX-License-Identifier: Apache-2.0
"""Sizes as users declare and see them: `Dim` for one, `Sizes` for all of a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import force_setattr

from tcsym.errors import SizeError
from tcsym.sizes.values import size_value


class Dim(Struct, frozen=True):
    """A promise about a size: lo <= size <= hi (None: no bound) and size % multiple_of == 0.

    Example: `define(source, sizes={"B": Dim(1, 128), "K": Dim(multiple_of=16)})`. A call that
    breaks the promise is a `size` error.
    """

    lo: int = 0
    hi: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        for name in ("lo", "hi", "multiple_of"):
            value = getattr(self, name)
            if value is None and name == "hi":
                continue
            least = 1 if name == "multiple_of" else 0
            number = size_value(value)
            if number is None or number < least:
                raise SizeError(f"Dim: `{name}` is {value!r}, expected an integer >= {least}")
            force_setattr(self, name, number)
        if self.hi is not None and self.hi < self.lo:
            raise SizeError(f"Dim: `hi` is {self.hi}, below `lo`, which is {self.lo}")
        if self.hi is not None and self.hi // self.multiple_of * self.multiple_of < self.lo:
            raise SizeError(
                f"Dim: no multiple of {self.multiple_of} lies from {self.lo} to {self.hi}"
            )

    def broken_by(self, size: int) -> str:
        """What `size` should have been, '' if it is as promised."""
        if size < self.lo or (self.hi is not None and size > self.hi):
            return f">= {self.lo}" if self.hi is None else f"from {self.lo} to {self.hi}"
        if size % self.multiple_of:
            return f"a multiple of {self.multiple_of}"
        return ""

    def __str__(self) -> str:
        upper = "" if self.hi is None else f"{self.hi}"
        text = f"{self.lo}..{upper}"
        return text if self.multiple_of == 1 else f"{text} step {self.multiple_of}"


def declared_size(value: object) -> Dim | int | None:
    """What is declared of a size by a number, a `Dim` or a range; None if it is none of them.

    Errors: SizeError for a range that no `Dim` is like.
    """
    if isinstance(value, Dim):
        return value
    if not isinstance(value, range):
        return size_value(value)
    if not value or value.step < 0 or value.start < 0:
        raise SizeError("expected a range that goes up and has a size in it, as range(1, 129)")
    if value.start % value.step:
        above = -(-value.start // value.step) * value.step
        raise SizeError(
            f"a range in steps of {value.step} has to begin at a multiple of it",
            hint=f"`range({above}, {value.stop}, {value.step})`, or `range({value.start}, "
            f"{value.stop})` for all of them",
        )
    return Dim(value.start, value[-1], value.step)


class Sizes(Mapping[str, Dim | int]):
    """The sizes of a kernel in order of appearance: a fixed number or a `Dim` for each.

    A mapping of names. Beside it:

    free: names of those that the caller gives; the others follow from shapes of arguments.
    constraints: conditions that a call checks, as text.
    """

    __slots__ = ("_dims", "constraints", "free")

    def __init__(
        self,
        dims: Mapping[str, Dim | int],
        *,
        free: tuple[str, ...] = (),
        constraints: tuple[str, ...] = (),
    ) -> None:
        self._dims = dict(dims)
        self.free = free
        self.constraints = constraints

    def __getitem__(self, name: str) -> Dim | int:
        return self._dims[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dims)

    def __len__(self) -> int:
        return len(self._dims)

    def __repr__(self) -> str:
        dims = [f"{n} = {d}" if isinstance(d, int) else f"{n}: {d}" for n, d in self._dims.items()]
        if self.free:
            dims.append(f"free: {', '.join(self.free)}")
        return f"Sizes({'; '.join([*dims, *self.constraints])})"
