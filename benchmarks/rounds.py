"""Rows -> samples: contestants take turns, round by round, and disturbed turns are marked.

Where contestants live (one process or several) does not matter here: each turn is a request to a
worker, and while it works all others wait on their pipes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.machine import Guard
from benchmarks.peers import PEERS
from benchmarks.sizes import Row


@dataclass(frozen=True, slots=True)
class Effort:
    """rounds: undisturbed ones wanted of each contestant. sample_ms: shortest timed stretch."""

    rounds: int
    sample_ms: float
    most_rounds: int


QUICK = Effort(6, 3.0, 10)
FULL = Effort(20, 8.0, 40)


class WorkerProcess:
    """One worker, asked by lines of JSON."""

    def __init__(self, peers: Sequence[str], environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", ",".join(peers)]
        self.peers = tuple(peers)
        self._process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, do: str, **request: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerDied(f"process of {', '.join(self.peers)} ended: {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


class WorkerDied(Exception):
    """A library brought its process down; the others go on."""


class Field:
    """All contestants at one number of threads."""

    def __init__(
        self, peers: Sequence[str], environment: Mapping[str, str], guard: Guard, effort: Effort
    ) -> None:
        homes: dict[str, list[str]] = {}
        for name in peers:
            homes.setdefault(PEERS[name].home, []).append(name)
        self._workers = [WorkerProcess(names, environment) for names in homes.values()]
        self._guard, self._effort = guard, effort

    def measure(self, row: Row, threads: int, target: str | None) -> dict[str, Any]:
        """Samples (ms; `quiet`: undisturbed), error and first call of each contestant; failures."""
        place: dict[str, WorkerProcess] = {}
        merged: dict[str, Any] = {"contestants": {}, "failures": {}}
        request = {"case": row.case.name, "sizes": dict(row.sizes)}
        for worker in tuple(self._workers):
            try:
                answer = worker.ask("prepare", **request, threads=threads, target=target)
            except WorkerDied as died:
                self._workers.remove(worker)
                merged["failures"][worker.peers[0]] = str(died)
                continue
            place |= dict.fromkeys(answer["contestants"], worker)
            merged["contestants"] |= answer.pop("contestants")
            merged["failures"] |= answer.pop("failures")
            merged |= answer
        try:
            self._take_turns(place, merged["contestants"])
        except WorkerDied as died:
            merged["failures"]["all"] = str(died)
            merged["contestants"] = {}
        return merged

    def _take_turns(self, place: Mapping[str, WorkerProcess], found: dict[str, Any]) -> None:
        names = list(place)
        for entry in found.values():
            entry["repeats"] = max(1, min(100_000, int(self._effort.sample_ms / entry["call_ms"])))
            entry |= {"samples": [], "quiet": []}
        good = dict.fromkeys(names, 0)
        was_quiet = self._guard.is_quiet()
        for turn in range(self._effort.most_rounds):
            if all(n >= self._effort.rounds for n in good.values()):
                break
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                ms = place[name].ask("time", contestant=name, repeats=found[name]["repeats"])
                is_quiet = self._guard.is_quiet()
                found[name]["samples"].append(ms)
                found[name]["quiet"].append(was_quiet and is_quiet)
                good[name] += was_quiet and is_quiet
                was_quiet = is_quiet

    def versions(self) -> dict[str, str]:
        return {k: v for worker in self._workers for k, v in worker.ask("versions").items()}

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
