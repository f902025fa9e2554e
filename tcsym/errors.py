# SPDX-License-Identifier: Apache-2.0
"""Error family: every error a user can meet, with kind, place, caret excerpt and hint.

Not derived from SyntaxError: traceback formatting would then replace our text by Python's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Span(NamedTuple):
    """Half-open piece of a source text: 1-based line and column, length in code points."""

    line: int
    column: int
    length: int = 1


NOWHERE = Span(0, 0, 0)


_MOST_SHOWN, _BEFORE = 160, 60  # columns of a long line that are shown, and in front of the place


def excerpt(source: str, span: Span) -> str:
    """The source line of `span` with a caret range under it ('' if the line does not exist).

    Of a line that is too long to read, the part around the place.
    """
    lines = source.split("\n")
    if not 1 <= span.line <= len(lines):
        return ""
    line = lines[span.line - 1].rstrip("\r").replace("\t", " ")
    first, last = 0, len(line)
    if last > _MOST_SHOWN:
        first = max(0, span.column - 1 - _BEFORE)
        last = min(last, first + _MOST_SHOWN)
    before, behind = "…" * (first > 0), "…" * (last < len(line))
    at = span.column - 1 - first
    width = max(1, min(span.length, last - first - at))
    return f"    {before}{line[first:last]}{behind}\n    {' ' * (len(before) + at)}{'^' * width}"


class TCError(Exception):
    """Base of all tcsym errors.

    kind: one word; docs/errors.md has an example of each.
    message: what is wrong, on one line.
    line, column: where in the text, from 1; 0 if it is not about a place in a text.
    hint: what to do, or ''.
    others: further errors found in the same text.
    `str(error)` shows all of it, with the line of the text and a caret under the place.
    """

    kind = "error"

    def __init__(
        self,
        message: str,
        *,
        span: Span = NOWHERE,
        source: str = "",
        filename: str = "<tc>",
        hint: str = "",
        others: tuple[TCError, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.source = source
        self.filename = filename
        self.hint = hint
        self.others = others

    @property
    def line(self) -> int:
        return self.span.line

    @property
    def column(self) -> int:
        return self.span.column

    def with_source(self, source: str, filename: str = "<tc>") -> TCError:
        """The same error, able to quote `source`."""
        self.source, self.filename = source, filename
        return self

    def _text(self) -> str:
        place = f"{self.filename}:{self.line}:{self.column}: " if self.line else ""
        parts = [place + self.message]
        if self.source and self.line:
            parts.append(excerpt(self.source, self.span))
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(p for p in parts if p)

    def __str__(self) -> str:
        return "\n\n".join([self._text(), *(e._text() for e in self.others)])

    def __reduce__(self) -> tuple[Any, ...]:
        state = {
            "span": self.span,
            "source": self.source,
            "filename": self.filename,
            "hint": self.hint,
            "others": self.others,
        }
        return _rebuild, (type(self), self.message, state)


def _rebuild(cls: type[TCError], message: str, state: dict[str, Any]) -> TCError:
    return cls(message, **state)


class TCSyntaxError(TCError, ValueError):
    kind = "syntax"


class TCNameError(TCError, ValueError):
    kind = "name"


class DuplicateError(TCError, ValueError):
    kind = "duplicate"


class ImmutableError(TCError, ValueError):
    kind = "immutable"


class RankError(TCError, ValueError):
    kind = "rank"


class TCTypeError(TCError, TypeError):
    kind = "type"


class DeviceError(TCTypeError):
    """An array is in the memory of another device than the kernel's."""

    kind = "device"


class ReductionError(TCError, ValueError):
    kind = "reduction"


class RangeError(TCError, ValueError):
    kind = "range"


class AffineError(TCError, ValueError):
    kind = "affine"


class InitError(TCError, ValueError):
    kind = "init"


class BoundsError(TCError, IndexError, ValueError):
    kind = "bounds"


class SizeError(TCError, ValueError):
    kind = "size"


class MissingError(SizeError, TypeError):
    """An argument is missing, which of any function is a TypeError."""


class CallError(TCError, TypeError):
    kind = "call"


class LoopError(TCError, ValueError):
    kind = "loop"


class ConditionError(TCError, ValueError):
    kind = "condition"


class DerivativeError(TCError, ValueError):
    """What has no derivative, or none that can be written as a program."""

    kind = "derivative"


class IndependentError(DerivativeError):
    """No output depends on the inputs that a derivative is for: it is 0 everywhere."""


class OptionError(TCError, ValueError):
    """An option, strategy, target or stage name that does not exist or does not fit."""

    kind = "option"


class TargetError(TCError, NotImplementedError):
    """The hardware or toolchain a target needs is not present."""

    kind = "target"


class TCWarning(UserWarning):
    """A text says something that its author may not mean (docs/errors.md#warnings).

    kind: "division", "narrow", "range", "literal"; "copies", of a derivative; "plan", of options.
    line, column: where in the text, from 1; 0 for options.
    hint: how to say what is meant. `str(warning)` shows the line of the text, too.
    """

    def __init__(self, kind: str, error: TCError) -> None:
        super().__init__(kind, error)
        self.kind = kind
        self.message, self.span, self.hint = error.message, error.span, error.hint
        self.line, self.column = error.line, error.column
        self._shown = str(error)

    def __str__(self) -> str:
        return self._shown


ERROR_KINDS: dict[str, type[TCError]] = {
    cls.kind: cls
    for cls in (
        TCSyntaxError,
        TCNameError,
        DuplicateError,
        ImmutableError,
        RankError,
        TCTypeError,
        DeviceError,
        ReductionError,
        RangeError,
        AffineError,
        InitError,
        BoundsError,
        SizeError,
        CallError,
        LoopError,
        ConditionError,
        DerivativeError,
        OptionError,
        TargetError,
    )
}


def n_dimensions(n: int | None) -> str:
    """`1 dimension`, `2 dimensions`: for messages."""
    return f"{n} dimension" if n == 1 else f"{n} dimensions"
