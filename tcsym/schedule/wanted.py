# SPDX-License-Identifier: Apache-2.0
"""Plans that options ask for by name: whether there is such a plan, and who is offered it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, get_args

from tcsym.errors import OptionError
from tcsym.mapping.given import given_nests
from tcsym.mapping.plan import Directives
from tcsym.options import Options, told_of_plan
from tcsym.schedule.chosen import Choice, Note, Taken
from tcsym.schedule.device.plan import DevicePlan, Steps
from tcsym.schedule.plan import AnyPlan

Offered = Mapping[str, Iterable[str]]  # nest -> names of plans


def require_plans(options: Options) -> None:
    """OptionError for a name that no plan has, of any target, and for a text that is no plan."""
    for name in asked_plans(options):
        kind = name.partition(":")[0]
        if kind not in _kinds():
            close = get_close_matches(kind, _kinds(), 3)
            near = " or ".join(f"`{x}`" for x in close)
            hint = f"did you mean {near}?" if close else f"plans are {', '.join(sorted(_kinds()))}"
            raise OptionError(
                f"option `plan` is {name!r}, and there is no plan `{kind}`", hint=hint
            )


def asked_plans(options: Options) -> tuple[str, ...]:
    """The names of plans that are asked for, each once. Errors: OptionError."""
    return tuple(dict.fromkeys(x.plan_name for x in given_nests(options) if x.plan_name))


def unmet(options: Options, offered: Offered, nests: Mapping[str, Offered]) -> Iterator[str]:
    """What to tell of each wanted plan that is not offered, to no nest or to the one that shall
    have it. nests: what is offered in each of them."""
    for x in given_nests(options):
        if not x.name and not _has(offered, x.plan_name):
            yield f"no nest {_told(x.plan_name, offered)}"
        elif x.name in nests and not _has(nests[x.name], x.plan_name):
            told = _told(x.plan_name, nests[x.name], "not ")
            yield told_of_plan(x.at, f"nest {x.name} {told}")


def _has(offered: Offered, plan: str) -> bool:
    names = {name for found in offered.values() for name in found}
    return not plan or plan in names | {name.partition(":")[0] for name in names}


def _told(plan: str, offered: Offered, no: str = "") -> str:
    nests = [
        f"{nest}: {', '.join(dict.fromkeys(found))}" for nest, found in offered.items() if found
    ]
    close = get_close_matches(plan, [name for found in offered.values() for name in found], 1)
    meant = f"; did you mean `{close[0]}`?" if close else ""
    listed = f"; offered are {'; '.join(nests)}" if nests else ""
    return f"is {no}offered the plan {plan!r}{meant}{listed}"


def offered_in(choices: Iterable[Choice | Note]) -> Offered:
    """On a processor: of each nest, with what was taken without a choice."""
    found: dict[str, list[str]] = {}
    for choice in _all(choices):
        plans = [x.plan for x in choice.versions if isinstance(x, Taken)]
        taken = [type(p).__name__ for p in plans if not isinstance(p, Directives)]
        names = [name for name, _ in choice.offered] or taken
        found.setdefault(choice.nest, []).extend(names)
    return found


def _all(record: Iterable[Choice | Taken | Note]) -> Iterator[Choice]:
    for x in record:
        if isinstance(x, Choice):
            yield x
            yield from _all(x.versions)
        elif isinstance(x, Taken):
            yield from _all(x.inside)


@lru_cache(None)
def _kinds() -> tuple[str, ...]:
    return tuple(dict.fromkeys(k.__name__ for k in _classes(AnyPlan | DevicePlan | Steps)))


def _classes(kind: Any) -> Iterator[type]:
    """All of a union, with those that are kinds of them."""
    inside = get_args(kind)
    if not inside:
        yield kind
    for x in inside or kind.__subclasses__():
        yield from _classes(x)
