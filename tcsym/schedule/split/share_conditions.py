# SPDX-License-Identifier: Apache-2.0
"""Loops that do nothing but what one condition on sizes asks for -> the condition around them.

    T(i,j) = C(i,j);  if K >= 1: s(i) += T(i,j)    ->    if K >= 1: both, around all loops

A temporary read under the condition alone is stored under it. Else the condition stays in the
innermost loop, and sums beside it are taken from elements that nothing has set.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from tcsym.index.expr import Condition, condition_variables
from tcsym.ir.loops import Branch, Kernel, Loop, Node, Store, block
from tcsym.ir.traverse import loads, map_node
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.loops import children


def share_conditions(kernel: Kernel) -> Kernel:
    """Contract: `unswitch` has run."""
    uses = Counter(a.buffer for a in accesses(kernel.body))
    arguments = {b.name for b in kernel.buffers if b.space == "argument"}
    own = Counter({name: n for name, n in uses.items() if name not in arguments})

    def hoist(x: Node) -> Node:
        if not isinstance(x, Loop):
            return x
        parts = children(x.body)
        condition = _shared(kernel, parts, own)
        if condition is None:
            return x
        body = block(*(p.then if isinstance(p, Branch) else p for p in parts))
        return Branch(condition, replace(x, body=body))

    return replace(kernel, body=map_node(kernel.body, hoist))


def _shared(kernel: Kernel, parts: tuple[Node, ...], own: Counter[str]) -> Condition | None:
    """The condition on sizes of all parts but stores that nothing else needs; None: there is none.

    own: accesses in the kernel of each temporary.
    """
    branches = [p for p in parts if isinstance(p, Branch) and p.orelse is None]
    stores = [p for p in parts if isinstance(p, Store)]
    conditions = {p.condition for p in branches}
    if len(conditions) != 1 or len(stores) + len(branches) < len(parts):
        return None
    (condition,) = conditions
    here = Counter(a.buffer for p in parts for a in accesses(p))
    made = all(here[s.buffer] == own[s.buffer] and not _can_fail(s) for s in stores)
    known = condition_variables(condition) <= frozenset(kernel.sizes)
    return condition if made and known else None


def _can_fail(s: Store) -> bool:
    return any(any(r.checked) or r.unwritten is not None for r in loads(s.value))
