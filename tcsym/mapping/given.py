# SPDX-License-Identifier: Apache-2.0
"""Plans that options have as text -> versions of nests, and what is wrong with others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from tcsym.errors import Span
from tcsym.index.expr import All, Condition, IsZero, condition_variables
from tcsym.index.values import map_condition, substitute
from tcsym.ir.loops import THREADS
from tcsym.mapping.nest import Nest
from tcsym.mapping.plan import Refused, Split, Version, with_sizes
from tcsym.mapping.text import Given, GivenNest, parse_nests
from tcsym.options import Options, told_of_plan
from tcsym.schedule.multiples import quotients

_parsed = lru_cache(16)(parse_nests)


def given_nests(options: Options) -> tuple[GivenNest, ...]:
    """Errors: OptionError."""
    return _parsed(options.plan) if options.plan else ()


def given_for(loop: str, options: Options) -> GivenNest | None:
    """The plan for the nest of that outermost loop."""
    found = {x.name: x for x in given_nests(options)}
    return found.get(loop, found.get(""))


def plan_asked(loop: str, options: Options) -> str:
    """The name of the plan that the nest of that outermost loop shall have; or nothing."""
    given = given_for(loop, options)
    return given.plan_name if given is not None else ""


def unknown_nests(nests: Sequence[str], options: Options) -> Iterator[str]:
    """What to tell of plans for nests that there are not, or that do not say which they are for."""
    for x in given_nests(options):
        hint = f"nests are {', '.join(nests)}"
        if x.name and x.name not in nests:
            yield told_of_plan(x.at, f"there is no nest {x.name}", hint)
        if not x.name and len(nests) > 1 and not x.plan_name:
            hint = f"begin with `{nests[0]}:`; {hint}"
            yield told_of_plan(x.at, f"a plan for one of {len(nests)} nests", hint)


def on_device(options: Options) -> Iterator[str]:
    """What to tell of plans for a target that has none of directives."""
    for x in given_nests(options):
        if x.plan_name:
            continue
        hint = 'plans of a device are names, as in `explain("plan")`'
        yield told_of_plan(x.at, "directives are for processors", hint)


def versions_of(given: GivenNest, nest: Nest) -> Iterator[Version]:
    """Raises `Refused` for what is no size."""
    values = quotients(nest.sizes)
    known = {*nest.sizes, *values, THREADS}
    for k, x in enumerate(given.versions):
        _require_sizes(x, k, known)
        when = map_condition(x.when, lambda e: substitute(e, values))
        plan = with_sizes(x.plan, lambda e: substitute(e, values))
        yield Version("given", when, plan, facts_of(when), number=k, only=when)


def _require_sizes(x: Given, k: int, known: set[str]) -> None:
    hint = f"sizes are {', '.join(sorted(known - {THREADS}))}"
    for step, d in enumerate(x.plan):
        sizes = [n for _, n in d.parts if n is not None] if isinstance(d, Split) else []
        for v in sorted({v for n in sizes for v in n.variables()} - known):
            raise Refused(f"there is no size {v}", hint, k, step)
    for v in sorted(condition_variables(x.when) - known):
        raise Refused(f"there is no size {v}", hint, k)


def place_of(given: GivenNest, reason: Refused) -> Span:
    if reason.version is None:
        return given.at
    version = given.versions[reason.version]
    return version.at if reason.step is None else version.places[reason.step]


def facts_of(when: Condition) -> dict[str, int]:
    """Sizes that are one number wherever the condition holds."""
    equal = (
        x.index
        for x in (when.conditions if isinstance(when, All) else (when,))
        if isinstance(x, IsZero)
    )
    single = (e for e in equal if len(e.terms) == 1 and isinstance(e.terms[0][0], str))
    return {str(v): -e.constant * c for e in single for v, c in e.terms if abs(c) == 1}
