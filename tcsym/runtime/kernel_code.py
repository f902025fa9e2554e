"""Object code of a kernel -> the same in memory, with scratch memory and workers: ready to run."""

from __future__ import annotations

from tcsym.archive import SYMBOL
from tcsym.runtime.arena import ArenaSet
from tcsym.runtime.loader import load_archive
from tcsym.runtime.memory import c_function
from tcsym.runtime.pool import process_pool


class KernelCode:
    """Loaded machine code of one variant; its pages are freed with the object."""

    def __init__(self, object_code: bytes) -> None:
        self._image = load_archive(object_code, c_function)
        self.address = self._image.address(SYMBOL)
        self.arenas = ArenaSet()
        self._pool = process_pool()
        self._pool.adopt_openmp()
