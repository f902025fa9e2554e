"""Logarithms of times at some sizes -> at any sizes: a Gaussian process over sizes.

Options differ smoothly in the logarithms of sizes, and in how full vectors are; a decision tree of
a few hundred measurements alone does not see that. Exponential covariance, which allows kinks; each
size's mean over the options is taken out first, so only differences between options are modelled.
Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, section 2.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Sizes = NDArray[np.int64]

FILLED = (8, 16)  # elements of a vector, and of two
FILL_WEIGHT = 2.0
LENGTH = 20.0  # in doublings
NOISE = 0.01  # variance of what is measured, by that of the process
MOST = 1.0  # larger logarithms are as bad


def predicted(sizes: Sizes, logs: Matrix, others: Sizes) -> Matrix:
    """`logs`: sizes by options, the default first. Differences to the default at `others`."""
    capped = np.minimum(logs, MOST)
    centred = capped - capped.mean(axis=1, keepdims=True)
    mean = centred.mean(axis=0)
    here, there = _features(sizes), _features(others)
    covariance = _covariance(here, here) + NOISE * np.eye(len(here))
    found = mean + _covariance(there, here) @ np.linalg.solve(covariance, centred - mean)
    return np.asarray(found - found[:, :1])


def _features(sizes: Sizes) -> Matrix:
    """Doublings, and what is wasted where an extent does not fill vectors."""
    n = np.maximum(sizes, 1).astype(np.float64)
    parts = [np.log2(n)] + [FILL_WEIGHT * np.log2(np.ceil(n / f) * f / n) for f in FILLED]
    return np.concatenate(parts, axis=1)


def _covariance(a: Matrix, b: Matrix) -> Matrix:
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None] - 2 * a @ b.T
    return np.asarray(np.exp(-np.sqrt(np.maximum(squares, 0.0)) / LENGTH))
