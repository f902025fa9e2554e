# SPDX-License-Identifier: Apache-2.0
"""Every kernel of the suite agrees with its numpy reference; sizes repeat."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tcsym
from benchmarks.case import Case, as_tuple, error_of
from benchmarks.contestant import Problem
from benchmarks.sizes import ragged_rows, random_rows, rows_of
from benchmarks.suite import BY_NAME, CASES, SUITE, TRAINED

TINY = {"B": 2, "H": 3, "T": 3, "L": 4, "S": 5, "E": 11, "RF": 40}
_SPATIAL = {"H": 9, "W": 8, "T": 16}


def tiny_sizes(case: Case) -> dict[str, int]:
    """Small and different for each size, large enough for a filter, a dilation and a delay."""
    has_filter = "W" in case.ranges or "K" in case.ranges
    given = {**TINY, **(_SPATIAL if has_filter else {}), "KH": 3, "KW": 3, "K": 3}
    given |= {name: n for name, n in case.ranges.items() if isinstance(n, int)}
    return {name: given.get(name, 3 + k % 4) for k, name in enumerate(case.ranges)}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.host if c.part in TRAINED else ())
        for n, c in BY_NAME.items()
    ],
)
def test_kernel_agrees_with_its_reference(name: str, request: pytest.FixtureRequest) -> None:
    case = BY_NAME[name]
    sizes = tiny_sizes(case)
    arrays = case.arrays(sizes)
    seen = case.library_arrays(arrays, sizes)
    if case.part in TRAINED:
        request.getfixturevalue("torch")
        found = gradients(Problem(case, sizes, arrays, seen, (), 1, None))
    else:
        found = as_tuple(tcsym.define(case.text)(*arrays))
    assert error_of(found, as_tuple(case.reference(*seen))) < case.tolerance / 2


def gradients(problem: Problem) -> tuple[Any, ...]:
    from benchmarks.peers.training import ours

    ((_, make),) = ours(problem)
    contestant = make()
    return contestant.to_numpy(contestant.call())


@pytest.mark.parametrize("name", [c.name for c in CASES if c.einsum])
def test_einsum_is_the_same_kernel(name: str) -> None:
    case = BY_NAME[name]
    arrays = case.arrays(tiny_sizes(case))
    expected = np.einsum(case.einsum, *(a.astype(np.float64) for a in arrays))
    assert error_of(as_tuple(case.reference(*arrays)), (expected,)) < 1e-4


def test_error_is_relative_to_the_largest_and_infinite_for_what_is_no_number() -> None:
    right = np.array([100.0, 1.0], np.float32)
    assert error_of((right + 1,), (right,)) == pytest.approx(0.01)
    assert error_of((right.reshape(2, 1),), (right,)) == 0.0
    for wrong in (right[:1], np.array([100.0, np.nan], np.float32), np.full(2, np.inf)):
        assert error_of((wrong,), (right,)) == float("inf")
    assert error_of((), (right,)) == float("inf")


def test_suite_has_31_rows_and_others_beside_it() -> None:
    assert sum(len(c.sizes) for c in SUITE) == 31
    assert len(CASES) - len(SUITE) >= 10
    labels = [label for case in CASES for label in case.sizes]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_work_is_known_at_all_sizes(case: Case) -> None:
    for row in rows_of([case], "suite", 0, 0):
        assert set(row.sizes) == set(case.ranges)
        assert case.n_flops(row.sizes) >= 0


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_random_sizes_repeat_and_differ(case: Case) -> None:
    first, again, other = (list(random_rows(case, 20, seed)) for seed in (5, 5, 6))
    assert first == again
    assert [r.sizes for r in first] != [r.sizes for r in other]
    assert len({json.dumps(dict(r.sizes)) for r in first}) == 20
    for row in first:
        assert case.n_flops(row.sizes) <= 3e8
        assert all(
            low <= row.sizes[name] <= high
            for name, rule in case.ranges.items()
            if isinstance(rule, tuple)
            for low, high in [rule]
        )


def test_too_many_random_sizes_are_an_error() -> None:
    with pytest.raises(ValueError, match="random sizes found"):
        list(random_rows(BY_NAME["call"], 100, 0))


def test_ragged_sizes_are_prime_and_filters_stay() -> None:
    (row,) = ragged_rows(BY_NAME["conv"])
    assert dict(row.sizes) == {"N": 1, "C": 61, "H": 53, "W": 53, "O": 61, "KH": 3, "KW": 3}


def test_inputs_repeat_and_are_never_zero() -> None:
    for case in CASES:
        sizes = tiny_sizes(case)
        for a, b in zip(case.arrays(sizes), case.arrays(sizes)):
            assert np.array_equal(a, b)
            assert np.any(a != 0) or a.dtype == np.int32
