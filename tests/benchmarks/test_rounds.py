# SPDX-License-Identifier: Apache-2.0
"""Turns: alternation, early leave of far contestants, disturbed marks, a worker that dies."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import rounds
from benchmarks.rounds import Effort, Field, WorkerDied
from benchmarks.sizes import Row, suite_rows
from benchmarks.suite import BY_NAME


class Worker:
    """Stands for a process; contestant `crash` brings it down in its second round."""

    asked: list[str] = []  # noqa: RUF012  (shared on purpose: the order over all workers)

    def __init__(self, peers: list[str], environment: Any) -> None:
        self.peers = tuple(peers)
        self.crashes = 0

    def ask(self, do: str, **request: Any) -> Any:
        if do == "prepare":
            speeds = {"tcsym": {"tcsym": 1.0, "slow": 50.0}, "jax": {"crash": 2.0}}
            found = speeds[self.peers[0]]
            made = {n: {"call_ms": ms, "first_ms": 1.0, "error": 0.0} for n, ms in found.items()}
            return {"contestants": made, "failures": {}, "flops": 1.0, "bytes": 1.0}
        name = request["contestant"]
        self.asked.append(name)
        if name == "crash":
            self.crashes += 1
            if self.crashes == 2:
                raise WorkerDied("process of jax ended: -11", name)
        return 1.0

    def close(self) -> None:
        pass


class Guard:
    def __init__(self, answers: list[bool]) -> None:
        self.answers = answers

    def is_quiet(self) -> bool:
        return self.answers.pop(0) if self.answers else True


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> Row:
    monkeypatch.setattr(rounds, "WorkerProcess", Worker)
    monkeypatch.setattr(Worker, "asked", [])
    return next(iter(suite_rows(BY_NAME["softmax"])))


def field(peers: list[str], answers: list[bool]) -> Field:
    guard: Any = Guard(answers)
    return Field(peers, {}, guard, Effort(6, 9, 1.0, 60.0))


def test_contestants_alternate_and_far_ones_leave_after_four_rounds(row: Row) -> None:
    found = field(["tcsym"], []).measure(row, 1, None)["contestants"]
    assert Worker.asked[:4] == ["tcsym", "slow", "slow", "tcsym"]
    assert (len(found["tcsym"]["samples"]), len(found["slow"]["samples"])) == (6, 4)


def test_disturbed_rounds_are_marked_and_made_up_for(row: Row) -> None:
    found = field(["tcsym"], [True, False, True])  # after the first turn
    entry = found.measure(row, 1, None)["contestants"]["tcsym"]
    assert entry["quiet"] == [False, *[True] * 6]


def test_a_worker_that_dies_takes_only_its_own_contestants(row: Row) -> None:
    made = field(["tcsym", "jax"], [])
    measured = made.measure(row, 1, None)
    assert set(measured["contestants"]) == {"tcsym", "slow"}
    assert measured["failures"] == {"jax": "process of jax ended: -11"}
    assert len(measured["contestants"]["tcsym"]["samples"]) == 6  # none of the broken round
    assert len(measured["contestants"]["slow"]["samples"]) == 3
    again = made.measure(row, 1, None)  # in a new process
    assert "jax" in again["failures"]
