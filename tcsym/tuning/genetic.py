# SPDX-License-Identifier: Apache-2.0
"""Genetic search, as Tensor Comprehensions tuned: population, elites, crossover, mutation.

Vasilache et al., "The Next 700 Accelerated Layers", TACO 2019, section 5.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from tcsym.options import Options
from tcsym.tuning.space import Space

POPULATION, ELITES = 24, 6
MUTATION, FRESH = 0.35, 0.1
ATTEMPTS = 40


class Genetic:
    """`ask` for candidates, `tell` what each cost (its time by the default's, inf: failed)."""

    def __init__(self, space: Space, start: Sequence[Options], rng: random.Random) -> None:
        self.space = space
        self.rng = rng
        self._waiting = list(dict.fromkeys(start))
        self._seen = set(start)
        self._cost: dict[Options, float] = {}

    def ask(self, n: int) -> list[Options]:
        """Up to `n` candidates that were never asked before; none if the space is exhausted."""
        found: list[Options] = []
        while self._waiting and len(found) < n:
            found.append(self._waiting.pop(0))
        for _ in range(ATTEMPTS * n):
            if len(found) >= n:
                break
            candidate = self._child()
            if candidate not in self._seen:
                self._seen.add(candidate)
                found.append(candidate)
        return found

    def tell(self, results: Sequence[tuple[Options, Sequence[float]]]) -> None:
        """Costs at the tuned sizes, a failure's are inf; those not measured are left out."""
        for options, costs in results:
            self._seen.add(options)
            logs = [math.log(c) for c in costs]
            self._cost[options] = math.exp(sum(logs) / len(logs)) if logs else math.inf

    def is_settled(self) -> bool:
        return False

    def _population(self) -> list[Options]:
        return sorted(self._cost, key=self._cost.__getitem__)[:POPULATION]

    def _child(self) -> Options:
        population = self._population()
        if len(population) < ELITES or self.rng.random() < FRESH:
            return self.space.drawn(self.rng)
        a, b = self._parent(population), self._parent(population)
        child = self.space.crossed(a, b, self.rng)
        if child in self._seen or self.rng.random() < MUTATION:
            child = self.space.mutated(child, self.rng, self.rng.choice((1, 1, 2)))
        return child

    def _parent(self, population: Sequence[Options]) -> Options:
        """An elite half the time, else the better of two at random."""
        if self.rng.random() < 0.5:
            return population[self.rng.randrange(min(ELITES, len(population)))]
        ranks = sorted(self.rng.randrange(len(population)) for _ in range(2))
        return population[ranks[0]]
