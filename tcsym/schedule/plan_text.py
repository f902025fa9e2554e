# SPDX-License-Identifier: Apache-2.0
"""What was chosen -> text: each nest with its plan, or with its versions and their conditions.

m:
  if 12 >= N && M >= N + 1: register tile of 4 rows n x vectors of columns m, operands in place
  else: dot products along the sum, for few rows
    k.3: vectors along k.3

Plans of directives are a text that may be given back (`mapping.text`); beside these, others are
comments.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

from tcsym.index.expr import FALSE, TRUE, All, Condition, all_of, condition_variables
from tcsym.index.text import condition_text
from tcsym.mapping.plan import Directives
from tcsym.schedule.chosen import Choice, Note, Taken, with_conditions
from tcsym.sizes.context import Interval, Ranges, decided, simplified_condition

_CHOSEN = re.compile(r"plan\.\d+")
WIDTH = 100  # characters of a line; of a condition twice as many, the rest is in the mapped loops
Line = tuple[str, bool]  # and whether it may serve


def choices_lines(
    record: Iterable[Choice | Note], sizes: Iterable[str], known: Ranges
) -> list[Line]:
    """Nests in the order in which they run; a version runs where no condition above it holds. With
    each line whether it may serve where sizes lie in such ranges."""
    some = dict.fromkeys(sizes, Interval(0, None))  # none is negative
    simpler = with_conditions(record, lambda c: simplified_condition(c, some))
    nests = _by_nest(x for x in simpler if isinstance(x, Choice))
    mark = "# " if any(map(_are_directives, nests.values())) else ""
    out = list[Line]()
    for nest, versions in nests.items():
        if _are_directives(versions):
            out += _directives(nest, versions, {**some, **known})
        else:
            lines = _nest(nest, versions, "", {**some, **known}, True)
            out += [(mark + line, serves) for line, serves in lines]
    return out


def _are_directives(versions: tuple[Taken | Note, ...]) -> bool:
    return any(isinstance(x, Taken) and isinstance(x.plan, Directives) for x in versions)


def _directives(nest: str, versions: tuple[Taken | Note, ...], known: Ranges) -> Iterator[Line]:
    """A line for each directive, as a user may write them."""
    taken = [x for x in versions if isinstance(x, Taken) and isinstance(x.plan, Directives)]
    yield f"{nest}:", True
    for x in versions:
        if isinstance(x, Taken) and x not in taken:
            yield f"  # {_without_directives(x)}", True
    before, serves = "", True
    for x in taken:
        assert isinstance(x.plan, Directives)
        held = decided(x.when, known)
        here = serves and held != FALSE
        head = f"{before}if {_told(x.when)}:" if x.when != TRUE else "else:"
        if len(taken) > 1:
            cost = f"; {x.cost}" if x.cost else ""
            yield f"  {head}  # {x.plan.name}{cost}", here
        yield from ((f"    {line}", here) for line in x.plan.lines)
        before, serves = "else ", serves and held != TRUE


def _without_directives(x: Taken) -> str:
    when = "" if x.when == TRUE else f"if {_condition(x.when)}: "
    return when + _left(x, str(x.plan))


def _left(x: Taken, plan: str) -> str:
    return f"left to another kernel: {plan}" if x.is_left_out else plan


def _told(c: Condition) -> str:
    """With a word for what the cost chooses."""
    parts = c.conditions if isinstance(c, All) else (c,)
    by_cost = [x for x in parts if any(_CHOSEN.fullmatch(v) for v in condition_variables(x))]
    rest = all_of(x for x in parts if x not in by_cost)
    if not by_cost:
        return condition_text(c)
    return "cheapest" if rest == TRUE else f"cheapest && {condition_text(rest)}"


def _nests(
    record: Iterable[Choice | Note], pad: str, known: Ranges, serves: bool
) -> Iterator[Line]:
    for nest, versions in _by_nest(x for x in record if isinstance(x, Choice)).items():
        yield from _nest(nest, versions, pad, known, serves)


def _nest(
    nest: str, versions: tuple[Taken | Note, ...], pad: str, known: Ranges, serves: bool
) -> Iterator[Line]:
    match versions:
        case (Taken() as only,) if only.when == TRUE:
            yield from _version(only, f"{nest}: ", pad, known, serves)
        case _:
            yield f"{pad}{nest}:", serves
            yield from _versions(versions, pad + "  ", known, serves)


def _by_nest(choices: Iterable[Choice]) -> dict[str, tuple[Taken | Note, ...]]:
    """A nest's versions together, though they were chosen in several steps."""
    found: dict[str, tuple[Taken | Note, ...]] = {}
    for x in choices:
        found[x.nest] = (*found.get(x.nest, ()), *x.versions)
    return found


def _versions(
    versions: tuple[Taken | Note, ...], pad: str, known: Ranges, serves: bool
) -> Iterator[Line]:
    before = ""
    for x in versions:
        if isinstance(x, Note):
            yield from _wrapped(f"({x.text})", pad, serves)
        else:
            held = decided(x.when, known)
            head = f"{before}if {_condition(x.when)}" if x.when != TRUE else before.strip()
            here = serves and held != FALSE
            yield from _version(x, f"{head}: " if head else "", pad, known, here)
            before = "else "
            serves = serves and held != TRUE


def _version(x: Taken, head: str, pad: str, known: Ranges, serves: bool) -> Iterator[Line]:
    yield from _wrapped(head + _left(x, str(x.plan)), pad, serves)
    if x.cost:
        cost = textwrap.shorten(x.cost, 4 * WIDTH, placeholder=" …")
        yield from _wrapped(f"({cost})", pad + "  ", serves)
    yield from _nests(x.inside, pad + "  ", known, serves)


def _condition(c: Condition) -> str:
    return textwrap.shorten(condition_text(c), 2 * WIDTH, placeholder=" …")


def _wrapped(text: str, pad: str, serves: bool) -> Iterator[Line]:
    lines = textwrap.wrap(text, WIDTH, initial_indent=pad, subsequent_indent=pad + "    ")
    return ((line, serves) for line in lines)
