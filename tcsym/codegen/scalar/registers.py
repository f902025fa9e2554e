# SPDX-License-Identifier: Apache-2.0
"""What register buffers hold in the block being written: their loads and most stores need no code.

LLVM finds this out too, but each line that it need not read is saved twice. Buffers stay in memory
between blocks, so nothing has to be merged where blocks meet.
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.codegen.scalar.text import Function
from tcsym.codegen.scalar.values import Val


class _Held(Struct):
    """Lanes of a buffer from `place` on. `line`: of a store that nothing has read yet, or None."""

    place: int
    value: Val
    line: int | None


class Registers:
    """The state of one function's register buffers; forgets all of it when a block begins."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._block = ""
        self._held: dict[str, list[_Held]] = {}

    def _of(self, buffer: str) -> list[_Held]:
        if self._block != self._function.current:
            self.forget()
        return self._held.setdefault(buffer, [])

    def forget(self) -> None:
        """Something may use the buffers that is not written here."""
        self._block = self._function.current
        self._held = {}

    def load(self, buffer: str, place: int | None, lanes: int) -> Val | None:
        """The value there if it is known; if not, the buffer is to be read where code goes."""
        f = self._function
        is_here = f.level >= len(f.loops)
        for x in self._of(buffer):
            if is_here and x.place == place and x.value.lanes == lanes:
                return x.value
        for x in self._of(buffer):
            x.line = None
        return None

    def store(self, buffer: str, place: int | None, value: Val) -> None:
        """The last line written was a store of `value`; drops an earlier one to the same place."""
        kept = []
        for x in self._of(buffer):
            if x.place == place and x.value.lanes == value.lanes:
                if x.line is not None:
                    self._function.lines[x.line] = ""
            elif place is not None and (
                x.place + x.value.lanes <= place or place + value.lanes <= x.place
            ):
                kept.append(x)
        if place is not None:
            kept.append(_Held(place, value, len(self._function.lines) - 1))
        self._held[buffer] = kept
