# SPDX-License-Identifier: Apache-2.0
"""Plans that options ask for by name: whether there is such a plan, and who is offered it.

A plan that is offered to no nest is no error, as one text may have several defs: it is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, get_args

from tcsym.errors import OptionError
from tcsym.options import Options
from tcsym.schedule.chosen import Choice, Note, Taken
from tcsym.schedule.device.plan import DevicePlan, Steps
from tcsym.schedule.plan import AnyPlan

Offered = Mapping[str, Iterable[str]]  # nest -> names of plans


def require_plans(options: Options) -> None:
    """OptionError for a name that no plan has, of any target."""
    for name in options.plans:
        kind = name.partition(":")[0]
        if kind not in _kinds():
            close = get_close_matches(kind, _kinds(), 3)
            near = " or ".join(f"`{x}`" for x in close)
            hint = f"did you mean {near}?" if close else f"plans are {', '.join(sorted(_kinds()))}"
            raise OptionError(
                f"option `plan` is {name!r}, and there is no plan `{kind}`", hint=hint
            )


def unmet(options: Options, offered: Offered) -> tuple[str, ...]:
    """What to tell of each wanted plan that no nest is offered."""
    names = dict.fromkeys(name for found in offered.values() for name in found)
    known = {*names, *(name.partition(":")[0] for name in names)}
    missing = [name for name in options.plans if name not in known]
    return tuple(_told(name, offered, list(names)) for name in missing)


def _told(name: str, offered: Offered, names: list[str]) -> str:
    nests = [f"{nest}: {', '.join(dict.fromkeys(found))}" for nest, found in offered.items()]
    close = get_close_matches(name, names, 1)
    meant = f"; did you mean `{close[0]}`?" if close else ""
    listed = f"; offered are {'; '.join(nests)}" if nests else ""
    return f"no nest is offered the plan {name!r}, so sizes choose{meant}{listed}"


def offered_in(choices: Iterable[Choice | Note]) -> Offered:
    """On a processor: of each nest, with what was taken without a choice."""
    found: dict[str, list[str]] = {}
    for choice in _all(choices):
        taken = [type(x.plan).__name__ for x in choice.versions if isinstance(x, Taken)]
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
