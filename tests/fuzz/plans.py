# SPDX-License-Identifier: Apache-2.0
"""Random options of a program: plans are those that its nests are offered, as others are errors."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from tcsym.compiler import Lowering, analyse
from tcsym.options import Options
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

    nests = mapped(replace(drawn, mapping="old")).nests  # which has plans by name
    offered = [(k, n) for k, x in nests.items() for names in offered_in(x).values() for n in names]
    if not offered or rng.random() < 0.3:
        return drawn
    nest, name = rng.choice(offered)
    asking = replace(drawn, plan=f"{nest}: {name}")
    return drawn if mapped(asking).warnings else asking  # inside of what is not taken
