# SPDX-License-Identifier: Apache-2.0
"""The operands of a summed product -> the orders of pairs with the fewest points for any sizes.

Points are polynomials in the extents: the extents of a step are multiplied, the steps added. An
order is no worse than another if each product of extents in it is in one of the other's, and not
twice as often. Of those that are no worse than each other the one with fewer points of the highest
degree is taken, then the one whose pairs lie as those of a product of two matrices do. Orders that
remain win at different sizes each: two of them are kept, as each is code of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations
from operator import mul

from msgspec import Struct

from tcsym.frontend.einsum_order import GAIN, Order, after, own_sums, take
from tcsym.index.expr import ZERO, Index
from tcsym.index.values import product_of

MOST_OPERANDS = 5  # they have 180 orders

Extents = tuple[Index, ...]


class Operands(Struct, frozen=True):
    """Each by the labels of its dimensions; `output`: those that are not summed."""

    terms: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    extents: Mapping[str, Index]


class Found(Struct, frozen=True):
    """An order, its points, and extents of what it sums before the last step and not there."""

    order: Order
    points: Index
    inner: tuple[Index, ...]


class Steps(Struct, frozen=True):
    """An order: the extents of each step's loops, and of what lies between two steps."""

    order: Order
    loops: tuple[Extents, ...]
    temporaries: tuple[Extents, ...]


class _Step(Struct, frozen=True):
    """The labels of the operands of a step, and of its result."""

    used: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(x for term in self.used for x in term)

    @property
    def summed(self) -> frozenset[str]:
        return self.labels - frozenset(self.result)


class _Candidate(Struct, frozen=True):
    """An order; how often each product of extents that are no numbers is among its points."""

    order: Order
    steps: tuple[_Step, ...]
    points: Mapping[Extents, int]


def best_orders(operands: Operands) -> tuple[Found, ...]:
    """One or two, or none if the product as it is is as good."""
    if not 2 <= len(operands.terms) <= MOST_OPERANDS:
        return ()
    whole = _candidate(operands, (tuple(range(len(operands.terms))),))
    all_ = [_candidate(operands, order) for order in _orders(operands)]
    if len(all_[0].steps) == 1:
        return ()
    best = [x for x in all_ if not any(_is_worse(x, y) for y in all_)]
    kept = _one_of_each(best or all_)
    if not _is_worse(whole, kept[0]):
        kept = [x for x in kept if _multiplies_matrices(x, whole, operands)]
    return tuple(_found(x, operands) for x in kept)


def summing_orders(operands: Operands) -> tuple[Steps, ...]:
    """Those whose steps all sum, but perhaps the last: each once, however it may be written."""
    found: dict[frozenset[tuple[str, ...]], Steps] = {}
    own = own_sums(operands.terms, operands.output)
    for order in _summing(after(operands.terms, operands.output, own), operands.output, own):
        steps = _candidate(operands, order).steps
        loops = [tuple(sorted(step.labels)) for step in steps]
        results = _extents([step.result for step in steps[:-1]], operands)
        found.setdefault(frozenset(loops), Steps(order, _extents(loops, operands), results))
    return tuple(found.values())


def _summing(terms: list[list[str]], output: Sequence[str], before: Order) -> Iterator[Order]:
    """`before`, and then pairs of these terms."""
    if len(terms) == 1:
        yield before
    for step in combinations(range(len(terms)), 2):
        left = [*map(list, terms)]
        used, result = take(left, step, output)
        if not left or {x for term in used for x in term} - set(result):
            yield from _summing([*left, result], output, (*before, step))


def _extents(labels: Iterable[tuple[str, ...]], operands: Operands) -> tuple[Extents, ...]:
    return tuple(tuple(operands.extents[x] for x in some) for some in labels)


def _orders(operands: Operands) -> Iterator[Order]:
    """First what an operand alone sums; then all sequences of pairs."""
    terms, output = operands.terms, operands.output
    own = own_sums(terms, output)
    for pairs in _pairs(len(after(terms, output, own))):
        yield own + pairs


def _pairs(n: int) -> Iterator[Order]:
    if n == 1:
        yield ()
        return
    for step in combinations(range(n), 2):
        for rest in _pairs(n - 1):
            yield (step, *rest)


def _candidate(operands: Operands, order: Order) -> _Candidate:
    left = [list(term) for term in operands.terms]
    steps: list[_Step] = []
    points = Counter[Extents]()
    for step in order:
        used, result = take(left, step, operands.output)
        left.append(result)
        steps.append(_Step(tuple(map(tuple, used)), tuple(result)))
        extents = [operands.extents[x] for x in steps[-1].labels]
        numbers = [n for e in extents if (n := e.as_int()) is not None]
        sizes = sorted((e for e in extents if e.as_int() is None), key=str)
        points[tuple(sizes)] += reduce(mul, numbers, 1)
    return _Candidate(order, tuple(steps), points)


def _is_worse(a: _Candidate, b: _Candidate) -> bool:
    return _is_covered(b, a) and not _is_covered(a, b)


def _is_covered(a: _Candidate, b: _Candidate) -> bool:
    """Each product of extents in the points of `a` is in one of `b`: it is no worse for any."""
    return all(
        any(n <= GAIN * m and not Counter(x) - Counter(y) for y, m in b.points.items())
        for x, n in a.points.items()
    )


def _one_of_each(best: list[_Candidate]) -> list[_Candidate]:
    """The best of orders that cover each other; of several kinds the two that differ most."""
    kinds: list[list[_Candidate]] = []
    for x in best:
        same = next((k for k in kinds if _is_covered(x, k[0]) and _is_covered(k[0], x)), None)
        if same is None:
            kinds.append([x])
        else:
            same.append(x)
    first, *others = (min(k, key=_preference) for k in kinds)
    if not others:
        return [first]
    return [first, min(others, key=lambda x: len(first.points.keys() & x.points.keys()))]


def _preference(x: _Candidate) -> tuple[list[tuple[int, int]], int]:
    """Points by degree, the highest first; then steps that lie unlike products of matrices."""
    degrees = Counter[int]()
    for extents, n in x.points.items():
        degrees[len(extents)] += n
    unlike = sum(
        abs(sum(term[-1] in step.summed for term in step.used) - 1)
        for step in x.steps
        if step.summed
    )
    return sorted(degrees.items(), reverse=True), unlike


def _multiplies_matrices(x: _Candidate, whole: _Candidate, operands: Operands) -> bool:
    """A step with most of the points sums over a size what two operands share: a tile uses their
    elements again and again. All steps before the last sum, or they would only store products."""
    most = max(map(len, whole.points))
    if not all(step.summed for step in x.steps[:-1]):
        return False
    for step in x.steps:
        sizes = {v for v in step.labels if operands.extents[v].as_int() is None}
        if len(step.used) == 2 and len(sizes) == most and sizes & step.summed:
            a, b = map(frozenset, step.used)
            if a & b & step.summed and a - b and b - a:
                return True
    return False


def _found(x: _Candidate, operands: Operands) -> Found:
    extents = operands.extents
    points = ZERO
    for sizes, n in x.points.items():
        points = points + product_of(sizes) * n
    last = {extents[v] for v in x.steps[-1].labels}
    inner = {extents[v] for step in x.steps[:-1] for v in step.summed} - last
    return Found(x.order, points, tuple(e for e in inner if not (e.as_int() or 0) > 0))
