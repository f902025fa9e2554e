# SPDX-License-Identifier: Apache-2.0
"""Text -> plans, each with its place in the text, for what there is to say against it.

    m:                          # a nest, by the name of its outermost loop
      if 4 >= N:                # a version; the first runs whose condition holds
        split n tile lane:8; order m n.tile
      else:
        split m tile reg:6
        order m.tile n

With one nest, its versions alone; with one version, its directives alone. Among versions
`if cheapest:`, or `if cheapest && KH == 1:`, the one runs that is estimated to cost least. The name
of a plan (`Options.plan`) is the whole plan of a nest; without a nest's name, of all other nests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from textwrap import dedent, indent
from typing import NoReturn, TypeVar, get_args

from msgspec import Struct

from tcsym.errors import OptionError, Span
from tcsym.index.expr import TRUE, Condition, Index
from tcsym.index.formula import Wrong, condition_of, index_of
from tcsym.mapping.plan import As, Combine, Directive, End, Merge, Order, Plan, Split, Stage
from tcsym.options import PLAN_NAME

FILE = "<plan>"
T = TypeVar("T")


class Piece(Struct, frozen=True):
    """Part of a line, without blanks around it."""

    text: str
    line: int
    column: int

    @property
    def span(self) -> Span:
        return Span(self.line, self.column, max(1, len(self.text)))

    def cut(self, start: int, end: int | None = None) -> Piece:
        part = self.text[start:end]
        blanks = len(part) - len(part.lstrip())
        return Piece(part.strip(), self.line, self.column + start + blanks)

    def parts(self, pattern: str) -> list[Piece]:
        """What the pattern matches."""
        return [self.cut(*x.span()) for x in re.finditer(pattern, self.text)]


class Given(Struct, frozen=True):
    """A version of a nest; places: of its condition, and of each directive."""

    when: Condition
    plan: Plan
    at: Span
    places: tuple[Span, ...]


class GivenNest(Struct, frozen=True):
    """name: of the outermost loop; none, if the text has just one nest. by_cost: of the versions
    whose conditions hold, the one runs that is estimated to take the least time. plan_name: of a
    plan that is asked for, in place of versions."""

    name: str
    at: Span
    versions: tuple[Given, ...]
    by_cost: bool = False
    plan_name: str = ""

    @property
    def packs(self) -> bool:
        """Terms of short numbers, in some version."""
        return any(name == "pack" for d in self._splits for name, _ in d.parts)

    @property
    def packs_ahead(self) -> bool:
        return any(d.end == "zero" for d in self._splits)

    @property
    def _splits(self) -> Iterator[Split]:
        return (d for v in self.versions for d in v.plan if isinstance(d, Split))


def parse(text: str) -> Plan:
    """The plan of a nest that has but one. Errors: OptionError."""
    (nest,) = parse_nests(text)
    (version,) = nest.versions
    return version.plan


def parse_nests(text: str) -> tuple[GivenNest, ...]:
    """All plans of a text. Errors: OptionError with the place."""
    reader = _Reader(text)
    for k, line in enumerate(text.splitlines()):
        reader.line(Piece(line.split("#")[0], k + 1, 1).cut(0))
    return reader.nests()


def plan_of(text: str, name: str) -> str:
    """What the text has for the nest of that name, or nothing. Errors: OptionError."""
    return _sections(text).get(name, "")


def with_nest(text: str, name: str, plan: str) -> str:
    """The text with that plan for a nest, or, if it is empty, with none. Errors: OptionError."""
    found = _sections(text) | {name: plan}
    first = [found.pop("")] if found.get("") else []
    return "\n".join([*first, *(f"{x}:\n{indent(p, '    ')}" for x, p in found.items() if p)])


def _sections(text: str) -> dict[str, str]:
    """By nest what it has, without its name."""
    nests, lines = parse_nests(text) if text else (), text.splitlines()
    ends = [(x.at.line, x.at.column) for x in nests[1:]] + [(len(lines) + 1, 1)]
    out = dict[str, str]()
    for x, (last, column) in zip(nests, ends):
        part = [
            *lines[x.at.line - 1 : last - 1],
            *(y[: column - 1] for y in lines[last - 1 : last]),
        ]
        part[0] = part[0][x.at.column - 1 :]
        if x.name:
            part[0] = part[0].partition(":")[2]
        out[x.name] = dedent("\n".join(filter(str.strip, part))).strip()
    return out


def refused(text: str, at: Span, message: str, hint: str = "") -> OptionError:
    return OptionError(message, span=at, source=text, filename=FILE, hint=hint)


_NEST = re.compile(r"([A-Za-z_][\w.]*)\s*:(?=\s|$)")
_IF = re.compile(r"(?:else\s+)?if\b([^:]*):")
_CHEAPEST = re.compile(r"cheapest\b\s*(&&)?")
_ELSE = re.compile(r"else\s*:")


class _Version(Struct):
    when: Condition
    at: Piece
    by_cost: bool = False
    directives: list[Piece] = []

    @property
    def is_last(self) -> bool:
        return self.when == TRUE and not self.by_cost


class _Nest(Struct):
    name: Piece
    versions: list[_Version] = []
    plan: Piece | None = None


class _Reader(Struct):
    text: str
    found: list[_Nest] = []

    def line(self, x: Piece) -> None:
        head = _IF.match(x.text) or _ELSE.match(x.text) or _NEST.match(x.text)
        if head is None:
            self._directives(x)
            return
        if head.re is _IF:
            self._version(self._condition(x.cut(*head.span(1))))
        elif head.re is _ELSE:
            self._version(_Version(TRUE, x.cut(0, head.end())))
        else:
            self.found.append(_Nest(x.cut(0, head.end(1))))
        self.line(x.cut(head.end()))

    def _directives(self, x: Piece) -> None:
        parts = [p for p in x.parts("[^;]+") if p.text]
        if len(parts) == 1 and PLAN_NAME.fullmatch(x.text):
            self._nest(x).plan = x
            return
        if parts and not (self.found and self.found[-1].versions):
            self._version(_Version(TRUE, x))
        if parts:
            self.found[-1].versions[-1].directives.extend(parts)

    def _condition(self, x: Piece) -> _Version:
        cheapest = _CHEAPEST.match(x.text)
        rest = x.cut(cheapest.end()) if cheapest else x
        is_all = cheapest is not None and not cheapest[1]
        when = TRUE if is_all and not rest.text else self._read(condition_of, rest)
        return _Version(when, x, cheapest is not None)

    def _nest(self, x: Piece) -> _Nest:
        """The last one, which gets another line."""
        if not self.found:
            self.found.append(_Nest(Piece("", x.line, x.column)))
        nest = self.found[-1]
        if nest.plan is not None or (nest.versions and PLAN_NAME.fullmatch(x.text)):
            self._wrong(x, "the name of a plan is the whole plan of a nest", "leave out the rest")
        return nest

    def _version(self, x: _Version) -> None:
        versions = self._nest(x.at).versions
        if versions and versions[-1].is_last:
            self._wrong(x.at, "no size is left for this version", "the one before it has all")
        if versions and not x.is_last and x.by_cost != versions[-1].by_cost:
            self._wrong(x.at, "some versions by cost, some not", "begin all with `cheapest`")
        versions.append(x)

    def nests(self) -> tuple[GivenNest, ...]:
        if not self.found:
            raise OptionError("a plan without directives", hint=f"directives are {_NAMES}")
        out = list[GivenNest]()
        for x in self.found:
            name = x.name.text
            if x.plan is None and not x.versions:
                self._wrong(x.name, f"no plan for the nest {name}", f"directives are {_NAMES}")
            if any(y.name == name for y in out):
                self._wrong(x.name, f"a second plan for the nest {name}", "")
            if x.plan is not None:
                out.append(GivenNest(name, x.name.span, (), plan_name=x.plan.text))
                continue
            if not x.versions[-1].is_last:
                self._wrong(x.versions[-1].at, "no plan for all other sizes", "end with `else:`")
            versions = tuple(map(self._given, x.versions))
            out.append(GivenNest(name, x.name.span, versions, x.versions[0].by_cost))
        return tuple(out)

    def _given(self, x: _Version) -> Given:
        plan = tuple(self._read(_directive, d) for d in x.directives)
        return Given(x.when, plan, x.at.span, tuple(d.span for d in x.directives))

    def _read(self, read: Callable[[Piece], T] | Callable[[str], T], x: Piece) -> T:
        try:
            return read(x) if read is _directive else read(x.text)  # type: ignore[arg-type]
        except Wrong as wrong:
            at = x.span if wrong.length == 0 else Span(x.line, x.column + wrong.at, wrong.length)
            raise refused(self.text, at, str(wrong), wrong.hint) from None

    def _wrong(self, at: Piece, message: str, hint: str) -> NoReturn:
        raise refused(self.text, at.span, message, hint)


# ---- directives

_FORMS = {
    "split": "split LOOP PART PART:SIZE .. end=END",
    "order": "order LOOP ..",
    "merge": "merge LOOP LOOP ..",
    "combine": "combine LOOP at LOOP",
    "stage": "stage TENSOR at LOOP order LOOP .. as turned, or stage TENSOR once ..",
}
_NAMES = ", ".join(_FORMS)


def _directive(x: Piece) -> Directive:
    """Raises `Wrong`, at places from the start of the piece."""
    words = x.parts(r"\S+")
    match [w.text for w in words]:
        case ["split", axis, *parts] if parts:
            ends = [w for w in words[2:] if w.text.startswith("end=")]
            end: End = _one_of(x, ends[0], 4, get_args(End)) if ends else "mask"
            sized = tuple(_part(x, w) for w in words[2:] if not w.text.startswith("end="))
            return Split(axis, sized, end)
        case ["order", *axes] if axes:
            return Order(tuple(axes))
        case ["merge", *axes] if len(axes) > 1:
            return Merge(tuple(axes))
        case ["combine", axis]:
            return Combine(axis)
        case ["combine", axis, "at", at]:
            return Combine(axis, at)
        case ["stage", operand, "once", "order", *order] if order:
            return _stage(x, words, operand, None, order)
        case ["stage", operand, "at", at, "order", *order] if order:
            return _stage(x, words, operand, at, order)
        case [name, *_] if name in _FORMS:
            raise Wrong(f"no form of `{name}`", 0, len(x.text), f"write `{_FORMS[name]}`")
    close = get_close_matches(words[0].text, _FORMS, 1)
    hint = f"did you mean `{close[0]}`?" if close else f"directives are {_NAMES}"
    raise Wrong(f"there is no directive `{words[0].text}`", 0, len(words[0].text), hint)


def _stage(x: Piece, words: list[Piece], operand: str, at: str | None, order: list[str]) -> Stage:
    as_: As = "plain"
    if len(order) > 2 and order[-2] == "as":
        as_, order = _one_of(x, words[-1], 0, get_args(As)), order[:-2]
    return Stage(operand, at, tuple(order), as_)


def _one_of(x: Piece, word: Piece, start: int, known: Sequence[T]) -> T:
    text = word.text[start:]
    found = next((k for k in known if k == text), None)
    if found is None:
        at = word.column - x.column + start
        raise Wrong(f"`{text}` is none of {', '.join(map(str, known))}", at, max(1, len(text)))
    return found


def _part(x: Piece, word: Piece) -> tuple[str, Index | None]:
    name, colon, size = word.text.partition(":")
    if not colon:
        return name, None
    try:
        return name, index_of(size)
    except Wrong as wrong:
        at = word.column - x.column + len(name) + 1
        raise Wrong(str(wrong), at + wrong.at, max(1, wrong.length), wrong.hint) from None
