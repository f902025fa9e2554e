"""One version -> its native entries, one for each kind of arguments.

Each kind, that is layouts and library, has an entry of its own (`runtime.fastcall`). An entry
passes what it does not serve to the next one, the last to Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from tcsym.compiled import Layout, serves
from tcsym.records import dataclass
from tcsym.runtime.arrays import View
from tcsym.runtime.plan import CallPlan
from tcsym.variants import Variant, layout_of

if TYPE_CHECKING:
    from tcsym.runtime.entering import EntryImage, Served

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """Arguments that one entry serves: of these layouts and, if `exact`, of no stricter ones."""

    exact: bool
    layouts: tuple[Layout, ...]
    library: Literal["numpy", "torch"]


class Ways:
    """The ways into one version. `slow` serves every call; `head` is None or the first entry."""

    def __init__(self, plan: CallPlan, slow: Function) -> None:
        self.plan = plan
        self.slow = slow
        self.tried: set[Kind] = set()
        self.head: Function | None = None
        self._entries: dict[Kind, Function] = {}
        self._leave_out: set[Kind] = set()  # entries of code that leaves some sizes to another
        self._prepared: dict[tuple[Kind, bool], EntryImage] = {}
        self._served: list[Served] = []  # by all entries there ever were
        self._lock = threading.Lock()

    def make(
        self, kind: Kind, variant: Variant, images: list[EntryImage] | None = None
    ) -> Function | None:
        """Adds the entry for a kind; the head. Where there is no native way, nothing changes.

        images: what the entry is made of is put there.
        """
        from tcsym.runtime.entering import load_entry

        kernel = variant.kernel.grown()
        leaves_out = variant.compiled.leaves_out
        image = self._prepared.pop((kind, leaves_out), None) or self._image(kind, variant)
        if image is None:
            return self.head
        if images is not None:
            images.append(image)
        return self.adopt(kind, load_entry(image, kernel, self.slow), leaves_out)

    def outgrown(self, kind: Kind, variant: Variant) -> bool:
        """True, once, if `variant` has code for sizes that the entry for the kind leaves out."""
        is_outgrown = kind in self._leave_out and not variant.compiled.leaves_out
        if is_outgrown:
            self._leave_out.discard(kind)
        return is_outgrown

    def prepare(self, kind: Kind, variant: Variant) -> None:
        """The code of the entry that `make` will be asked for next; `variant` may lack code."""
        image = self._image(kind, variant)
        if image is not None:
            self._prepared[kind, variant.compiled.leaves_out] = image

    def _image(self, kind: Kind, variant: Variant) -> EntryImage | None:
        from tcsym.runtime.fastcall import entry_image

        code = variant.compiled, variant.pointers, variant.slots
        return entry_image(self.plan, *code, kind.layouts, kind.exact, kind.library)

    def pass_to(self, following: Function) -> None:
        """From now on, `following` serves what none of the entries does."""
        with self._lock:
            self.slow = following
            self._link()

    def adopt(self, kind: Kind, entry: Function, leaves_out: bool) -> Function:
        """Adds an entry that was made before; the head. leaves_out: some sizes, to another."""
        from tcsym.runtime.entering import Served

        self.tried.add(kind)
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
            self._prepared.clear()
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
        from tcsym.runtime.entering import continue_with

        order = [e for k, e in self._entries.items() if k.exact]
        order += [e for k, e in self._entries.items() if not k.exact]
        for one, following in pairwise((*order, self.slow)):
            continue_with(one, following)
        return order[0]


def kind_of(views: Sequence[View], variant: Variant) -> Kind | None:
    """What an entry can know the arguments by; None if none could serve them."""
    library: Literal["numpy", "torch"] = "numpy"
    for view in views:
        if view.original is not None or view.library == "jax":
            return None
        if view.library == "torch":
            library = "torch"
    layouts = tuple([layout_of(view) for view in views])
    if not all(map(serves, variant.layouts, layouts)):
        return None  # the call ran on copies
    return Kind(layouts == variant.layouts, variant.layouts, library)
