# SPDX-License-Identifier: Apache-2.0
"""Measurements at several sizes -> a decision tree over sizes, proved by isl to be a partition.

Leaves hold the options that lose least against the best option at each of their sizes; large losses
count more than in proportion, as the worst case matters, too. A split must pay. From few sizes it
must pay more, as they say little of those between them. From many, what lies between is predicted
first (`smooth`), and the tree is grown from both; how fine it may be is what loses least at sizes
that were held out. What of it is kept is for `conclude` to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.index.expr import Condition, any_of, negate
from tcsym.options import Options
from tcsym.tuning.grow_tree import Figures, Ground, Matrix, Node, Rows, Sizes, grown, pruned
from tcsym.tuning.smooth import predicted
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Leaf, Split, Tree, leaf_of

SHALLOW, DEEPEST = 3, 12  # levels from few sizes and from many
MANY, FOLDS = 40, 3
LEAST_SAVED, UNSURE = 0.006, 0.1  # from few sizes, of a node's time; the second by their number
SAVINGS = (0.0001, 0.0002, 0.0004, 0.001, 0.003, 0.01, 0.03)  # from many, of the time of all sizes
LEAST_SIZES = 4  # in a leaf, of many and predicted ones
CONVEX, MOST_LOST = 2.0, 0.7  # 20 % lost count as much as six times 4 %; more than 100 % as 100 %
UNMEASURED = 0.5
PER_FIELD, BY_ISL = 0.0005, 0.03  # what a field must save; isl takes long to schedule
Values = tuple[int, ...]
Costs = Mapping[Options, Mapping[Values, Ratio]]
Estimate = Callable[[Sequence[Options], Sizes], Matrix]


def lost(regret: Any) -> Any:
    """How bad it is to be slower by that logarithm (a number or an array)."""
    capped = np.minimum(regret, MOST_LOST)
    return capped + CONVEX * capped * capped


class Between(Struct, frozen=True):
    """Sizes that a tree is for, too, and what tells options apart there.

    estimate: logarithms of the estimated times of options at sizes, sizes by options.
    """

    sizes: Sequence[Values] = ()
    estimate: Estimate | None = None


NOWHERE = Between()


class Learned(Struct, frozen=True):
    """`held_out`: what a tree without them loses (logarithm of time) at each of the sizes."""

    tree: Tree
    held_out: Mapping[Values, float] = field(default_factory=dict)


class _Measured(Struct, frozen=True):
    """What is known, sizes by options, the default first. `logs` are worse by their noise.

    estimates: what is estimated there, and at the sizes between.
    """

    options: tuple[Options, ...]
    values: Sizes
    logs: Matrix
    weights: Figures
    between: Sizes
    estimates: tuple[Matrix, Matrix] | None

    def part(self, rows: Rows) -> Ground:
        """These sizes and, with as much weight, those between, as these predict them."""
        values, logs, weights = self.values[rows], self.logs[rows], self.weights[rows]
        if len(self.between):
            here, there = (None, None) if self.estimates is None else self.estimates
            mine = None if here is None else here[rows]
            found = predicted(values, logs, self.between, mine, there)
            each = np.full(len(found), weights.sum() / len(found))
            values = np.concatenate([values, self.between])
            logs, weights = np.concatenate([logs, found]), np.concatenate([weights, each])
        return Ground(self.options, values, logs, self.loss(logs, weights), weights)

    def loss(self, logs: Matrix, weights: Figures) -> Matrix:
        """Weighted `lost`, with what the options' fields must save."""
        least = [
            PER_FIELD * len(o.changed()) + BY_ISL * (o.scheduler == "isl") for o in self.options
        ]
        regret = logs - logs.min(axis=1, keepdims=True)
        return np.asarray(weights[:, None] * (lost(regret) + np.array(least)))


