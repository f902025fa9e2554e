# SPDX-License-Identifier: Apache-2.0
"""Object code of a kernel -> the same in memory, with scratch memory and workers: ready to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tcsym.ir.archive import SYMBOL, TASK
from tcsym.runtime.arena import ArenaSet
from tcsym.runtime.loader import load_archive
from tcsym.runtime.memory import c_function
from tcsym.runtime.native import native
from tcsym.runtime.pool import process_pool

if TYPE_CHECKING:
    from tcsym.runtime._native import Entry
    from tcsym.runtime.entering import EntryImage, Failed, Slow


def _resolve(name: str) -> int:
    """A function outside of the code: of C, or a task that is not made yet (`runtime.growing`)."""
    if name.startswith(TASK):
        return native.missing_task
    if name.startswith("tcsym_simt_"):
        return int(getattr(native, name.removeprefix("tcsym_")))
    return c_function(name)


class KernelCode:
    """Loaded machine code of one variant; its pages are freed with the object."""

    def __init__(self, object_code: bytes) -> None:
        self._image = load_archive(object_code, _resolve)
        self.address = self._image.address(SYMBOL)
        self.arenas = ArenaSet()
        self._pool = process_pool()
        self._pool.adopt_openmp()

    def enter(self, image: EntryImage, slow: Slow, failed: Failed) -> Entry:
        """A native way in, which passes what it does not serve to `slow`."""
        from tcsym.runtime.entering import load_entry

        return load_entry(image, self, slow, failed, self.arenas.main)
