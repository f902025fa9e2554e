"""Measurements at several sizes -> a decision tree over sizes, proved by isl to be a partition.

Leaves hold the options of least mean cost over their sizes. A split must pay: what it saves on
average must exceed a share of the time and the noise of the measurements behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise

from tcsym.index import Condition, any_of
from tcsym.options import Options
from tcsym.records import dataclass
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Leaf, Predicate, Split, Tree, contexts

DEEPEST, DEEPER, MANY = 3, 5, 16  # the second for that many sizes
LEAST_SAVED, UNSURE = 0.006, 0.1  # in logarithms of time; the second by the number of sizes
UNMEASURED = 0.5
PER_FIELD, BY_ISL = 0.002, 0.03  # what a field must save; isl takes long to schedule
DIVISORS = (8, 16)
Values = tuple[int, ...]
Costs = Mapping[Options, Mapping[Values, Ratio]]


@dataclass(frozen=True, slots=True)
class _Measured:
    """Costs are logarithms of time by the default's, made worse by their standard error."""

    costs: Costs
    weights: Mapping[Values, float]

    def cost(self, options: Options, values: Values) -> float:
        ratio = self.costs[options].get(values)
        return UNMEASURED if ratio is None else ratio.log + ratio.noise

    def best(self, sizes: Sequence[Values]) -> tuple[float, Options]:
        """Least weighted sum over sizes; the default if nothing is better."""
        return min(
            ((self._mean(o, sizes), o) for o in self.costs),
            key=lambda pair: pair[0],
        )

    def _mean(self, options: Options, sizes: Sequence[Values]) -> float:
        least = PER_FIELD * len(options.changed()) + BY_ISL * (options.scheduler == "isl")
        return sum(self.weights[v] * (self.cost(options, v) + least) for v in sizes)


def learn_tree(costs: Costs, weights: Mapping[Values, float], deepest: int | None = None) -> Tree:
    """The tree for these sizes; `costs` has the default options, with ratios of 1.

    weights: importance of each size; they sum to 1. deepest: most levels, None: by the sizes.
    """
    depth = DEEPER if len(weights) > MANY else DEEPEST
    depth = depth if deepest is None else deepest
    return _grow(_Measured(costs, weights), tuple(weights), depth)


def _grow(measured: _Measured, sizes: tuple[Values, ...], depth: int) -> Tree:
    cost, options = measured.best(sizes)
    leaf = Leaf(options)
    if depth == 0 or len(sizes) < 2:
        return leaf
    splits: list[tuple[float, int, Predicate]] = []
    for k, test in enumerate(predicates(sizes)):
        parts = _parts(test, sizes)
        if all(parts):
            splits.append((sum(measured.best(part)[0] for part in parts), k, test))
    if not splits:
        return leaf
    least, _, test = min(splits)
    needed = LEAST_SAVED + UNSURE / len(sizes)  # few sizes say little of those between them
    if cost - least < needed * sum(measured.weights[v] for v in sizes):
        return leaf
    then, orelse = (_grow(measured, part, depth - 1) for part in _parts(test, sizes))
    return then if then == orelse else Split(test, then, orelse)


def _parts(test: Predicate, sizes: Iterable[Values]) -> tuple[tuple[Values, ...], ...]:
    then = tuple(v for v in sizes if test.holds(v))
    return then, tuple(v for v in sizes if not test.holds(v))


def predicates(sizes: Sequence[Values]) -> list[Predicate]:
    """Thresholds between the sizes' values, of all of them (work), of one, of two; divisibility."""
    n = len(sizes[0])
    every = tuple(range(n))
    products = [every] * (n > 1) + [(k,) for k in every]
    products += list(combinations(every, 2)) if n > 2 else []
    found: list[Predicate] = []
    for product in products:
        values = sorted({math.prod(v[k] for k in product) for v in sizes})
        found += [Predicate(product, least=_between(a, b)) for a, b in pairwise(values)]
    found += [Predicate((k,), divisor=d) for k in every for d in DIVISORS]
    return found


def _between(low: int, high: int) -> int:
    """A round number about the geometric mean: low < it <= high."""
    middle = math.sqrt(max(1, low) * high)
    unit = 1 << max(0, int(math.log2(middle)) - 2)
    rounded = round(middle / unit) * unit
    return rounded if low < rounded <= high else low + 1


def prove_partition(tree: Tree, names: tuple[str, ...]) -> None:
    """isl's word that the leaves' contexts are disjoint and cover all sizes; AssertionError."""
    from tcsym.presburger import Presburger

    conditions: list[Condition] = [condition for condition, _ in contexts(tree, names)]
    presburger = Presburger(names)
    covered = presburger.size_set(any_of(conditions))  # makes all opaque products known
    sets = [presburger.size_set(c) for c in conditions]
    for a, b in combinations(sets, 2):
        assert a.intersect(b).is_empty(), f"regions overlap: {tree}"
    for s in sets:
        covered = covered.union(s)
    assert presburger.size_set().is_subset(covered), f"regions leave sizes out: {tree}"
