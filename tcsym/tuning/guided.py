# SPDX-License-Identifier: Apache-2.0
"""Model-guided search: a Bayesian linear model of log time over options, sampled (Thompson 1933).

Features are the values of each axis and the pairs of values of two axes; the prior says that single
values matter more than pairs. The posterior is exact (a ridge regression), so a proposal is: draw
weights, take the best of a pool of random points and neighbours of the best. A few sizes are
averaged: options are rules that should hold for all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tcsym.options import Options
from tcsym.tuning.space import Space, value_of

FAILED = 1.5  # logarithm of the cost that the model learns for a failure
SINGLE, PAIR, NOISE = 0.3, 0.08, 0.05  # standard deviations
POOL, KEPT, WARM_UP = 192, 8, 6
MOST_OBSERVED = 400
SETTLED, LEAST_OBSERVED = 0.01, 40
Vector = NDArray[np.float64]
Indices = NDArray[np.intp]


class Guided:
    """`ask` for candidates, `tell` what each cost (its time by the default's, inf: failed)."""

    def __init__(self, space: Space, start: Sequence[Options], rng: random.Random) -> None:
        self.space = space
        self.rng = rng
        self._numpy = np.random.default_rng(rng.randrange(2**32))
        self._waiting = list(dict.fromkeys(start))
        self._seen = set(start)
        self._cost: dict[Options, float] = {}
        self._best_draws: list[float] = []

    def ask(self, n: int) -> list[Options]:
        """Up to `n` candidates that were never asked before; none if the space is exhausted."""
        found = self._waiting[:n]
        del self._waiting[:n]
        if len(found) < n and len(self._cost) >= WARM_UP:
            found += self._sampled(n - len(found))
        while len(found) < n:
            pool = self._pool(4 * n)
            if not pool:
                break
            found += pool[: n - len(found)]
            self._seen.update(found)
        self._seen.update(found)
        return found

    def tell(self, results: Sequence[tuple[Options, Sequence[float]]]) -> None:
        """Costs at the tuned sizes, a failure's are inf; those not measured are left out."""
        for options, costs in results:
            self._seen.add(options)
            logs = [min(FAILED, math.log(c)) if c < math.inf else FAILED for c in costs]
            self._cost[options] = sum(logs) / len(logs) if logs else FAILED

    def is_settled(self) -> bool:
        """Nothing that the model thinks possible is better than the best by a percent."""
        if len(self._cost) < LEAST_OBSERVED or len(self._best_draws) < KEPT:
            return False
        best = min(self._cost.values())
        return all(draw > best - SETTLED for draw in self._best_draws[-2 * KEPT :])

    def _sampled(self, n: int) -> list[Options]:
        observed = sorted(self._cost, key=self._cost.__getitem__)[:MOST_OBSERVED]
        x = self._features(observed)
        y = np.array([self._cost[o] for o in observed])
        prior = self._prior()
        dense = np.zeros((len(x), len(prior)))
        np.put_along_axis(dense, x, 1.0, axis=1)
        posterior = _posterior(dense, y, prior)
        found: list[Options] = []
        pool = self._pool(POOL)
        features = self._features(pool)
        for _ in range(min(n, len(pool))):
            draw = posterior.draw(self._numpy)
            predicted = draw[features].sum(axis=1)
            for k in np.argsort(predicted):
                if pool[k] not in found:
                    found.append(pool[k])
                    self._best_draws.append(float(predicted[k]))
                    break
        return found

    def _pool(self, n: int) -> list[Options]:
        """Unseen points: half at random, half near the best."""
        best = sorted(self._cost, key=self._cost.__getitem__)[:KEPT]
        pool: dict[Options, None] = {}
        for k in range(3 * n):
            if len(pool) >= n:
                break
            if best and k % 2:
                changes = self.rng.choice((1, 1, 2, 3))
                point = self.space.mutated(self.rng.choice(best), self.rng, changes)
            else:
                point = self.space.drawn(self.rng)
            if point not in self._seen:
                pool[point] = None
        return list(pool)

    def _features(self, points: Sequence[Options]) -> Indices:
        """Places of the weights that are 1 for each point: a constant, values, pairs of values."""
        axes = self.space.axes
        places = [{v: k for k, v in enumerate(values)} for _, values in axes]
        chosen = np.array(
            [[place[value_of(p, name)] for place, (name, _) in zip(places, axes)] for p in points],
            dtype=np.intp,
        ).reshape(len(points), len(axes))
        columns = [np.zeros(len(points), np.intp)]
        start = 1
        for k, (_, values) in enumerate(axes):
            columns.append(start + chosen[:, k])
            start += len(values)
        for j, k in combinations(range(len(axes)), 2):
            n = len(axes[k][1])
            columns.append(start + chosen[:, j] * n + chosen[:, k])
            start += len(axes[j][1]) * n
        return np.stack(columns, axis=1)

    def _prior(self) -> Vector:
        """Standard deviation of each weight."""
        lengths = [len(values) for _, values in self.space.axes]
        n_singles = sum(lengths)
        n_pairs = sum(a * b for a, b in combinations(lengths, 2))
        return np.array([1.0] + [SINGLE] * n_singles + [PAIR] * n_pairs)


class _Posterior(Struct, frozen=True):
    """Weights are prior * u; the covariance of u is I - basis diag(1 - (1 - shrink)^2) basis'."""

    prior: Vector
    mean: Vector
    basis: Vector
    shrink: Vector

    def draw(self, rng: np.random.Generator) -> Vector:
        u = rng.standard_normal(len(self.mean))
        u -= self.basis @ (self.shrink * (self.basis.T @ u))
        return self.mean + self.prior * u


def _posterior(x: Vector, y: Vector, prior: Vector) -> _Posterior:
    """By the eigenvalues of the Gram matrix: there are fewer observations than weights."""
    scaled = x * prior
    values, vectors = np.linalg.eigh(scaled @ scaled.T)
    kept = values > 1e-9
    values, vectors = values[kept], vectors[:, kept]
    basis = scaled.T @ (vectors / np.sqrt(values))
    mean = prior * (basis @ (np.sqrt(values) / (values + NOISE**2) * (vectors.T @ y)))
    return _Posterior(prior, mean, basis, 1.0 - np.sqrt(NOISE**2 / (values + NOISE**2)))
