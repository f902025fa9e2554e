# SPDX-License-Identifier: Apache-2.0
"""Ratios, intervals and means from samples with known answers."""

from __future__ import annotations

import random

import pytest

from benchmarks.statistics import geometric_mean, least, median, ratio


def test_least_and_median_leave_out_disturbed_rounds() -> None:
    samples = [4.0, None, 2.0, 3.0, None]
    assert (least(samples), median(samples)) == (2.0, 3.0)


def test_ratio_of_minima_and_exact_interval_without_noise() -> None:
    found = ratio([3.0] * 5, [2.0] * 5)
    assert (found.value, found.low, found.high, found.rounds) == (1.5, 1.5, 1.5, 5)


def test_rounds_disturbed_for_either_are_left_out() -> None:
    found = ratio([3.0, 0.1, 3.0, None, 3.0], [2.0, None, 2.0, 0.1, 2.0])
    assert (found.value, found.rounds) == (1.5, 3)


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="2 undisturbed rounds"):
        ratio([1.0, 1.0, None], [1.0, 1.0, 1.0])


def test_interval_holds_the_ratio_and_shrinks_with_rounds() -> None:
    rng = random.Random(0)

    def noisy(base: float, n: int) -> list[float | None]:
        return [base * (1 + rng.expovariate(10)) for _ in range(n)]

    few, many = (ratio(noisy(2.0, n), noisy(1.0, n)) for n in (5, 80))
    for found in (few, many):
        assert found.low <= found.value <= found.high
    assert many.high - many.low < few.high - few.low
    assert abs(many.value - 2) < 0.05


def test_interval_repeats() -> None:
    samples = [1.0, 1.2, 1.1, 1.4], [1.0, 1.1, 0.9, 1.3]
    assert ratio(*samples) == ratio(*samples)


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert geometric_mean([8.0, 2.0]) == pytest.approx(4.0)
    assert geometric_mean([]) == 1.0
