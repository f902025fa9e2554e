# SPDX-License-Identifier: Apache-2.0
"""One version -> its native entries, one for each kind of arguments.

Each kind of layouts has an entry of its own (`runtime.entering`). An entry passes what it does not
serve to the next one, the last to Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tcsym.ir.compiled import Layout, serves
from tcsym.process.config import SYNC
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.variants import Variant, layout_of
from tcsym.runtime.view import CUDA, HERE, View

if TYPE_CHECKING:
    from tcsym.runtime._native import Entry
    from tcsym.runtime.entering import EntryImage, Served

Function = Callable[..., Any]


class Kind(Struct, frozen=True):
    """Arguments that one entry serves: of these layouts and, if `exact`, of no stricter ones."""

    exact: bool
    layouts: tuple[Layout, ...]


class Ways:
    """The ways into one version. `slow` serves every call; `head` is None or the first entry."""

    def __init__(self, plan: CallPlan, slow: Function) -> None:
        self.plan = plan
        self.slow = slow
        self._tried: set[Kind] = set()
        self.head: Function | None = None
        self._entries: dict[Kind, Entry] = {}
        self._leave_out: set[Kind] = set()  # entries of code that leaves some sizes to another
        self._served: list[Served] = []  # by all entries there ever were
        self._lock = threading.Lock()

    def make(
        self, kind: Kind, variant: Variant, images: list[EntryImage] | None = None
    ) -> Function | None:
        """Adds the entry for a kind; the head. Where there is no native way, nothing changes.

        images: what the entry is made of is put there.
        """
        from tcsym.runtime.entry_image import entry_image

        kernel = variant.kernel.grown()
        leaves_out = variant.compiled.leaves_out
        code = variant.compiled.scratch, variant.pointers, variant.slots
        image = entry_image(self.plan, *code, kind.layouts, kind.exact)
        if image is None:
            return self.head
        if images is not None:
            images.append(image)
        faults = variant.compiled.faults

        def failed(fault: int) -> None:
            raise self.plan.fault_error(faults[fault - 1])

        return self.adopt(kind, kernel.enter(image, self.slow, failed), leaves_out)

    def lacks(self, kind: Kind, variant: Variant) -> bool:
        """True, once, if there is no entry for the kind, or one that leaves out sizes for which
        `variant` has code."""
        if kind in self._leave_out and not variant.compiled.leaves_out:
            self._leave_out.discard(kind)
            return True
        is_new = kind not in self._tried
        self._tried.add(kind)
        return is_new

    def pass_to(self, following: Function) -> None:
        """From now on, `following` serves what none of the entries does."""
        with self._lock:
            self.slow = following
            self._link()

    def adopt(self, kind: Kind, entry: Entry, leaves_out: bool) -> Function:
        """Adds an entry that was made before; the head. leaves_out: some sizes, to another."""
        from tcsym.runtime.entering import Served

        self._tried.add(kind)
        if leaves_out:
            self._leave_out.add(kind)
        with self._lock:
            self._entries[kind] = entry
            self._served.append(Served(entry))
            self.head = self._link()
            return self.head

    def close(self) -> None:
        """Keep what its entries count, not their code."""
        with self._lock:
            self._entries.clear()
            self.head = None

    @property
    def served(self) -> int:
        """Calls that its entries served."""
        return sum([served.calls for served in self._served])

    @property
    def is_entered(self) -> bool:
        """An entry is left which calls may be in, or may yet enter."""
        return any(served.is_live for served in self._served)

    def _link(self) -> Function:
        """Entries that also serve stricter layouts come last; else first come, first served."""
        order = [e for k, e in self._entries.items() if k.exact]
        order += [e for k, e in self._entries.items() if not k.exact]
        following: list[Function] = [*order[1:], self.slow]
        for entry, next_one in zip(order, following):
            entry.slow = next_one
        return order[0]


def is_read(view: View) -> bool:
    """By entries."""
    if view.library in ("numpy", "torch"):
        return True
    if view.place.type != CUDA:
        return False
    from tcsym.runtime.cuda.arrays import enters

    return enters(view)


def kind_of(views: Sequence[View], variant: Variant) -> Kind | None:
    """What an entry can know the arguments by; None if none could serve them."""
    if not all(view.original is None and is_read(view) for view in views):
        return None
    if SYNC.read() and not all(view.place == HERE for view in views):
        return None  # Python waits
    if any(view.library == "torch" for view in views):
        from tcsym.runtime.entering import read_tensors

        if not read_tensors():
            return None
    layouts = tuple([layout_of(view) for view in views])
    if not all(map(serves, variant.layouts, layouts)):
        return None  # the call ran on copies
    return Kind(layouts == variant.layouts, variant.layouts)
