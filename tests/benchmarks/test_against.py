# SPDX-License-Identifier: Apache-2.0
"""Two versions: turns, what is slower and by what interval, rows that fail, processes that die."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from benchmarks.against import USUAL, Budget, Compared, Pair, compare_rows, lines_of, verdict_on
from benchmarks.rounds import WorkerDied
from benchmarks.sizes import Row, suite_rows
from benchmarks.suite import BY_NAME


class Version:
    """Stands for a process. `ms`: by size; a list is gone through again and again."""

    started: list[int] = []  # noqa: RUF012  (shared on purpose: the order over all processes)

    def __init__(self, k: int, ms: dict[int, list[float]]) -> None:
        self.k, self.ms = k, ms
        self.started.append(k)

    def ask(self, do: str, **request: Any) -> Any:
        if do == "prepare":
            self.size = next(iter(request["sizes"].values()))
            if self.size not in self.ms:
                return {"contestants": {}, "failures": {"tcsym": "no such size"}}
            return {"contestants": {"tcsym": {"call_ms": 1.0}}, "failures": {}}
        assert request["clock"] == "thread"
        if self.ms[self.size] == [0.0]:
            raise WorkerDied("process of tcsym ended: -11", "tcsym")
        self.ms[self.size].append(self.ms[self.size].pop(0))
        return self.ms[self.size][-1]

    def close(self) -> None:
        pass


def compared(
    commit: dict[int, list[float]], here: dict[int, list[float]], budget: Budget = USUAL
) -> list[Compared]:
    Version.started.clear()
    base = next(iter(suite_rows(BY_NAME["softmax"])))
    rows = [Row(base.case, f"row {n}", {"N": n}) for n in commit]
    pair = Pair(lambda k: Version(k, (commit, here)[k]))
    return compare_rows(rows, pair, lambda text: None, budget)


def test_a_slower_row_is_below_the_goal_and_measured_again_in_new_processes() -> None:
    found = compared({1: [1.0], 2: [1.0]}, {1: [1.0], 2: [1.25]})
    verdict = verdict_on(found)
    assert [c.name for c in verdict.below] == ["row 2"] and not verdict.near
    assert abs(verdict.mean - 0.8**0.5) < 1e-12 and not verdict.holds
    assert Version.started == [0, 1] * 7  # at first, and six times again
    assert (len(found[0].samples["tcsym"]), len(found[1].samples["tcsym"])) == (1, 7)


def test_two_speeds_of_processes_are_no_difference_and_a_wide_interval_is_only_near() -> None:
    def turns(*ms: tuple[float, float]) -> list[Compared]:
        return [Compared("row", {"tcsym": [([a] * 3, [b] * 3) for a, b in ms]}, {})]

    assert verdict_on(turns((1.0, 2.0), (2.0, 1.0), (1.0, 1.0))).holds
    wide = verdict_on(turns((1.0, 1.2), (1.0, 1.2), (1.0, 0.9)))
    assert [c.name for c in wide.near] == ["row"] and not wide.below


def test_equal_versions_hold_and_a_quicker_one_may_not_hide_a_slow_row() -> None:
    assert verdict_on(compared({1: [1.0]}, {1: [1.0]})).holds
    assert not verdict_on(compared({1: [1.0], 2: [9.0]}, {1: [1.3], 2: [1.0]})).holds


def test_a_budget_says_what_is_allowed_and_which_rows_are_measured_again() -> None:
    commit, here = {1: [1.0], 2: [1.0]}, {1: [0.95], 2: [1.15]}
    budget = Budget(mean=0.93, row=0.85)
    found = compared(commit, here, budget)
    assert Version.started == [0, 1]
    assert verdict_on(found, budget).holds and not verdict_on(found).holds
    assert lines_of(found, budget)[-1] == "within the budget: mean 0.93, rows 0.85"
    assert lines_of(found)[-1] == "not within the budget: mean 0.99, rows 0.9"
    slow = compared(commit, {1: [0.5], 2: [1.25]}, budget)
    assert Version.started == [0, 1] * 13  # rows far to either side
    assert [c.name for c in verdict_on(slow, budget).below] == ["row 2"]
    assert not verdict_on(slow, budget).holds


def test_rows_that_fail_or_bring_a_process_down_are_told_and_the_others_go_on() -> None:
    found = compared({1: [1.0], 2: [0.0], 3: [1.0]}, {2: [1.0], 3: [1.0]})
    assert verdict_on(found).rows == 1
    text = "\n".join(lines_of(found))
    assert "not compared: row 1: here: tcsym: no such size" in text
    assert "not compared: row 2: process: process of tcsym ended: -11" in text


def test_symbolic_sizes_are_compared_with_the_better_substituted_ones() -> None:
    times = {"tcsym": (2.0, 4.0), "tcsym after": (3.0, 3.0), "tcsym before": (1.0, 6.0)}
    samples = {n: [([a], [b])] for n, (a, b) in times.items()}
    row = Compared("row", samples, {})
    assert (row.over_substituted(0), row.over_substituted(1)) == (0.5, 0.75)
    assert replace(row, samples={"tcsym": samples["tcsym"]}).over_substituted(0) is None
