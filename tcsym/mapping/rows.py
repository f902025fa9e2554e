# SPDX-License-Identifier: Apache-2.0
"""Plans that are proposed for what is no contraction: vectors along rows, short rows in lanes."""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.index.expr import ONE, TRUE, all_of, ge
from tcsym.ir.bounds import extent
from tcsym.mapping.nest import Nest, sinks
from tcsym.mapping.plan import Refused
from tcsym.mapping.proposal import Proposal
from tcsym.mapping.proposal import lanes as lanes_of
from tcsym.target.machine import Machine


def rows(nest: Nest, machine: Machine) -> Iterator[Proposal]:
    """Vectors along each innermost loop, of two rows at once; short rows side by side in lanes."""
    lanes = lanes_of(nest, machine)
    short = _short_rows(nest, lanes)
    if short is not None:
        yield short
    loops = {x.variable: x for s in nest.statements for x in s.around}
    around = {x.variable for s in nest.statements for x in s.around[:-1]}
    out, row = list[str](), nest.names[-1]
    paired = bool(nest.inner) and sinks(nest.body, frozenset((row,))) is None
    if paired:
        out.append(f"split {row} tile reg:2")
    for v, x in loops.items():
        if v in around:
            continue
        out.append(f"split {v} tile reg:4 lane:{lanes} end=peel")
        if x.order == "reduction":
            out.append(f"combine {v}")
        if v in nest.names:
            out.append("order " + " ".join(f"{y}.tile" if y == v else y for y in nest.names))
    if not any("lane" in x for x in out):
        raise Refused("no loop for vectors")
    if paired:
        out.append(f"order {' '.join(nest.names[:-1])} {row}.tile")
    yield "rows", TRUE, "\n".join(out)


def _short_rows(nest: Nest, lanes: int) -> Proposal | None:
    """The last loop of the band in lanes, what it moves turned, if all rows are the inner loops."""
    v, inner = nest.names[-1], nest.inner
    if not inner or any(extent(x) != extent(inner[0]) for x in inner):
        return None
    uses = {
        a.buffer: (a, s) for s in reversed(nest.statements) for a in s.accesses if nest.moves(a, v)
    }
    staged = list[str]()
    for name, (a, s) in uses.items():
        if nest.buffers[name].space != "argument":
            continue
        if s.around[-1].variable in nest.names or nest.stride(a, s.around[-1].variable) != ONE:
            return None
        staged.append(f"stage {name} at {v}.tile order {s.around[-1].variable} {v}.lane as turned")
    order = " ".join(nest.names[:-1])
    when = all_of((ge(3 * lanes, extent(inner[0])), ge(extent(nest.band[-1]), lanes // 2)))
    text = f"split {v} tile lane:{lanes}; order {order} {v}.tile; " + "; ".join(staged)
    return "short rows in lanes", when, text
