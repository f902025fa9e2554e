# SPDX-License-Identifier: Apache-2.0
"""Code that is made as calls need it -> a kernel that runs them: each waits for its own part only.

The first call has what it launches made, and the rest is made beside the calls after it. A call
that needs some of that meanwhile goes first. Once all is there, the kernel is as if it had been
made at once; only then is it kept for other processes, and entered by native code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tcsym.ir.compiled import LEFT_OUT
from tcsym.runtime.background import beside, compiling_parts
from tcsym.runtime.native import CODE_MISSING
from tcsym.runtime.view import HERE, Place

if TYPE_CHECKING:
    from tcsym.compiler import Unfinished
    from tcsym.ir.compiled import Compiled
    from tcsym.runtime.device import LoadedCode


class _Coming(NamedTuple):
    """Modules that LLVM works on beside the calls."""

    names: frozenset[str]
    done: threading.Event


class GrowingKernel:
    """A kernel of which some code may be missing. Safe to run from several threads at once.

    `compiled`: what there is; `load`: the device's. `grown` is told each time that there is more,
    and whether it is all.
    """

    def __init__(
        self,
        unfinished: Unfinished,
        load: Callable[[Compiled], LoadedCode],
        grown: Callable[[Compiled, bool], None],
    ) -> None:
        self.compiled = unfinished.compiled()
        self._unfinished: Unfinished | None = unfinished
        self._to_device, self._told = load, grown
        self._kernel: LoadedCode | None = None
        self._unloaded = frozenset[str]()  # what was missing from the kernel when it was loaded
        self._served: set[tuple[int, ...]] = set()
        self._is_growing = False
        self._growing = threading.Lock()  # held beside calls only: forks wait for that
        self._coming = _Coming(frozenset(), threading.Event())

    def run(
        self,
        data_pointers: Sequence[int],
        sizes: Sequence[int],
        threads: int,
        place: Place = HERE,
    ) -> int:
        """As `LoadedCode.run`, after compiling what the call needs, if it is not left out."""
        unfinished = self._unfinished
        if unfinished is not None and unfinished.leaves_out(sizes):
            return LEFT_OUT
        kernel = self._serving(tuple(sizes))
        result = kernel.run(data_pointers, sizes, threads, place)
        if result == CODE_MISSING:  # sizes so large that the machine's integers do not hold them
            result = self.whole().run(data_pointers, sizes, threads, place)
        self._begin_growing()
        return result

    def ready(self, sizes: Sequence[int]) -> LoadedCode:
        """A kernel that has what calls of these sizes launch; they must not be left out."""
        kernel = self._serving(tuple(sizes))
        self._begin_growing()
        return kernel

    def _begin_growing(self) -> None:
        if self._unfinished is not None and not self._is_growing:
            self._is_growing = True
            beside(self._grow)

    @property
    def is_whole(self) -> bool:
        """True if no code is missing."""
        return self._unfinished is None

    def grown(self) -> LoadedCode:
        """The kernel with all of its code; calls go first while that is made."""
        self._grow()
        assert self._kernel is not None
        return self._kernel

    def whole(self) -> LoadedCode:
        """The kernel with all of its code; what is missing is compiled now."""
        with compiling_parts.at_once():
            if self._unfinished is not None:
                self._unfinished.make(self._unfinished.missing())
                self._finish(self._unfinished)
            assert self._kernel is not None
            return self._kernel

    def _serving(self, sizes: tuple[int, ...]) -> LoadedCode:
        """A kernel that has what calls of these sizes launch."""
        if self._unfinished is not None and sizes not in self._served:
            with compiling_parts.at_once():
                if self._unfinished is not None:
                    self._make_for(self._unfinished, sizes)
        assert self._kernel is not None
        return self._kernel

    def _make_for(self, unfinished: Unfinished, sizes: tuple[int, ...]) -> None:
        needed, coming = unfinished.needed(sizes), self._coming
        missing = needed & frozenset(unfinished.missing())
        if missing & coming.names:
            unfinished.make(sorted(missing - coming.names))
            coming.done.wait()
            unfinished.make(sorted(needed & frozenset(unfinished.missing())))
        elif missing:
            unfinished.make(sorted(missing))
        if not unfinished.missing():
            self._finish(unfinished)
        elif self._kernel is None or needed & self._unloaded:  # also what was made beside calls
            self._load(unfinished)
        self._served.add(sizes)

    def _grow(self) -> None:
        """Compile the rest, a module at a time. Calls wait for its writing, not for LLVM."""
        with self._growing:
            while (unfinished := self._unfinished) is not None:
                with compiling_parts.beside():
                    missing = unfinished.missing()
                    if not missing:
                        if self._unfinished is not None:
                            self._finish(unfinished)
                        return
                    names, texts = unfinished.write(missing[0])
                    self._coming = coming = _Coming(frozenset(names), threading.Event())
                try:
                    unfinished.add(names, unfinished.assembled(texts))
                finally:
                    coming.done.set()

    def _finish(self, unfinished: Unfinished) -> None:
        self._load(unfinished)
        self._unfinished = None
        self._served.clear()

    def _load(self, unfinished: Unfinished) -> None:
        """Link what there is; calls that are running keep the code they entered."""
        self._unloaded = frozenset(unfinished.missing())
        compiled = unfinished.compiled()
        self._kernel, self.compiled = self._to_device(compiled), compiled
        self._told(compiled, not unfinished.missing())
