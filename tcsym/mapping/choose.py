# SPDX-License-Identifier: Apache-2.0
"""Plans for nests: a few that are proposed, by rules that know no cost.

A proposal is a text: what prints is what a user may give.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.index.expr import (
    TRUE,
)
from tcsym.index.values import substitute
from tcsym.mapping.contraction import contraction, family
from tcsym.mapping.contractions import Contractions
from tcsym.mapping.nest import Nest
from tcsym.mapping.plan import Version, with_sizes
from tcsym.mapping.proposal import Proposal, lanes
from tcsym.mapping.rows import rows
from tcsym.mapping.text import parse
from tcsym.schedule.multiples import quotients
from tcsym.target.machine import Machine


def versions(nest: Nest, machine: Machine) -> tuple[Version, ...]:
    """The plans of a nest, best first; the last has no condition."""
    out, values = list[Version](), quotients(nest.sizes)
    for name, when, text in _proposals(nest, machine):
        plan = with_sizes(parse(text), lambda e: substitute(e, values))
        only = when if family(nest) == "rows" else TRUE
        out.append(Version(name, when, plan, only=only))
    return tuple(out)


def _proposals(nest: Nest, machine: Machine) -> Iterator[Proposal]:
    found = contraction(nest)
    if found is None:
        return rows(nest, machine)
    return Contractions(nest, found, machine, lanes(nest, machine)).proposals()
