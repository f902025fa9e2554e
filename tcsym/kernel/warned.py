# SPDX-License-Identifier: Apache-2.0
"""Programs of a text -> the warnings that `define` gives (LANGUAGE F9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tcsym.errors import TCError, TCWarning

if TYPE_CHECKING:
    from tcsym.frontend.program import Program, Trap


def warnings_of(programs: Iterable[Program]) -> tuple[TCWarning, ...]:
    """In text order. What stands in a def that others call is there once."""
    found = dict.fromkeys([(t, p.source, p.filename) for p in programs for t in p.traps])
    return tuple([_warning(*x) for x in sorted(found, key=lambda x: _place(x[0]))])


def _place(trap: Trap) -> tuple[int, int]:
    return trap.span.line, trap.span.column


def _warning(trap: Trap, source: str, filename: str) -> TCWarning:
    about = TCError(trap.message, span=trap.span, source=source, filename=filename, hint=trap.hint)
    return TCWarning(trap.kind, about)
