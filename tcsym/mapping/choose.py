# SPDX-License-Identifier: Apache-2.0
"""Plans for nests: a few that are proposed, of which the cost chooses.

A proposal is a text: what prints is what a user may give.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.index.expr import all_of, eq, var
from tcsym.index.values import substitute
from tcsym.mapping.contractions import Contractions
from tcsym.mapping.nest import Nest, contraction
from tcsym.mapping.plan import Version, with_sizes
from tcsym.mapping.proposal import Proposal, lanes
from tcsym.mapping.rows import rows
from tcsym.mapping.text import parse
from tcsym.schedule.multiples import quotients
from tcsym.target.machine import Machine

WINDOWS = (1, 3)


def versions(nest: Nest, machine: Machine) -> tuple[Version, ...]:
    """Plans that a nest may have, each with the sizes for which it may run."""
    out, values = list[Version](), quotients(nest.sizes)
    for facts in (*_windows(nest), dict[str, int]()):
        known = all_of(eq(var(v), n) for v, n in facts.items())
        for name, when, text in _proposals(nest.with_sizes(facts), machine):
            plan = with_sizes(parse(text), lambda e: substitute(e, values))
            out.append(Version(name, all_of((known, when)), plan, facts, only=when))
    return tuple(out)


def _windows(nest: Nest) -> Iterator[dict[str, int]]:
    """Sizes of windows that are common: of one point, which are no windows, and of three."""
    c = contraction(nest)
    if c is None or not c.is_window:
        return
    sizes = [
        x.upper
        for x in nest.inner
        if any(s.coefficient(x.variable) and len(s.terms) > 1 for s in c.wide.subscripts)
    ]
    names = [next(iter(e.variables())) for e in sizes if e in [var(v) for v in nest.sizes]]
    if len(names) == len(sizes):
        for n in WINDOWS:
            yield dict.fromkeys(names, n)


def _proposals(nest: Nest, machine: Machine) -> Iterator[Proposal]:
    found = contraction(nest)
    if found is None:
        return rows(nest, machine)
    return Contractions(nest, found, machine, lanes(nest, machine)).proposals()
