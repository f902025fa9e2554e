# SPDX-License-Identifier: Apache-2.0
"""What `define` was given, as one value, and the check of its sizes against the text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from os import PathLike
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tcsym.errors import NOWHERE, OptionError, SizeError, TCTypeError
from tcsym.frontend.program import Program
from tcsym.options import Options
from tcsym.sizes.dims import Dim, declared_size
from tcsym.strategy import Strategy, resolve_strategy
from tcsym.target.names import resolve_target
from tcsym.target.target import Target

RECOMPUTE = ("auto", "all", "cheap", "none", "sqrt")  # of gradients of recorded calls


class Settings(Struct, frozen=True):
    """Everything `define` was given: what a pickled module or kernel consists of.

    options: None: tuned ones, or the default.
    """

    source: str
    filename: str
    sizes: Mapping[str, Dim | int]
    strategy: Strategy
    target: str | Target | None
    options: Options | None
    recompute: str = "cheap"


def given_settings(
    source: object,
    filename: str,
    sizes: Mapping[str, Dim | int | range] | None,
    strategy: str | Strategy,
    target: str | Target | None,
    options: object,
    recompute: str,
) -> Settings:
    """What `define` was given; sizes are checked later. Errors: TCTypeError, OptionError."""
    if not isinstance(source, str):
        hint = "decode it: `source.decode()`" if isinstance(source, bytes) else ""
        message = f"`source` is {type(source).__name__}, expected the text of defs or a path"
        raise TCTypeError(message, hint=hint)
    if recompute not in RECOMPUTE:
        raise OptionError(f"recompute is {recompute!r}", hint=f"one of {', '.join(RECOMPUTE)}")
    _require_target(target)
    return Settings(
        source=source,
        filename=filename,
        sizes={} if sizes is None else sizes,  # type: ignore[arg-type]  # `validated` converts
        strategy=resolve_strategy(strategy),
        target=target,
        options=None if options is None else checked_options(options),
        recompute=recompute,
    )


def checked_options(options: object) -> Options:
    """Errors: OptionError."""
    if not isinstance(options, Options):
        hint = "write `tcsym.Options(vectorize=False)`, or `tcsym.Options(**options)` for a dict"
        raise OptionError(
            f"`options` is {type(options).__name__}, expected tcsym.Options", hint=hint
        )
    if options.plan:
        from tcsym.schedule.wanted import require_plans  # loads what compiles

        require_plans(options)
    return options


def with_plan(options: object, plan: object) -> Options:
    """Errors: OptionError, as for options that have another."""
    found = Options() if options is None else checked_options(options)
    if found.plan:
        raise OptionError("two plans", hint="give `plan`, or `Options(plan=...)`")
    return found.replace(plan=plan)


def text_of_file(path: PathLike[str]) -> str:
    """The text of a file, in UTF-8. Errors: OptionError."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise OptionError(f"cannot read `{path}`: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"cannot read `{path}`: it is not UTF-8 ({error.reason})") from None


def _require_target(target: object) -> None:
    """Refuse an unknown target now; finding out what "cpu" means here can wait (it loads LLVM)."""
    if isinstance(target, Target) or target in (None, "cpu"):
        return
    if not isinstance(target, str):
        raise OptionError(f"target is {target!r}, expected a name such as `cpu`")
    resolve_target(target)


def validated(settings: Settings, programs: Mapping[str, Program]) -> Settings:
    """`settings` with its sizes checked against those of the text (LANGUAGE E12)."""
    sizes: Any = settings.sizes
    span = next((p.span for p in programs.values()), NOWHERE)

    def error(message: str, hint: str = "") -> SizeError:
        source, filename = settings.source, settings.filename
        return SizeError(message, span=span, source=source, filename=filename, hint=hint)

    if not isinstance(sizes, Mapping):
        raise error(f"`sizes` is {type(sizes).__name__}, expected a mapping of names to sizes")
    known = {name for p in programs.values() for name in p.sizes}
    checked: dict[str, Dim | int] = {}
    for name, value in sizes.items():
        if name not in known:
            hint = f"sizes of this text are {', '.join(sorted(known)) or 'none'}"
            raise error(f"`sizes` has `{name}`, which is no size of this text", hint)
        try:
            number = declared_size(value)
        except SizeError as why:
            raise error(f"size `{name}` is {value!r}: {why.message}", why.hint) from None
        if number is None or (isinstance(number, int) and not 0 <= number < 1 << 63):
            expected = "an integer >= 0, a range or a tcsym.Dim"
            raise error(f"size `{name}` is {value!r}, expected {expected}")
        checked[name] = number
    if settings.options is not None:
        _require_bound(settings.options, known)
    return replace(settings, sizes=checked)


def _require_bound(options: Options, known: Collection[str]) -> None:
    """OptionError if `bind` names what is no size of the text."""
    for name in options.bind_of:
        if name not in known:
            close = get_close_matches(name, sorted(known), 1)
            near = f"did you mean `{close[0]}`? " if close else ""
            raise OptionError(
                f"option `bind` has `{name}`, which is no size of this text",
                hint=f"{near}sizes are {', '.join(sorted(known)) or 'none'}",
            )