def learn_tree(
    costs: Costs,
    weights: Mapping[Values, float],
    deepest: int | None = None,
    between: Between = NOWHERE,
) -> Learned:
    """The tree for these sizes; `costs` has the default options, with ratios of 1.

    weights: importance of each size; they sum to 1. deepest: most levels, None: by the sizes.
    """
    measured = _measured(costs, weights, between)
    every = np.arange(len(weights))
    if len(weights) < MANY:
        depth = SHALLOW if deepest is None else deepest
        few = replace(measured, between=measured.between[:0])
        tree = pruned(grown(few.part(every), depth, 1), _needed_of_few)
        return Learned(tree)
    depth = DEEPEST if deepest is None else deepest
    chosen = _held_out(measured, depth)
    share = _simplest(chosen, measured.loss(measured.logs, measured.weights))
    tree = pruned(grown(measured.part(every), depth, LEAST_SIZES), _needed(share, measured))
    regrets = measured.logs[every, chosen[share]] - measured.logs.min(axis=1)
    held_out = dict(zip(weights, regrets.tolist()))
    return Learned(tree, held_out)


def _measured(costs: Costs, weights: Mapping[Values, float], between: Between) -> _Measured:
    options = tuple(sorted(costs, key=lambda o: o != Options()))
    logs = np.array([[_log(costs[o].get(v)) for o in options] for v in weights])
    values, others = _array(list(weights), 0), _array(between.sizes, len(next(iter(weights))))
    estimates = None
    if between.estimate is not None and len(weights) >= MANY:
        both = between.estimate(options, np.concatenate([values, others]))
        estimates = both[: len(values)], both[len(values) :]
    shares = np.array(list(weights.values()))
    return _Measured(options, values, logs, shares, others, estimates)


def _log(ratio: Ratio | None) -> float:
    return UNMEASURED if ratio is None else ratio.log + ratio.noise


def _array(sizes: Sequence[Values], n: int) -> Sizes:
    return np.array(sizes, dtype=np.int64).reshape(len(sizes), -1 if sizes else n)


def _needed_of_few(node: Node) -> float:
    return (LEAST_SAVED + UNSURE / node.n_sizes) * node.weight


def _needed(share: float, measured: _Measured) -> Callable[[Node], float]:
    """That share of the time of all sizes, those between included."""
    total = float(measured.weights.sum()) * (2 if len(measured.between) else 1)
    return lambda _: share * total


def _held_out(measured: _Measured, depth: int) -> dict[float, Rows]:
    """The options, by number, that trees of the other sizes choose, by how much a split saves."""
    every = np.arange(len(measured.values))
    places = {o: k for k, o in enumerate(measured.options)}
    found = {share: np.zeros(len(every), np.intp) for share in SAVINGS}
    for fold in range(FOLDS):
        out = every % FOLDS == fold
        node = grown(measured.part(every[~out]), depth, LEAST_SIZES)
        for share in SAVINGS:
            tree = pruned(node, _needed(share, measured))
            for row in every[out]:
                options = leaf_of(tree, measured.values[row].tolist()).options
                found[share][row] = places[options]
    return found


def _simplest(chosen: Mapping[float, Rows], loss: Matrix) -> float:
    """The largest share that is no worse than the best one, beyond a standard error.

    Breiman and others, as in `grow`: section 3.4.3.
    """
    every = np.arange(len(loss))
    losses = {share: loss[every, rows] for share, rows in chosen.items()}
    best = min(losses.values(), key=lambda found: float(found.sum()))

    def worse(share: float) -> float:
        """Than the best, in standard errors of the sum."""
        more = losses[share] - best
        return float(more.sum() / max(1e-12, more.std() * math.sqrt(len(more))))

    return max(share for share in losses if worse(share) <= 1)


def prove_partition(tree: Tree, names: tuple[str, ...]) -> None:
    """isl's word that the leaves' contexts are disjoint and cover all sizes; AssertionError.

    By induction from the root: the two sides of each test are disjoint, and together all sizes.
    """
    from tcsym.index.presburger import Presburger

    presburger = Presburger(names)
    sides: list[tuple[Condition, Condition]] = []
    below = [tree]
    while below:
        match below.pop():
            case Split(test, then, orelse):
                condition = test.condition(names)
                sides.append((condition, negate(condition)))
                below += [then, orelse]
            case Leaf():
                pass
    presburger.size_set(any_of(holds for holds, _ in sides))  # makes all opaque products known
    for holds, rest in sides:
        a, b = presburger.size_set(holds), presburger.size_set(rest)
        assert a.intersect(b).is_empty(), f"regions overlap: {tree}"
        assert presburger.size_set().is_subset(a.union(b)), f"regions leave sizes out: {tree}"
