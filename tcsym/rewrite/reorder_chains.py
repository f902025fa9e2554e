# SPDX-License-Identifier: Apache-2.0
"""Program -> the same with chains of products in another order, and the sizes at which that pays.

`T(i,l) +=! A(i,k) * B(k,l)` and then `Y(i,j) +=! T(i,l) * C(l,j)` are one sum over A, B and C. If
nothing else reads T, it may as well be taken as `A * (B * C)`: for other sizes that has fewer
points. The other orders of a program are numbered from 1, first the one that saves the most over
sizes of all magnitudes. docs/decisions/0021 says why, and when they serve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add, and_

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from tcsym.frontend.einsum_order import Order
from tcsym.frontend.program import Item, Program, Range, Read, Statement, reads, statements
from tcsym.frontend.rename import Renaming
from tcsym.index.expr import ZERO, Condition, Index, all_of, choose, ge, minimum
from tcsym.index.values import evaluate, product_of
from tcsym.rewrite.factors import flattened, product
from tcsym.rewrite.operand_orders import MOST_OPERANDS, Extents, Operands, summing_orders
from tcsym.rewrite.pair_operands import Pairing, best_pairs, summed_operands

# The other order is taken from this share of the points on: as fast per point it may not be.
MOST_POINTS = 3, 4
MOST_ORDERS = 5  # beside the written one; each saves over those before it, in the mean,
LEAST_SAVED = 0.02  # this share of the points
DRAWS = 64  # of sizes, of which each has a magnitude of its own, up to
MAGNITUDES = 9  # powers of two

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Extent = Mapping[Index, Floats]


class _Cost(Struct, frozen=True):
    """The extents of each statement's loops, and of each temporary."""

    points: tuple[Extents, ...]
    memory: tuple[Extents, ...]

    def at(self, extents: Extent) -> tuple[Floats, Floats]:
        """Points and elements for the drawn extents."""

        def total(products: tuple[Extents, ...]) -> Floats:
            found: Floats = sum(np.prod([extents[e] for e in x], axis=0) for x in products)
            return found

        return total(self.points), total(self.memory)


class _Chain(Struct, frozen=True):
    """Statements at these places of the body, and the one sum that they are; it has their last
    one's name and place. `cost`: as they are written."""

    places: tuple[int, ...]
    merged: Statement
    cost: _Cost


class _Other(Struct, frozen=True):
    """Another order of a chain."""

    chain: _Chain
    order: Order
    cost: _Cost


def reorder_chains(program: Program, k: int) -> Program:
    """Chains that have other orders in the k-th of them, or in their last."""
    return _reordered(program, [x[:k][-1] for x in _others(program) if x])


def best_chains(program: Program, sizes: Mapping[str, int]) -> Program:
    """The order with the fewest points for given sizes; as written where not all are given."""
    if not sizes.keys() >= set(program.sizes):
        return program
    found = [_other_orders(c, program, [dict(sizes)]) for c in _chains(program)]
    return _reordered(program, [x[0] for x in found if x])


def other_orders_hold(program: Program) -> Condition:
    """Sizes at which chains may be taken in other orders.

    All sums have terms there: of an infinity times a sum of none, one order makes NaN.
    """
    return _has_terms([x for x in _others(program) if x])


def other_orders_pay(program: Program) -> tuple[Condition, ...]:
    """For each of the other orders the sizes at which it has the fewest points, far fewer than as
    written, and no more elements of temporaries. The first that holds is meant."""
    found = [x for x in _others(program) if x]
    n_others = max(map(len, found), default=0)
    costs = [[x[0].chain.cost for x in found]]
    costs += [[x[:k][-1].cost for x in found] for k in range(1, n_others + 1)]
    written, *others = _sums([[p for cost in order for p in cost.points] for order in costs])
    most, *elements = _sums([[p for cost in order for p in cost.memory] for order in costs])
    points = [choose(ge(most, e), p, written) for p, e in zip(others, elements)]
    share, whole = MOST_POINTS
    least = minimum(*points) if points else written
    pays = all_of((_has_terms(found), ge(written * share, least * whole + 1)))
    return tuple(all_of((pays, ge(least, p))) for p in points)


