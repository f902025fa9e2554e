# SPDX-License-Identifier: Apache-2.0
"""In which order an einsum multiplies its operands: a sum of products is taken apart.

`mk,kl,ln->mn` in one statement loops over m, k, l and n; `(mk,kl),ln` loops over m, k and l, then
over m, l and n. numpy finds the pairs (the search of Smith and Gray, "opt_einsum - A Python
package for optimizing contraction order for einsum-like expressions", JOSS 2018); this module
decides whether they pay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

# Positions of the operands that a step multiplies; its result goes to the end of the list.
Order = tuple[tuple[int, ...], ...]

# A pass more over memory and a statement more are worth this many times fewer points.
GAIN = 2
# The search for the least takes n! steps.
SEARCHED_OPERANDS = 4


def has_choice(terms: Sequence[Sequence[str]], output: Sequence[str]) -> bool:
    """Whether the order can matter: something is summed that not all operands have."""
    return len(terms) > 1 and any(x not in term for x in _summed(terms, output) for term in terms)


def order(
    terms: Sequence[Sequence[str]], output: Sequence[str], extents: Mapping[str, int]
) -> Order:
    """The steps for these extents; a single one where taking the product apart gains little."""
    whole: Order = (tuple(range(len(terms))),)
    if not has_choice(terms, output):
        return whole
    steps = own_sums(terms, output)
    steps += _pairs(after(terms, output, steps), output, extents)
    apart = points(terms, output, steps, extents)
    return steps if GAIN * apart <= points(terms, output, whole, extents) else whole


def after(terms: Sequence[Sequence[str]], output: Sequence[str], steps: Order) -> list[list[str]]:
    """The terms that are left after `steps`."""
    left = [list(term) for term in terms]
    for step in steps:
        left.append(take(left, step, output)[1])
    return left


def take(
    left: list[list[str]], step: Sequence[int], output: Sequence[str]
) -> tuple[list[list[str]], list[str]]:
    """Take the operands of `step` out of `left`; their terms, and the labels of their product."""
    used = [left[k] for k in sorted(step)]
    for k in sorted(step, reverse=True):
        del left[k]
    if not left:
        return used, list(output)
    kept = {x for term in left for x in term} | set(output)
    together = [dict.fromkeys(x for term in terms for x in term) for terms in (used, used[::-1])]
    orders = [[x for x in labels if x in kept] for labels in (_in_place(used, kept), *together)]

    def transposed(labels: Sequence[str]) -> tuple[int, int]:
        return _crossings(labels, output), sum(_crossings(labels, term) for term in left)

    return used, min(orders, key=transposed)


def _in_place(used: list[list[str]], kept: set[str]) -> list[str]:
    """The labels of the largest term, and those of the others where it has what is summed: its
    rows stay rows."""
    largest, *others = sorted(used, key=len, reverse=True)
    new = [x for x in dict.fromkeys(x for term in others for x in term) if x not in largest]
    at = next((k for k, x in enumerate(largest) if x not in kept), len(largest))
    return [*largest[:at], *new, *largest[at:]]


def _crossings(labels: Sequence[str], output: Sequence[str]) -> int:
    """Pairs that stand the other way round in the output, or in an operand: a later step has to
    transpose these."""
    places = [output.index(x) for x in labels if x in output]
    return sum(a > b for k, a in enumerate(places) for b in places[k + 1 :])


def points(
    terms: Sequence[Sequence[str]], output: Sequence[str], steps: Order, extents: Mapping[str, int]
) -> int:
    """Points of all loops of `steps`."""
    left, total = [list(term) for term in terms], 0
    for step in steps:
        used, result = take(left, step, output)
        left.append(result)
        total += prod(extents[x] for x in {x for term in used for x in term})
    return total


def _summed(terms: Sequence[Sequence[str]], output: Sequence[str]) -> set[str]:
    return {x for term in terms for x in term} - set(output)


def own_sums(terms: Sequence[Sequence[str]], output: Sequence[str]) -> Order:
    """A step for each operand with a label to sum that no other has."""
    steps: list[tuple[int, ...]] = []
    for k, term in enumerate(terms):
        others = {x for m, other in enumerate(terms) if m != k for x in other}
        if set(term) - others - set(output):
            steps.append((k - len(steps),))
    return tuple(steps)


def _pairs(
    terms: Sequence[Sequence[str]], output: Sequence[str], extents: Mapping[str, int]
) -> Order:
    import numpy as np

    numbers = {x: k for k, x in enumerate(dict.fromkeys(x for term in terms for x in term))}
    arguments: list[Any] = []
    for term in terms:
        shape = tuple(max(1, extents[x]) for x in term)
        arguments += [np.broadcast_to(np.float32(0), shape), [numbers[x] for x in term]]
    search = "optimal" if len(terms) <= SEARCHED_OPERANDS else "greedy"
    path, _ = np.einsum_path(*arguments, [numbers[x] for x in output], optimize=search)
    return tuple(tuple(step) for step in path[1:])
