# SPDX-License-Identifier: Apache-2.0
"""Sizes given to a kernel -> the sizes that its body runs with, where it has a view (`View`)."""

from __future__ import annotations

from collections.abc import Mapping

from tcsym.index.expr import ONE, Condition, Index, all_of, choose, eq, var
from tcsym.index.values import evaluate, map_condition, product_of, substitute
from tcsym.ir.loops import Kernel, View


def viewed_values(view: View) -> dict[str, Index]:
    """Each size of the body in terms of those given, if it differs."""
    condition = all_of(eq(var(u), 1) for u in view.units)
    values: dict[str, Index] = {}
    for group in view.groups:
        *ones, last = group
        product = product_of(map(var, group))
        values[last] = choose(condition, product, var(last))
        values.update((x, choose(condition, ONE, var(x))) for x in ones)
    return values


def left_out_of_call(kernel: Kernel) -> Condition:
    """`Kernel.left_out` as a condition of the sizes of a call."""
    values = viewed_values(kernel.view) if kernel.view is not None else {}
    return map_condition(kernel.left_out, lambda e: substitute(e, values))


def body_sizes(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """Those that the body runs with, in a call with these."""
    values = dict(sizes)
    if kernel.view is not None:
        viewed = viewed_values(kernel.view)
        values |= {name: evaluate(e, sizes) for name, e in viewed.items()}
    return values