def _has_terms(found: list[tuple[_Other, ...]]) -> Condition:
    extents = {r.upper for x in found for r in x[0].chain.merged.domain if r.reduced}
    return all_of(ge(e, 1) for e in sorted(extents, key=str))


def _sums(orders: list[list[Extents]]) -> list[Index]:
    """Of products, without the extents that are in all of them: what is compared stays so."""
    all_ = [Counter(extents) for products in orders for extents in products]
    shared = reduce(and_, all_) if all_ else Counter[Index]()
    return [
        reduce(add, (product_of((Counter(x) - shared).elements()) for x in products), ZERO)
        for products in orders
    ]


def _reordered(program: Program, others: Sequence[_Other]) -> Program:
    if not others:
        return program
    pairing = Pairing(program)
    body: list[tuple[Item, ...]] = [(item,) for item in program.body]
    for other in others:
        merged = other.chain.merged
        for place in other.chain.places:
            body[place] = ()
        output = [r.variable for r in merged.domain if not r.reduced]
        operands = summed_operands(merged, program)
        body[other.chain.places[-1]] = pairing.steps(merged, operands, other.order, output)
    left = {s.target for items in body for s in statements(items)}
    kept = [t for t in program.tensors if t.role != "temporary" or t.name in left]
    return replace(
        program,
        body=tuple(item for items in body for item in items),
        tensors=(*kept, *pairing.temporaries),
    )


# ---- other orders


def _others(program: Program) -> list[tuple[_Other, ...]]:
    return [_other_orders(c, program, _drawn(_names(c))) for c in _chains(program)]


def _other_orders(
    chain: _Chain, program: Program, draws: Sequence[Mapping[str, int]]
) -> tuple[_Other, ...]:
    """Those that save the most where they may be taken: each over those before it."""
    s = chain.merged
    extents = {r.variable: r.upper for r in s.domain}
    output = tuple(r.variable for r in s.domain if not r.reduced)
    terms = tuple(x.variables for x in summed_operands(s, program))
    values = {
        e: np.array([max(0, evaluate(e, x)) for x in draws], float) for e in set(extents.values())
    }
    holds = np.prod([values[r.upper] for r in s.domain], axis=0) > 0
    written = chain.cost.at(values)
    saved: dict[_Other, Floats] = {}
    for steps in summing_orders(Operands(terms, output, extents)):
        cost = _Cost(steps.loops, steps.temporaries)
        saved[_Other(chain, steps.order, cost)] = _saved(written, cost.at(values), holds)
    found: list[_Other] = []
    best = np.zeros(len(draws))
    while saved and len(found) < MOST_ORDERS:
        other = max(saved, key=lambda x: float(np.maximum(best, saved[x]).sum()))
        better = np.maximum(best, saved.pop(other))
        if (better - best).mean() <= LEAST_SAVED:
            break
        best = better
        found.append(other)
    return tuple(found)


def _saved(written: tuple[Floats, Floats], other: tuple[Floats, Floats], holds: Bools) -> Floats:
    """By which factor there are fewer points, as a logarithm; 0 where the written order serves."""
    share, whole = MOST_POINTS
    pays = holds & (other[0] * whole < written[0] * share) & (other[1] <= written[1])
    return np.log(np.where(pays, written[0], 1.0) / np.where(pays, other[0], 1.0))


def _names(chain: _Chain) -> list[str]:
    return sorted({v for r in chain.merged.domain for v in r.upper.variables()})


def _drawn(names: list[str]) -> list[dict[str, int]]:
    """Sizes of all magnitudes that fill the space of their logarithms evenly (Weyl, 1916)."""
    roots = np.sqrt(_primes(len(names)))
    parts = np.outer(range(1, DRAWS + 1), roots) % 1
    sizes = np.rint(2 ** (MAGNITUDES * parts)).astype(int).tolist()
    return [dict(zip(names, values)) for values in sizes]


def _primes(count: int) -> list[int]:
    found: list[int] = []
    n = 2
    while len(found) < count:
        if all(n % p for p in found):
            found.append(n)
        n += 1
    return found


# ---- chains


def _chains(program: Program) -> tuple[_Chain, ...]:
    """Those of two statements or more, in the order of the text."""
    return _Chaining(program).chains()


