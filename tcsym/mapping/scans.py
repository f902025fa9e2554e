# SPDX-License-Identifier: Apache-2.0
"""Plans that are proposed for rows that run in order: recurrences, prefix sums, polynomials.

A row waits for its own last step, so several run side by side: in lanes where they lie so in
memory, else in registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.index.expr import ONE, TRUE
from tcsym.mapping.nest import Nest, sinks
from tcsym.mapping.proposal import FEW, SIDE_BY_SIDE, Proposal, vectors_text


def is_scan(nest: Nest) -> bool:
    """Its points are steps that run in order."""
    return any(x.order == "sequential" for x in nest.inner)


def scans(nest: Nest, lanes: int) -> Iterator[Proposal]:
    """The plans of such a nest: its rows in vectors, side by side, and one by one."""
    legal = [v for v in nest.names if sinks(nest.body, frozenset((v,))) is None]
    used = [a for s in nest.statements for a in s.accesses]

    def near(v: str) -> int:
        return sum(nest.stride(a, v) == ONE for a in used)

    if legal:
        v = max(reversed(legal), key=near)
        order = " ".join((*(x for x in nest.names if x != v), f"{v}.tile"))
        for n in (FEW, 1) if lanes > 1 else ():
            split = f"split {v} tile {vectors_text(n, lanes)} end=half"
            yield f"rows in {n * lanes} lanes", TRUE, f"{split}; order {order}"
        split = f"split {v} tile reg:{SIDE_BY_SIDE} end=half"
        yield "rows side by side", TRUE, f"{split}; order {order}"
    yield "row by row", TRUE, f"order {' '.join(nest.names)}"
