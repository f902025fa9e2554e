# SPDX-License-Identifier: Apache-2.0
"""Program -> sizes that its integers admit (LANGUAGE E4), and those that its usual code is for.

Code of 64 bits computes every formula below 2**63. What schedules make of formulas, tiles rounded
up and bounds divided, has room where these stay below `ROOM`. And they copy what windows read,
padded as far as subscripts reach, where that is not far beyond what there is to read. Calls of
other sizes are served by loops as the program has them (`compiler.Lowering`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from tcsym.frontend.program import ROOM, Program
from tcsym.index.expr import TRUE, Condition, Index, ge
from tcsym.runtime.size_functions import first_failing
from tcsym.sizes.context import Interval, decided

if TYPE_CHECKING:
    from tcsym.frontend.formulas import Formula

LIMIT = 1 << 63
MOST_COPIED, FEW_ELEMENTS = 8, 1 << 18  # of elements that there are; or, if they are so few, more


class _Found(Struct, frozen=True):
    formulas: tuple[Formula, ...]
    usual: tuple[Condition, ...]
    copied: tuple[Condition, ...]
    beyond: Callable[..., int]
    not_usual: Callable[..., int]


class Limits:
    """Of one program; found when they are first asked for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._found: _Found | None = None

    def _all(self) -> _Found:
        if self._found is None:  # no cached_property: a forked child may find its lock taken
            from tcsym.frontend.formulas import formulas, reaches

            names, found = self._program.sizes, formulas(self._program)
            copied = [
                ge(r.tensor * MOST_COPIED + FEW_ELEMENTS, r.hull) for r in reaches(self._program)
            ]
            largest = _undominated([f.most for f in found])
            usual = dict.fromkeys([*(ge(ROOM - 1, e) for e in largest), *copied])
            fit = [ge(LIMIT - 1, f.most) for f in found]
            beyond, not_usual = first_failing(fit, names), first_failing([*usual], names)
            self._found = _Found(found, tuple(usual), tuple(copied), beyond, not_usual)
        return self._found

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """Each has to be smaller than LIMIT."""
        return self._all().formulas

    @property
    def usual(self) -> tuple[Condition, ...]:
        """The sizes that usual code is for satisfy all of these."""
        return self._all().usual

    @property
    def copied(self) -> tuple[Condition, ...]:
        """Those of them that are about what windows read."""
        return self._all().copied

    def beyond(self, sizes: tuple[int, ...]) -> Formula | None:
        """The first formula that does not fit."""
        k = self._all().beyond(*sizes)
        return self._all().formulas[k] if k >= 0 else None

    def is_wide(self, sizes: tuple[int, ...]) -> bool:
        """True if usual code is not for these sizes."""
        return self._all().not_usual(*sizes) >= 0

    def usual_below(self, size: int) -> tuple[Condition, ...]:
        """Conditions of usual code, for sizes that are smaller than `size`."""
        ranges = dict.fromkeys(self._program.sizes, Interval(0, size - 1))
        conditions = (decided(c, ranges) for c in self._all().usual)
        return tuple(c for c in conditions if c != TRUE)


def _undominated(found: list[Index]) -> list[Index]:
    """Those that no other one is surely as large as."""
    from tcsym.frontend.infer_forms import is_nonnegative

    kept: list[Index] = []
    for e in found:
        if not any(is_nonnegative(k - e) for k in kept):
            kept = [*(k for k in kept if not is_nonnegative(e - k)), e]
    return kept
