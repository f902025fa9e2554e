"""The native dispatcher of one kernel: sizes of a call -> function, in constant time.

A polymorphic inline cache (Hölzle, Chambers, Ungar: Optimizing dynamically-typed object-oriented
languages with polymorphic inline caches, ECOOP 1991) whose keys are sizes. It forgets rows where
too many sizes hash to one group: calls of these go to the default function, which serves all.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tcsym.dispatch.switch_ir import (
    COUNTED,
    DEFAULT,
    DEFAULT_CODE,
    FIRST_NOTICE,
    GROUP,
    HEADER,
    NDARRAY,
    NOTICE,
    SYMBOL,
    TABLE,
    TOTAL,
    Layout,
    layout_of_plan,
    switch_ir,
)
from tcsym.dispatch.version import Values
from tcsym.runtime.assemble import cached_object
from tcsym.runtime.built_in import Owner, built_in
from tcsym.runtime.entering import arrays_are_as_expected
from tcsym.runtime.loader import load_object
from tcsym.runtime.memory import c_function
from tcsym.runtime.plan import CallPlan

Function = Callable[..., Any]


class Switch:
    """`function` is what calls enter. Rows may change at any time, under Python's lock."""

    def __init__(self, plan: CallPlan, layout: Layout, default: Function) -> None:
        self._layout = layout
        self._known = plan.initial[: len(plan.sizes)]
        self._words = (ctypes.c_int64 * layout.words)()
        self._kept: dict[int, Function] = {}  # word of a row or of the table -> what it refers to
        self._lock = threading.Lock()
        self._words[NDARRAY] = id(np.ndarray)
        self.set_default(default)
        code = cached_object(switch_ir(layout), f"switch of {plan.program.name}")
        address = ctypes.addressof(self._words)
        image = load_object(code, lambda name: address if name == TABLE else c_function(name))
        kept = (image, self._words, self._kept)
        owner = Owner(plan.program.name, image.address(SYMBOL), kept)
        self.function: Function = built_in(owner)

    @staticmethod
    def of(plan: CallPlan, default: Function) -> Switch | None:
        """None where sizes cannot be read off the arguments natively."""
        layout = layout_of_plan(plan)
        if layout is None or not arrays_are_as_expected():
            return None
        return Switch(plan, layout, default)

    # ---- functions

    def set_default(self, function: Function) -> None:
        """What serves calls without a row of their own."""
        self._refer(DEFAULT, DEFAULT_CODE, function)

    def track(self, notice: Function, first: int) -> None:
        """Count calls by sizes; the one that makes it `first` goes to `notice`."""
        self._refer(NOTICE, None, notice)
        self._words[FIRST_NOTICE] = first

    def put(self, sizes: Values, function: Function | None, notice_in: int = 0) -> None:
        """Calls of these sizes go to `function` (None: to the default one, but are counted).

        notice_in: the call after so many goes to what `track` was given; 0: none does.
        """
        with self._lock:
            row = self._row(sizes)
            if row is None:
                row = self._victim(sizes)
                self._clear(row)
                for k, slot in enumerate(self._layout.slots):
                    self._words[row + k] = sizes[slot]
            at = row + len(self._layout.slots)
            count = self._words[at + 1]
            self._words[at + 2] = count + notice_in if notice_in else 0
            if function is None:
                self._words[at] = COUNTED
                self._kept.pop(at, None)
            else:
                self._refer(at, at + 3, function)

    def again(self, sizes: Values, notice_in: int) -> None:
        """The call after so many of these sizes is noticed, if they still have a row."""
        with self._lock:
            row = self._row(sizes)
            if row is not None:
                at = row + len(self._layout.slots)
                self._words[at + 2] = self._words[at + 1] + notice_in

    def sizes_of(self, args: tuple[Any, ...]) -> Values:
        """The sizes of a call that the switch could read."""
        values = list(self._known)
        for slot, (k, axis) in zip(self._layout.slots, self._layout.places):
            values[slot] = args[k].shape[axis]
        return tuple(v or 0 for v in values)

    def remove(self, sizes: Values) -> None:
        """Calls of these sizes go to the default function."""
        with self._lock:
            row = self._row(sizes)
            if row is not None:
                self._clear(row)

    # ---- counts

    @property
    def total(self) -> int:
        """Calls so far."""
        return self._words[TOTAL]

    def calls(self, sizes: Values) -> int:
        """Calls of these sizes since they have a row; 0 without one."""
        row = self._row(sizes)
        return 0 if row is None else self._words[row + len(self._layout.slots) + 1]

    def counts(self) -> dict[Values, int]:
        """Calls of all sizes that have a row."""
        n = len(self._layout.slots)
        found = {}
        for row in range(HEADER, self._layout.words, self._layout.row_words):
            if self._words[row + n]:
                values = list(self._known)
                for k, slot in enumerate(self._layout.slots):
                    values[slot] = self._words[row + k]
                found[tuple(v or 0 for v in values)] = self._words[row + n + 1]
        return found

    # ---- rows

    def _rows(self, sizes: Values) -> range:
        layout = self._layout
        start = layout.group(tuple([sizes[slot] for slot in layout.slots]))
        return range(start, start + GROUP * layout.row_words, layout.row_words)

    def _row(self, sizes: Values) -> int | None:
        slots, words = self._layout.slots, self._words
        for row in self._rows(sizes):
            same = all(words[row + k] == sizes[slot] for k, slot in enumerate(slots))
            if same and words[row + len(slots)]:
                return row
        return None

    def _victim(self, sizes: Values) -> int:
        """A free row, else one that was only counted, else the least used."""
        n = len(self._layout.slots)
        return min(
            self._rows(sizes),
            key=lambda row: (min(self._words[row + n], 2), self._words[row + n + 1]),
        )

    def _clear(self, row: int) -> None:
        at = row + len(self._layout.slots)
        self._words[at] = self._words[at + 1] = self._words[at + 2] = 0
        self._kept.pop(at, None)

    def _refer(self, word: int, code: int | None, function: Function) -> None:
        """Have a word, and one for the code, refer to a function; never to parts of two."""
        before = self._kept.get(word)  # noqa: F841 - it must outlive the word that refers to it
        owner = getattr(function, "__self__", None)
        if code is not None:
            self._words[code] = 0
        self._kept[word] = function
        self._words[word] = id(function)
        if code is not None and isinstance(owner, Owner):
            self._words[code] = owner.address
