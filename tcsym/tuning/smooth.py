# SPDX-License-Identifier: Apache-2.0
"""Logarithms of times at some sizes -> at any sizes: a Gaussian process over sizes.

Options differ smoothly in the logarithms of sizes, and in how full vectors are; they jump where
the code takes another of its versions or tiles run over, which estimates of it tell. A decision
tree of a few hundred measurements alone sees neither. Exponential covariance, which allows kinks;
each size's mean over the options is taken out first, so only differences between options are
modelled. Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, section 2.2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Sizes = NDArray[np.int64]

FILLED = (8, 16)  # elements of a vector, and of two
FILL_WEIGHT = 2.0
ESTIMATE_WEIGHT = 60.0  # all options' estimates together
LENGTH = 20.0  # in doublings
NOISE = 0.01  # variance of what is measured, by that of the process
MOST = 1.0  # larger logarithms are as bad


def predicted(
    sizes: Sizes,
    logs: Matrix,
    others: Sizes,
    here: Matrix | None = None,
    there: Matrix | None = None,
) -> Matrix:
    """`logs`: sizes by options, the default first. Differences to the default at `others`.

    here, there: logarithms of what `polyhedral.estimate` says of the options, if it was asked, at
    `sizes` and `others`: places where it says alike of all options are near each other.
    """
    capped = np.minimum(logs, MOST)
    centred = capped - capped.mean(axis=1, keepdims=True)
    mean = centred.mean(axis=0)
    known, asked = _features(sizes, here), _features(others, there)
    covariance = _covariance(known, known) + NOISE * np.eye(len(known))
    found = mean + _covariance(asked, known) @ np.linalg.solve(covariance, centred - mean)
    return np.asarray(found - found[:, :1])


def _features(sizes: Sizes, estimates: Matrix | None) -> Matrix:
    """Doublings, what is wasted where an extent does not fill vectors, and what is estimated."""
    n = np.maximum(sizes, 1).astype(np.float64)
    parts = [np.log2(n)] + [FILL_WEIGHT * np.log2(np.ceil(n / f) * f / n) for f in FILLED]
    if estimates is not None:
        centred = estimates - estimates.mean(axis=1, keepdims=True)
        parts.append(centred * (ESTIMATE_WEIGHT / math.sqrt(centred.shape[1])))
    return np.concatenate(parts, axis=1)


def _covariance(a: Matrix, b: Matrix) -> Matrix:
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None] - 2 * a @ b.T
    return np.asarray(np.exp(-np.sqrt(np.maximum(squares, 0.0)) / LENGTH))
