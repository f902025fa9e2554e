"""The native dispatcher of one kernel: sizes of a call -> function, in constant time.

A polymorphic inline cache (Hölzle, Chambers, Ungar: Optimizing dynamically-typed object-oriented
languages with polymorphic inline caches, ECOOP 1991) whose keys are sizes. It forgets rows where
too many sizes hash to one group: calls of these go to the default function, which serves all.
"""

from __future__ import annotations

import ctypes
import sys
from _thread import allocate_lock
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsym.dispatch.switch_table import (
    COUNTED,
    DEFAULT,
    DEFAULT_CODE,
    FIRST_NOTICE,
    GROUP,
    KEYS_AT,
    NAMES,
    NDARRAY,
    NOTICE,
    PARAMETER,
    PLAIN_KEYS,
    REGION_WORDS,
    SYMBOL,
    TABLE,
    TENSOR,
    TOTAL,
    TOTAL_NOTICE,
    VIEW,
    Layout,
)
from tcsym.runtime.built_in import Owner, built_in
from tcsym.runtime.entering import OPTIONS, shared_address
from tcsym.runtime.loader import load_object
from tcsym.runtime.numpy_facts import arrays_are_as_expected

if TYPE_CHECKING:
    from tcsym.index import Condition
    from tcsym.runtime.plan import CallPlan

Function = Callable[..., Any]
Values = tuple[int, ...]

NOTICED_FROM = 64  # calls of the same sizes after which their time is looked at


