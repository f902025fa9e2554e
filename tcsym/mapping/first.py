# SPDX-License-Identifier: Apache-2.0
"""Operands that are made once in front of a nest, before it is planned: what rows compute by
functions, for each column again; what moves unevenly; what lies across lanes, in few loops.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tcsym.frontend.program import Call
from tcsym.index.expr import ONE
from tcsym.ir.traverse import subvalues
from tcsym.mapping.contraction import Contraction
from tcsym.mapping.nest import Access, Nest, analyse
from tcsym.mapping.plan import Refused, Stage, plan_text
from tcsym.mapping.stage import stage
from tcsym.mapping.tree import Mapping_, found
from tcsym.target.machine import Machine


def made_first(nest: Nest, c: Contraction | None, machine: Machine) -> list[tuple[str, Nest]]:
    """Directives, and the nest behind them; none if there is nothing to be made."""
    stages = dict.fromkeys(_factors(nest, c) if c and c.rows and not c.is_window else _across(nest))
    made = tuple(d for d in stages if d.order)
    try:
        for d in made:
            start = Mapping_(nest.top, nest.buffers, nest.sizes, machine, uncertain=nest.uncertain)
            m = stage(start, d)
            left = analyse(found(m.node, nest.top.variable), m.buffers, nest.sizes, nest.around)
            nest = replace(left, shared=nest.shared, constants=nest.constants)
    except Refused:
        return []
    return [(plan_text(made), nest)] if made else []


def _factors(nest: Nest, c: Contraction) -> Iterator[Stage]:
    for x in c.sums:
        loops = (*nest.names, *x.names)
        for a in x.apart((*x.tall, *x.wide)):
            calls = a in x.tall and any(isinstance(v, Call) for v in subvalues(x.part(a)))
            if calls or any(nest.stride(a, v) is None for v in loops):
                yield Stage(a.buffer, None, _as_it_lies(a, loops))


def _across(nest: Nest) -> Iterator[Stage]:
    """Of sums: what lanes of results would gather again in each iteration of another loop."""
    written = {s.accesses[0].buffer for s in nest.statements}
    columns = [v for v in nest.names if nest.stride(nest.result, v) == ONE]
    for s in nest.statements if nest.inner and len(columns) == 1 else ():
        for a in s.accesses[1:]:
            moved = _as_it_lies(a, tuple(x.variable for x in s.around))
            is_far = columns[0] in moved and nest.stride(a, columns[0]) != ONE
            if is_far and not {*nest.names} <= {*moved} and a.buffer not in written:
                yield Stage(a.buffer, None, (*(v for v in moved if v != columns[0]), columns[0]))


def _as_it_lies(a: Access, loops: tuple[str, ...]) -> tuple[str, ...]:
    """Empty for windows: a copy of all terms has each element many times."""
    found = [[v for v in loops if v in s.variables()] for s in a.subscripts]
    is_window = any(len(x) > 1 for x in found)
    return () if is_window else tuple(dict.fromkeys(v for x in found for v in x))
