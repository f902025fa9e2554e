# SPDX-License-Identifier: Apache-2.0
"""Random options of a program: plans are those that its nests are offered, as others are errors."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec.structs import replace

from tcsym.compiler import Lowering, analyse
from tcsym.mapping.plan import Directives
from tcsym.options import Options
from tcsym.schedule.chosen import Choice, Note, Taken
from tcsym.schedule.map_cpu import Mapped, map_cpu
from tcsym.schedule.wanted import offered_in
from tcsym.target.names import resolve_target
from tests.fuzz.model import Case
from tests.fuzz.thresholds import random_options


def options_of(
    case: Case,
    rng: random.Random,
    target: str,
    bind: Literal["never", "before", "after"],
    sizes: Mapping[str, int],
) -> Options:
    """sizes: that become numbers where `bind` says so."""
    drawn = replace(random_options(rng), bind=bind, plan="")
    program, found = analyse(case.source)[case.name], resolve_target(target)
    dense = ("dense",) * (len(program.inputs) + len(program.outputs))
    scheduled = Lowering(program, found, drawn, sizes, dense, (), {}).scheduled()

    def mapped(options: Options) -> Mapped:
        return map_cpu(scheduled.kernel, found.machine, options, tells_all=True)

    usual = mapped(drawn)
    named = sorted({name for names in offered_in(usual.choices).values() for name in names})
    nests = {nest: tuple(_directives(x)) for nest, x in usual.nests.items()}
    nests = {nest: plans for nest, plans in nests.items() if plans}
    if rng.random() < 0.3 or not (named or nests):
        return drawn
    if not nests or (named and rng.random() < 0.5):
        plan = rng.choice(named)
    else:
        plan = "\n".join(f"{nest}: {rng.choice(plans)}" for nest, plans in nests.items())
    asking = replace(drawn, plan=plan)
    return drawn if mapped(asking).warnings else asking  # only for some sizes, or unlike others


def _directives(choices: Iterable[Choice | Note]) -> Iterator[str]:
    """Those of a nest that sizes may choose among."""
    for choice in choices:
        for x in choice.versions if isinstance(choice, Choice) else ():
            if isinstance(x, Taken) and isinstance(x.plan, Directives):
                yield "; ".join(x.plan.lines)
