# SPDX-License-Identifier: Apache-2.0
"""The native dispatcher of one kernel: sizes of a call -> function, in constant time.

It forgets rows where too many sizes hash to one group: calls of these go to the default function,
which serves all. How it works is said in tcsym/native/switch.c.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tcsym.runtime.entering import argument_names
from tcsym.runtime.native import native

Function = Callable[..., Any]
Values = tuple[int, ...]
NOTICED_FROM = 64  # calls of the same sizes after which their time is looked at


class SwitchImage:
    """How sizes are read off the arguments, as it can be kept: `SwitchImage(*image.fields)`.

    words: what the native switch reads. known: values of sizes that are known, by slot, None for
    those that tell calls apart. places: (argument, axis) of each of the latter, in order, or
    (parameter or -1, -1 - position) of one of `free`, the names of sizes that no array tells.
    names: of all arguments. n_regions: ranges of sizes with functions of their own.
    """

    def __init__(
        self,
        words: bytes,
        known: tuple[int | None, ...],
        places: tuple[tuple[int, int], ...],
        names: tuple[str, ...],
        free: tuple[str, ...],
        n_regions: int,
    ) -> None:
        self.words, self.known, self.places = words, known, places
        self.names, self.free, self.n_regions = names, free, n_regions

    @property
    def fields(self) -> tuple[Any, ...]:
        """Plain data."""
        return tuple(vars(self).values())


class Switch:
    """`function` is what calls enter. Rows may change at any time, under Python's lock."""

    def __init__(self, image: SwitchImage, default: Function) -> None:
        self.image = image
        self._slots = [k for k, value in enumerate(image.known) if value is None]
        regions: list[Function | None] = [None] * image.n_regions
        free = tuple([sys.intern(name) for name in image.free])
        self.function = native.Switch(
            image.words, argument_names(image.names), free, regions, default
        )

    # ---- functions

    def set_default(self, function: Function) -> None:
        """What serves calls without a row of their own, and without a region's function."""
        self.function.standard = function

    def set_region(self, k: int, function: Function) -> None:
        """What serves calls without a row of their own in region `k`."""
        self.function.regions[k] = function

    def track(self, notice: Function, first: int = NOTICED_FROM) -> None:
        """Count calls by sizes; the one that makes it `first` goes to `notice`.

        first: of sizes that have no row yet; 0: these are not counted.
        """
        self.function.notice = notice
        self.function.first_notice = first

    def look_at(self, total: int) -> None:
        """The call that makes the total so many goes to what `track` was given; 0: none does."""
        self.function.notice_total = total

    @property
    def default(self) -> Function:
        """What serves calls without a row of their own."""
        return self.function.standard

    def put(self, sizes: Values, function: Function | None, notice_in: int = 0) -> None:
        """Calls of these sizes go to `function` (None: to the default one, but are counted).

        notice_in: the call after so many goes to what `track` was given; 0: none does.
        """
        self.function.put(self._key(sizes), function, notice_in)

    def again(self, sizes: Values, notice_in: int) -> None:
        """The call after so many of these sizes is noticed, if they still have a row."""
        self.function.notice_again(self._key(sizes), notice_in)

    def sizes_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Values:
        """The sizes of a call that the switch could read."""
        image, values = self.image, list(self.image.known)
        for slot, (k, axis) in zip(self._slots, image.places):
            given: Any = None
            if k >= 0:
                given = args[k] if k < len(args) else kwargs.get(image.names[k])
            if axis >= 0:
                values[slot] = given.shape[axis]
            elif k >= 0 and given is not None:
                values[slot] = int(given)
            else:
                values[slot] = int(kwargs["sizes"][image.free[-1 - axis]])
        return tuple(v or 0 for v in values)

    def remove(self, sizes: Values) -> None:
        """Calls of these sizes go to the default function."""
        self.function.remove(self._key(sizes))

    # ---- counts

    @property
    def total(self) -> int:
        """Calls so far."""
        return self.function.total

    def calls(self, sizes: Values) -> int:
        """Calls of these sizes since they have a row; 0 without one."""
        return self.function.calls(self._key(sizes))

    def counts(self) -> dict[Values, int]:
        """Calls of all sizes that have a row."""
        found = {}
        for key, calls in self.function.counts().items():
            values = list(self.image.known)
            for slot, size in zip(self._slots, key):
                values[slot] = size
            found[tuple(v or 0 for v in values)] = calls
        return found

    def _key(self, sizes: Values) -> Values:
        """The sizes that tell calls apart."""
        return tuple([sizes[slot] for slot in self._slots])


def missing_calls(seconds: float, calls: int, worth: float) -> int:
    """0 if so many calls, `seconds` each, took `worth` seconds; else those after which to ask again
    if they did."""
    if seconds * calls >= worth:
        return 0
    missing = int((worth - seconds * calls) / max(seconds, 1e-9))
    return max(NOTICED_FROM, min(calls, missing))