class _Chaining(Struct):
    """`open`: by temporary, the chains that end in a sum which the one later reader may take."""

    program: Program
    open: dict[str, _Chain] = field(default_factory=dict)
    found: dict[int, _Chain] = field(default_factory=dict)
    written: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)

    def chains(self) -> tuple[_Chain, ...]:
        for s in statements(self.program.body):
            self.written[s.target] += 1
            self.read.update(r.tensor for e in s.expressions for r in reads(e))
        for place, item in enumerate(self.program.body):
            if isinstance(item, Statement) and _is_product(item, self.program):
                chain = self.linked(place, item)
                self.found[place] = chain
                self.close(item)
                if self.is_passed_on(item):
                    self.open[item.target] = chain
            else:
                for s in statements((item,)):
                    self.close(s)
        return tuple(chain for chain in self.found.values() if len(chain.places) > 1)

    def linked(self, place: int, s: Statement) -> _Chain:
        """The statement, with the chains whose results it reads."""
        loops = tuple(r.upper for r in s.domain)
        chain = _Chain((place,), s, _Cost((loops,), ()))
        for _, x in flattened(s.value):
            earlier = self.open.get(x.tensor) if isinstance(x, Read) else None
            if earlier is None or not isinstance(x, Read):
                continue
            joined = _joined(earlier, chain, x, self.program)
            if joined is not None:
                chain = joined
                del self.found[earlier.places[-1]], self.open[x.tensor]
        return chain

    def close(self, s: Statement) -> None:
        """Chains that read what `s` writes cannot be computed after it."""
        for name, chain in list(self.open.items()):
            if any(r.tensor == s.target for r in reads(chain.merged.value)):
                del self.open[name]

    def is_passed_on(self, s: Statement) -> bool:
        """All of a temporary that nothing else writes, and that is read once."""
        tensor = self.program.tensor(s.target)
        uppers = {r.variable: r.upper for r in s.domain}
        names = [v for i in s.subscripts for v in i.variables()]
        return (
            tensor.role == "temporary"
            and s.initialise
            and self.written[s.target] == self.read[s.target] == 1
            and len(set(names)) == len(names) == len(tensor.shape)
            and all(uppers[v] == n for v, n in zip(names, tensor.shape))
        )


def _is_product(s: Statement, program: Program) -> bool:
    """A sum of two operands that is no better taken apart, and does not read what it writes."""
    if any(r.tensor == s.target for r in reads(s.value)):
        return False
    operands = summed_operands(s, program)
    return len(operands) == 2 and not best_pairs(s, operands)


def _joined(earlier: _Chain, later: _Chain, read: Read, program: Program) -> _Chain | None:
    """`later` with the sum itself where it reads its result; None if that is no sum to reorder."""
    s, inner = later.merged, earlier.merged
    names = [v for i in read.subscripts if isinstance(i, Index) for v in i.variables()]
    factors = flattened(s.value)
    if ("mul", read) not in factors or len(set(names)) < len(read.subscripts):
        return None
    if any(r.tensor == s.target for r in reads(inner.value)):
        return None
    renaming, summed = _renamed(inner, s, names, program)
    at = factors.index(("mul", read))
    factors[at : at + 1] = flattened(renaming.expression(inner.value))
    merged = replace(s, domain=(*s.domain, *summed), value=product(factors))
    if not 3 <= len(summed_operands(merged, program)) <= MOST_OPERANDS:
        return None
    shape = program.tensor(read.tensor).shape
    cost = _Cost(
        earlier.cost.points + later.cost.points,
        (*earlier.cost.memory, shape, *later.cost.memory),
    )
    return _Chain(tuple(sorted((*earlier.places, *later.places))), merged, cost)


def _renamed(
    inner: Statement, s: Statement, names: list[str], program: Program
) -> tuple[Renaming, tuple[Range, ...]]:
    """Variables of `inner` as where `s` reads its result; what it sums over under new names."""
    new = dict(zip((v for i in inner.subscripts for v in i.variables()), names))
    taken = {*program.sizes, *(r.variable for r in s.domain)}
    summed: list[Range] = []
    for r in inner.domain:
        if r.reduced:
            name, k = r.variable, 0
            while name in taken:
                name, k = f"{r.variable}_{k}", k + 1
            taken.add(name)
            new[r.variable] = name
            summed.append(replace(r, variable=name))
    return Renaming(new), tuple(summed)
