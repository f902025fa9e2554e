# SPDX-License-Identifier: Apache-2.0
"""Compilation options: frozen, validated, JSON round trip. All but `tf32` change speed alone.

Tile shapes and thread counts are rules in sizes and machine facts, not literals tied to one size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct, StructMeta
from msgspec.structs import asdict, force_setattr, replace

from tcsym.errors import OptionError, Span

Bind = Literal["never", "before", "after"]
SizeBind = tuple[str, Bind]
Binding = Bind | Mapping[str, Bind] | tuple[SizeBind, ...]
Scheduler = Literal["align", "isl"]
Fusion = Literal["max", "preserve-coincident", "min"]
InnerFusion = Literal["same", "max", "preserve-coincident", "min"]
SCHEMA = 3  # raised when a field changes its meaning; new fields with defaults do not raise it


class _Named(StructMeta):
    """Of `Options`: a field that there is not is an OptionError, with the nearest name."""

    if not TYPE_CHECKING:  # which would take it for what says the arguments

        def __call__(cls, *args: Any, **fields: Any) -> Any:
            for name in fields:
                _require_field(name)
            return super().__call__(*args, **fields)


class Options(Struct, frozen=True, metaclass=_Named):
    """How a program is compiled.

    bind: when sizes become numbers in the code. A word is for the sizes fixed at `define(sizes=)`:
        `never` (run-time arguments that are only checked), `before` scheduling, or `after` it (code
        generation sees numbers). A mapping, as in `{"K": "before", "N": "after"}`, is for the sizes
        it names, fixed or not: there is a variant for each of their values that turns up; the
        others are left to the strategy.
    scheduler: `align` fuses by aligning iterators through dependences; `isl` is isl's scheduler.
    fusion: `max` shares every loop that dependences allow, `preserve-coincident` only while the
        shared loops stay parallel, `min` none.
    inner_fusion: that inside of shared loops, by `align`; `same` as outside.
    chains: order of products that are written as several statements: 0 by sizes, 1 as written,
        from 2 on the other orders that the compiler knows for other sizes.
    plan: how nests are mapped, as directives that say it (docs/plans.md), which `explain("plan")`
        prints. Or by the name of a plan's class in `schedule/plan.py`, which is then taken at all
        sizes for which it can be carried out, whatever is said to be quicker: `GroupedRows`, or
        `ScatterCopies`; on a device with its numbers, `SharedTiles:128x64x16x2x8x4`. A name behind
        a nest's (`m: ThreadTiles:2`) is for that nest, one alone for all others. A nest that is not
        offered it, or `""`: as sizes say. If none is, there is no nest of a name, or directives
        cannot be carried out, the first call is an
        OptionError that says why.
    vectorize, parallelize: allow vector loops, threads.
    parallel_loops: nested parallel loops that at most become one loop on threads.
    tf32: devices may multiply matrices of float32 rounded to ten bits behind the point, which
        changes results; it is never set but by you, and means nothing on processors.
    min_work_per_thread: estimated time, in sixteenths of a processor cycle, below which no further
        thread is used; 0: all are used, however short a loop is.
    max_operations: of isl, for each proof of a schedule, before the next simpler strategy is taken.
    """

    bind: Binding = "never"
    scheduler: Scheduler = "align"
    fusion: Fusion = "max"
    inner_fusion: InnerFusion = "same"
    chains: int = 0
    plan: str = ""
    vectorize: bool = True
    parallelize: bool = True
    parallel_loops: int = 3
    tf32: bool = False
    min_work_per_thread: int = 131072
    max_operations: int = 2_000_000

    def __post_init__(self) -> None:
        force_setattr(self, "bind", _checked_bind(self.bind))
        for name in (*_CHOICES, *_RANGES, *_SWITCHES):
            _require_value(name, getattr(self, name))
        _require_value("plan", self.plan)

    def replace(self, **fields: Any) -> Options:
        """The same with other values of these fields. Errors: OptionError."""
        for name in fields:
            _require_field(name)
        return replace(self, **fields)

    def changed(self) -> dict[str, Any]:
        """The fields that differ from the defaults, in the order of declaration."""
        return {name: v for name, v in asdict(self).items() if v != _DEFAULTS[name]}

    def __str__(self) -> str:
        """`fusion=min vectorize=False`: what differs from the defaults; stable."""
        changed = self.changed()
        if self.plan and not self.plan_name:
            words = [w for line in self.plan.splitlines() for w in line.partition("#")[0].split()]
            changed["plan"] = " ".join((*words[:_SHOWN], *["…"] * (len(words) > _SHOWN)))
        if not isinstance(self.bind, str):
            del changed["bind"]
            changed = {f"bind[{name}]": when for name, when in self.bind_of.items()} | changed
        return " ".join(f"{name}={value}" for name, value in changed.items()) or "defaults"

    def _repr_html_(self) -> str:
        from tcsym.display.page import closed_part, framed, table

        changed = self.changed()
        own = [(x, repr(v), repr(_DEFAULTS[x])) for x, v in changed.items()]
        rest = [(x, repr(v)) for x, v in _DEFAULTS.items() if x not in changed]
        defaults = closed_part(f"{len(rest)} at their defaults", table(("field", "value"), rest))
        told = "" if own else str(self)
        return framed("Options", told, table(("field", "value", "else"), own), defaults)

    @property
    def plan_name(self) -> str:
        """`plan`, if it is a name, and does not say what to do."""
        return self.plan if PLAN_NAME.fullmatch(self.plan) else ""

    @property
    def limits(self) -> Options:
        """What bounds scheduling, without the rest: for a program made of this one."""
        return Options(max_operations=self.max_operations)

    @property
    def bind_of(self) -> dict[str, Bind]:
        """The sizes that `bind` names, and when they become numbers; {} if it is a word."""
        return {} if isinstance(self.bind, str) else dict(self.bind)

    def to_json(self) -> str:
        """All fields, with the version of their meaning. Equal options are equal text."""
        import json  # takes 5 ms, and most processes need none

        fields = {"schema": SCHEMA, **asdict(self)}
        if not isinstance(self.bind, str):
            fields["bind"] = self.bind_of
        return json.dumps(fields, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Options:
        """Options from all or some of their fields. Errors: OptionError for whatever is wrong."""
        import json

        try:
            data: Any = json.loads(text)
        except ValueError as error:
            raise OptionError(f"options are not JSON: {error}") from None
        if not isinstance(data, dict):
            raise OptionError(f"options are {data!r}, expected fields and values")
        schema = data.pop("schema", SCHEMA)
        if schema != SCHEMA:
            raise OptionError(f"options have schema {schema!r}, this version reads {SCHEMA}")
        return Options(**data)


def told_of_plan(at: Span, message: str, hint: str = "") -> str:
    """What there is to say of a place in a plan, in one line (`plan_error`)."""
    return f"{':'.join(map(str, at))}: {message}" + (f"; hint: {hint}" if hint else "")


def plan_error(told: str, options: Options) -> OptionError:
    """The error that a line tells, with the place in the options' plan if it names one."""
    found = _TOLD.fullmatch(told)
    if found is None:
        return OptionError(told)
    *place, message, hint = found.groups(default="")
    at = Span(*map(int, place))
    return OptionError(message, span=at, source=options.plan, filename="<plan>", hint=hint)


