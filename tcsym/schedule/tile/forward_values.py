# SPDX-License-Identifier: Apache-2.0
"""Stores one after the other -> the last of them, with what the others left in it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.ir.loops import Node, Store, Value, value_dtype
from tcsym.ir.traverse import map_value, subvalues

MOST_VALUES = 64  # in place of elements that are read several times


def forward_values(nodes: Sequence[Node]) -> Store | None:
    """`s = f(x); s = g(s); y = h(s, z)`  ->  `y = h(g(f(x)), z)`; None if there is more to it.

    Contract: nothing else reads s.
    """
    if not nodes or not isinstance(nodes[0], Store):
        return None
    last = nodes[0]
    for x in nodes[1:]:
        value = _with_value(x, last) if isinstance(x, Store) else None
        if value is None:
            return None
        assert isinstance(x, Store)
        last = replace(x, value=value)
    return last


def _with_value(x: Store, before: Store) -> Value | None:
    """What is stored, with the value of the element before in its place."""
    found = [v for v in subvalues(x.value) if isinstance(v, Read) and v.tensor == before.buffer]
    times = len(found) * sum(1 for _ in subvalues(before.value))
    one = Read(before.buffer, before.subscripts, value_dtype(before.value))
    if not found or times > MOST_VALUES or any(v != one for v in found):
        return None
    return map_value(x.value, lambda v: before.value if v == one else v, lambda i: i)
