# SPDX-License-Identifier: Apache-2.0
"""A text -> what `define` says against it: all errors and warnings, with their places."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from msgspec import Struct

from tcsym.errors import Span, TCError, TCSyntaxError, TCWarning, excerpt
from tcsym.frontend.parser import parse

_DEF = re.compile(r"^[ \t]*def\b", re.M)


class Finding(Struct, frozen=True):
    """Line and column from 1, the column in code points.

    kind: of docs/errors.md, or "file", "python" for what could not be read.
    """

    filename: str
    span: Span
    is_error: bool
    kind: str
    message: str
    hint: str = ""

    @property
    def severity(self) -> str:
        return "error" if self.is_error else "warning"

    def line(self) -> str:
        """`mm.tc:2:13: rank: what is wrong`"""
        place = f"{self.filename}:{self.span.line}:{self.span.column}: "
        return f"{place}{'' if self.is_error else 'warning: '}{self.kind}: {self.message}"

    def as_text(self, source: str) -> str:
        """With the line of `source`, a caret under the place, and the hint."""
        shown = excerpt(source, self.span) if source else ""
        hint = f"hint: {self.hint}" if self.hint else ""
        return "\n".join(filter(None, (self.line(), shown, hint)))

    def as_json(self) -> dict[str, str | int]:
        return {
            "file": self.filename,
            "line": self.span.line,
            "column": self.span.column,
            "length": self.span.length,
            "severity": self.severity,
            "kind": self.kind,
            "message": self.message,
            "hint": self.hint,
        }

    def as_github(self) -> str:
        """A workflow command, which annotates the line in a review."""
        span = self.span
        place = f"line={span.line},col={span.column},endColumn={span.column + span.length}"
        title = _escaped(f"tcsym: {self.kind}", in_property=True)
        told = _escaped(f"{self.message}\nhint: {self.hint}" if self.hint else self.message)
        file = _escaped(self.filename, in_property=True)
        return f"::{self.severity} file={file},{place},title={title}::{told}"


def _escaped(text: str, in_property: bool = False) -> str:
    found = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return found.replace(":", "%3A").replace(",", "%2C") if in_property else found


def findings_of_text(text: str, filename: str) -> list[Finding]:
    """In text order. Where a def cannot be parsed, the syntax errors of all defs, and no others."""
    from tcsym.kernel.definition import define

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: list[TCError | TCWarning] = [*define(text, filename=filename).warnings]
    except TCSyntaxError as error:
        found = [error, *_later_syntax_errors(text, filename, error.line)]
    except TCError as error:
        found = [error, *error.others]
    return sorted((_finding(x, filename) for x in found), key=lambda f: f.span)


def _finding(found: TCError | TCWarning, filename: str) -> Finding:
    at = Span(max(1, found.line), max(1, found.column), max(1, found.span.length))
    is_error = isinstance(found, TCError)
    return Finding(filename, at, is_error, found.kind, found.message, found.hint)


def _later_syntax_errors(text: str, filename: str, line: int) -> Iterator[TCSyntaxError]:
    """Those of the defs that begin in lines behind `line`, one for each def."""
    starts = [m.start() for m in _DEF.finditer(text)]
    while behind := [at for at in starts if text.count("\n", 0, at) + 1 > line]:
        blank = "\n" * text.count("\n", 0, behind[0])  # places stay as they are
        try:
            parse(blank + text[behind[0] :], filename)
            return
        except TCSyntaxError as error:
            yield error
            line = error.line