_TOLD = re.compile(r"(\d+):(\d+):(\d+): (.*?)(?:; hint: (.*))?", re.DOTALL)
_DEFAULTS = dict(zip(Options.__struct_fields__, Options.__struct_defaults__))
PLAN_NAME = re.compile(r"[A-Z][A-Za-z]*(:[1-9][0-9]{0,3}(x[1-9][0-9]{0,3})*)?")
_SHOWN = 8  # words of a plan, beside other options
_BINDS = get_args(Bind)
_CHOICES: dict[str, tuple[str, ...]] = {
    "scheduler": get_args(Scheduler),
    "fusion": get_args(Fusion),
    "inner_fusion": get_args(InnerFusion),
}
_RANGES: dict[str, tuple[int, int]] = {
    "chains": (0, 8),
    "parallel_loops": (1, 3),
    "min_work_per_thread": (0, 2**62),
    "max_operations": (1, 2**62),
}
_SWITCHES = ("vectorize", "parallelize", "tf32")


def _require_field(name: str) -> None:
    """OptionError with the nearest field, or with all, if there is none of this name."""
    known = Options.__struct_fields__
    if name in known:
        return
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    hint = f"did you mean `{close[0]}`?" if close else f"options are {', '.join(known)}"
    raise OptionError(f"unknown option `{name}`", hint=hint)


def _checked_bind(given: object) -> Bind | tuple[SizeBind, ...]:
    """A word, or the sizes with theirs in one order; lists of pairs are as good as a mapping."""
    if isinstance(given, str):
        _require_choice("bind", given, _BINDS)
        return given  # type: ignore[return-value]
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, tuple | list) or not all(_is_size_bind(pair) for pair in pairs):
        raise OptionError(
            f"option `bind` is {given!r}, expected {', '.join(_BINDS)}, or one of them by size",
            hint='for single sizes: `Options(bind={"K": "before", "N": "after"})`',
        )
    for name, when in pairs:
        _require_choice(f"bind[{name}]", when, _BINDS)
    if len({name for name, _ in pairs}) < len(pairs):
        raise OptionError(f"option `bind` is {given!r}, which has a size twice")
    return tuple(sorted((name, when) for name, when in pairs)) or "never"


def _is_size_bind(pair: object) -> bool:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return False
    return isinstance(pair[0], str) and pair[0].isidentifier()


def _require_value(name: str, value: object) -> None:
    if name in _CHOICES:
        _require_choice(name, value, _CHOICES[name])
    elif name in _RANGES:
        _require_integer(name, value, *_RANGES[name])
    elif name == "plan":
        if not isinstance(value, str) or not _is_plan(value):
            raise OptionError(
                f"option `plan` is {value!r}, expected a name as in `GroupedRows`, or directives"
            )
    elif not isinstance(value, bool):
        raise OptionError(f"option `{name}` is {value!r}, expected True or False")


def _is_plan(value: str) -> bool:
    """A name, or directives."""
    return not value or bool(PLAN_NAME.fullmatch(value) or re.search(r"\s", value.strip()))


def _require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise OptionError(f"option `{name}` is {value!r}, expected one of {', '.join(choices)}")


def _require_integer(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        expected = f"an integer from {low} to {high}"
        raise OptionError(f"option `{name}` is {value!r}, expected {expected}")