class Switch:
    """`function` is what calls enter. Rows may change at any time, under Python's lock."""

    def __init__(self, name: str, layout: Layout, code: bytes, default: Function) -> None:
        """code: object code of `switch_ir(layout)`."""
        self.code = code
        self.layout = layout
        self._words = (ctypes.c_int64 * layout.words)()
        self._kept: dict[int, Function] = {}  # word of a row or of the table -> what it refers to
        self._lock = allocate_lock()
        self._words[NDARRAY] = id(np.ndarray)
        names = [sys.intern(n) for n in (*layout.names, *OPTIONS, *layout.free)]
        self._words[NAMES : layout.regions_at] = [id(n) for n in names]
        self._objects: list[object] = [*names]  # what words refer to
        self.set_default(default)
        self._refer(NOTICE, None, default)
        address = ctypes.addressof(self._words)
        image = load_object(code, lambda name: address if name == TABLE else shared_address(name))
        kept = (image, self._words, self._kept)
        self.function: Function = built_in(Owner(name, image.address(SYMBOL), kept))

    @staticmethod
    def of(plan: CallPlan, default: Function, contexts: Sequence[Condition] = ()) -> Switch | None:
        """None where sizes cannot be read off the arguments natively.

        contexts: of regions that may have functions of their own (`set_region`), but the last.
        """
        from tcsym.dispatch.switch_ir import layout_of_plan, switch_ir
        from tcsym.runtime.assemble import cached_object

        layout = layout_of_plan(plan, len(contexts) + 1 if contexts else 0)
        if layout is None or not arrays_are_as_expected():
            return None
        name = plan.program.name
        code = cached_object(switch_ir(layout, plan.sizes, contexts), f"switch of {name}")
        return Switch(name, layout, code, default)

    def read_tensors(self) -> None:
        """From now on, sizes are read off torch's tensors, too."""
        from tcsym.runtime.torch_facts import torch_facts

        facts = torch_facts()
        if facts is None or self._words[TENSOR]:
            return
        for word, name in ((VIEW, "view"), (KEYS_AT, "keys at"), (PLAIN_KEYS, "plain keys")):
            self._words[word] = ctypes.c_int64(facts.words[name]).value
        for word, name in ((PARAMETER, "Parameter"), (TENSOR, "Tensor")):
            self._objects.append(facts.objects[name])
            self._words[word] = id(facts.objects[name])

    # ---- functions

    def set_default(self, function: Function) -> None:
        """What serves calls without a row of their own, and without a region's function."""
        self._refer(DEFAULT, DEFAULT_CODE, function)

    def set_region(self, k: int, function: Function) -> None:
        """What serves calls without a row of their own in region `k`."""
        at = self.layout.regions_at + REGION_WORDS * k
        self._refer(at, at + 1, function)

    def track(self, notice: Function, first: int = NOTICED_FROM) -> None:
        """Count calls by sizes; the one that makes it `first` goes to `notice`.

        first: of sizes that have no row yet; 0: these are not counted.
        """
        self._refer(NOTICE, None, notice)
        self._words[FIRST_NOTICE] = first

    def look_at(self, total: int) -> None:
        """The call that makes the total so many goes to what `track` was given; 0: none does."""
        self._words[TOTAL_NOTICE] = total

    @property
    def default(self) -> Function:
        """What serves calls without a row of their own."""
        return self._kept[DEFAULT]

    def put(self, sizes: Values, function: Function | None, notice_in: int = 0) -> None:
        """Calls of these sizes go to `function` (None: to the default one, but are counted).

        notice_in: the call after so many goes to what `track` was given; 0: none does.
        """
        with self._lock:
            row = self._row(sizes)
            if row is None:
                row = self._victim(sizes)
                self._clear(row)
                for k, slot in enumerate(self.layout.slots):
                    self._words[row + k] = sizes[slot]
            at = row + len(self.layout.slots)
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
                at = row + len(self.layout.slots)
                self._words[at + 2] = self._words[at + 1] + notice_in

    def have_taken(self, sizes: Values, seconds: float, worth: float) -> bool:
        """True if calls of these sizes, `seconds` each, took `worth` seconds; else they are
        noticed again when they may have."""
        calls = self.calls(sizes)
        if seconds * calls >= worth:
            return True
        missing = int((worth - seconds * calls) / max(seconds, 1e-9))
        self.again(sizes, max(NOTICED_FROM, min(calls, missing)))
        return False

    def sizes_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Values:
        """The sizes of a call that the switch could read."""
        values = list(self.layout.known)
        for slot, (k, axis) in zip(self.layout.slots, self.layout.places):
            if k < 0:
                values[slot] = int(kwargs["sizes"][self.layout.free[axis]])
                continue
            array = args[k] if k < len(args) else kwargs[self.layout.names[k]]
            values[slot] = array.shape[axis]
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
        return 0 if row is None else self._words[row + len(self.layout.slots) + 1]

    def counts(self) -> dict[Values, int]:
        """Calls of all sizes that have a row."""
        layout, n = self.layout, len(self.layout.slots)
        words = self._words[layout.rows_at : layout.words]  # at once: a call may be waiting
        found = {}
        for row, function in zip(
            range(0, len(words), layout.row_words), words[n :: layout.row_words]
        ):
            if function:
                values = list(layout.known)
                for k, slot in enumerate(layout.slots):
                    values[slot] = words[row + k]
                found[tuple(v or 0 for v in values)] = words[row + n + 1]
        return found

    # ---- rows

    def _rows(self, sizes: Values) -> range:
        layout = self.layout
        start = layout.group(tuple([sizes[slot] for slot in layout.slots]))
        return range(start, start + GROUP * layout.row_words, layout.row_words)

    def _row(self, sizes: Values) -> int | None:
        slots, words = self.layout.slots, self._words
        for row in self._rows(sizes):
            same = all(words[row + k] == sizes[slot] for k, slot in enumerate(slots))
            if same and words[row + len(slots)]:
                return row
        return None

    def _victim(self, sizes: Values) -> int:
        """A free row, else one that was only counted, else the least used."""
        n = len(self.layout.slots)
        return min(
            self._rows(sizes),
            key=lambda row: (min(self._words[row + n], 2), self._words[row + n + 1]),
        )

    def _clear(self, row: int) -> None:
        at = row + len(self.layout.slots)
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
