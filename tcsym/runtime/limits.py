"""Program -> sizes that its integers admit (LANGUAGE E4), and those that its usual code is for.

Code of 64 bits computes every formula below 2**63. What schedules make of formulas, tiles rounded
up and bounds divided, has room where these stay below `ROOM`; calls of other sizes are served by
loops as the program has them (`Lowering.wide`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tcsym.frontend.program import Program
from tcsym.index.expr import TRUE, Condition, ge
from tcsym.runtime.size_functions import first_failing
from tcsym.sizes.context import Interval, decided

if TYPE_CHECKING:
    from tcsym.frontend.formulas import Formula

ROOM = 1 << 40
LIMIT = 1 << 63
_Check = Callable[..., int]


class Limits:
    """Of one program; found when they are first asked for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._found: tuple[tuple[Formula, ...], _Check, _Check] | None = None

    def _all(self) -> tuple[tuple[Formula, ...], _Check, _Check]:
        if self._found is None:  # no cached_property: a forked child may find its lock taken
            from tcsym.frontend.formulas import formulas

            found, names = formulas(self._program), self._program.sizes
            fits, has_room = (
                first_failing([ge(end - 1, f.most) for f in found], names) for end in (LIMIT, ROOM)
            )
            self._found = found, fits, has_room
        return self._found

    def beyond(self, sizes: tuple[int, ...]) -> Formula | None:
        """The first formula that does not fit."""
        found, fits, _ = self._all()
        k = fits(*sizes)
        return found[k] if k >= 0 else None

    def is_wide(self, sizes: tuple[int, ...]) -> bool:
        """True if some formula leaves no room."""
        return self._all()[2](*sizes) >= 0

    def room_below(self, size: int) -> tuple[Condition, ...]:
        """Conditions that all have room, for sizes that are smaller than `size`."""
        found, ranges = self._all()[0], dict.fromkeys(self._program.sizes, Interval(0, size - 1))
        conditions = (decided(ge(ROOM - 1, f.most), ranges) for f in found)
        return tuple(dict.fromkeys(c for c in conditions if c != TRUE))
