# SPDX-License-Identifier: Apache-2.0
"""What `explain` gives: a text that shows itself in colours, and folded in a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text


class Explanation(str):
    """The text of a stage of compilation. It is a `str`, and pickles as one.

    As the last line of a notebook's cell it is coloured and folds, with what runs at the given
    sizes open; IPython and rich colour it on a terminal. `print` writes it plainly.

    stage: what `explain` was asked for.
    idle: numbers of the lines, from 0, that do not run at the sizes that were given.
    """

    stage: str
    idle: frozenset[int]

    def __new__(cls, text: str, stage: str = "", idle: Iterable[int] = ()) -> Explanation:
        made = super().__new__(cls, text)
        made.stage, made.idle = stage, frozenset(idle)
        return made

    def after(self, head: str) -> Explanation:
        """Behind other lines."""
        shift = head.count("\n") + 1
        return Explanation(f"{head}\n{self!s}", self.stage, {shift + line for line in self.idle})

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    def __repr__(self) -> str:
        return str(self)

    def __rich__(self) -> Text:
        from tcsym.display.coloured import coloured

        return coloured(self, self.stage)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from tcsym.display.coloured import for_terminal

        printer.text(for_terminal(self, self.stage))

    def _repr_html_(self) -> str:
        from tcsym.display.folded import folded

        return folded(self, self.stage, self.idle)
