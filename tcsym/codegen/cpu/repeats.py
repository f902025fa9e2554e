# SPDX-License-Identifier: Apache-2.0
"""Lanes at places that are known while code is made -> one element, or a run of memory shuffled.

`X[i/3]` along i, as nearest neighbours read it, gives each element to three lanes: gathered, it
would be loaded three times. Only elements that some lane wants are touched.
"""

from __future__ import annotations

from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.values import Val


def is_run(places: tuple[int, ...]) -> bool:
    """They are all the elements of a run, some of them of several lanes."""
    n = len(set(places))
    return max(places) - min(places) + 1 == n < len(places)


def wanted(context: Context, places: tuple[int, ...], mask: Val | None) -> Val:
    """A mask of the run's elements: those that some active lane wants."""
    code, width, low = context.code, context.width, min(places)
    users = [[k for k, p in enumerate(places) if p == low + e] for e in range(len(set(places)))]
    nothing = Val("zeroinitializer", "i1", width)
    active = Val("splat (i1 true)", "i1", width) if mask is None else mask
    total: Val | None = None
    for k in range(1 if mask is None else max(map(len, users))):
        picks = [u[min(k, len(u) - 1)] for u in users]
        part = code.shuffle(active, nothing, (*picks, *(width for _ in range(width - len(users)))))
        total = part if total is None else code.binary("or", total, part)
    assert total is not None
    return total
