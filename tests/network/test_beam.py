# SPDX-License-Identifier: Apache-2.0
"""The beam search of examples/: what a search written in numpy finds."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "beam.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def _searched(beams: int, length: int, w: dict[str, Any]) -> tuple[list[float], list[Any]]:
    """Scores and sequences, for one of a batch."""
    w = {n: x.astype(np.float64) for n, x in w.items()}
    alive = [(0.0, [], 0, np.zeros(len(w["R"])))]
    for _ in range(length):
        found = []
        for score, words, token, h in alive:
            g = np.tanh(w["U"] @ w["table"][token] + w["R"] @ h)
            p = w["F"] @ g
            p = score + p - p.max() - np.log(np.exp(p - p.max()).sum())
            found += [(s, [*words, v], v, g) for v, s in enumerate(p)]
        alive = sorted(found, key=lambda x: -x[0])[:beams]
    return [x[0] for x in alive], [x[1] for x in alive]


@pytest.mark.parametrize(("batch", "beams"), [(1, 1), (2, 5)])
def test_the_best_beams_are_found(example: dict[str, Any], batch: int, beams: int) -> None:
    fixed = example["weights"](np.random.default_rng(1))
    found = example["search"](batch, beams, 4, fixed)
    assert found.shape == (batch, beams, 4)
    _, want = _searched(beams, 4, fixed)
    for own in found:
        np.testing.assert_array_equal(own, want)
