# SPDX-License-Identifier: Apache-2.0
"""The stream of calls: its order, its figures, and ours run for real."""

from __future__ import annotations

import pytest

from benchmarks.stream import goal_lines, run_stream, sequence, summary_of


def test_every_size_is_called_and_the_order_is_repeatable() -> None:
    order = sequence(30, 100, 3)
    assert len(order) == 100 and set(order) == set(range(30))
    assert order == sequence(30, 100, 3) != sequence(30, 100, 4)


def test_waits_are_counted_from_the_least_time_of_the_same_sizes() -> None:
    found = summary_of([5.0, 100.0, 1.0, 4.0, 2.0, 4.5], [0, 0, 1, 0, 1], [False] * 5, 5)
    assert found["total"] == 116.5 and found["until_first"] == 105.0
    assert found["longest_later"] == 4.5 and found["is_complete"]
    assert found["wait"] == 1.0  # 2.0 beyond 1.0; the first call is no wait


def test_waits_of_disturbed_calls_are_told_apart() -> None:
    milliseconds, order = [5.0, 100.0, 1.0, 4.0, 2.0, 4.5], [0, 0, 1, 0, 1]
    found = summary_of(milliseconds, order, [False, False, False, True, False], 5)
    assert (found["wait"], found["undisturbed"], found["n_undisturbed"]) == (1.0, 0.5, 3)


def test_an_interrupted_stream_says_so() -> None:
    found = summary_of([5.0, 100.0], [0], [False], 3)
    assert (found["calls"], found["is_complete"], found["wait"]) == (1, False, 0.0)


def test_goals_compare_with_the_best_compiling_peer() -> None:
    ours, warm = {"total": 10.0}, {"total": 2.0, "import": 1.0}
    peers = {"jax": {"total": 50.0}, "numba": {"total": 40.0}, "compile": {"failure": "none"}}
    found = {"tcsym": ours, "tcsym warm": warm, "torch": {"total": 3.0, "import": 9.0}, **peers}
    lines = goal_lines([{"kernel": "softmax", "contestants": found}])
    assert lines[0].startswith("softmax: best compiling peer / ours 4.00")
    assert lines[1].startswith("softmax: torch eager / ours warm 1.50 (goal 1), ")
    assert lines[1].endswith("imports included 4.0")
    assert len(lines) == 2


@pytest.mark.parametrize("case", ["softmax", "tmm"])
def test_our_stream_compiles_once(case: str) -> None:
    request = {"case": case, "peer": "tcsym", "sizes": 6, "calls": 12}
    found = run_stream({**request, "seed": 0, "threads": 1, "limit": 60})
    assert len(found["milliseconds"]) == 13 and len(found["order"]) == 12
    assert found["compilations"] <= 1  # 0: from the cache of an earlier run
