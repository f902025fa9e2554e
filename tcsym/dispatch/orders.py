# SPDX-License-Identifier: Apache-2.0
"""Regions of sizes -> the same, with regions for other orders of chains of products.

Which order has the fewest points is known for all sizes, so nothing is measured. Each order is a
version of its own, compiled once calls need it: a chain costs no more to compile than it did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tcsym.frontend.program import Program
from tcsym.index.expr import TRUE, Condition, all_of, any_of, negate
from tcsym.rewrite.reorder_chains import other_orders_hold, other_orders_pay
from tcsym.sizes.region import Region


def by_orders(regions: Sequence[Region], program: Program) -> tuple[Region, ...]:
    """The written order first; options that name another one have it where it may be taken."""
    pay = other_orders_pay(program)
    if not pay:
        return tuple(regions)
    return tuple(new for r in regions for new in _divided(r, program, pay))


def _divided(r: Region, program: Program, pay: Sequence[Condition]) -> Iterator[Region]:
    named = r.options.chains
    if named == 1:
        yield r
        return
    orders = {named: other_orders_hold(program)} if named else dict(enumerate(pay, 2))
    within = "" if r.context == TRUE else f"{r.where}, "
    yield replace(
        r,
        context=all_of((r.context, negate(any_of(orders.values())))),
        options=replace(r.options, chains=min(named, 1)),
        meant=f"{within}products in the written order",
    )
    for k, condition in orders.items():
        yield replace(
            r,
            context=all_of((r.context, condition)),
            options=replace(r.options, chains=k),
            meant=f"{within}products in order {k}, which has the fewest points",
        )
