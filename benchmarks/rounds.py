# SPDX-License-Identifier: Apache-2.0
"""Rows -> samples: contestants take turns, round by round, and disturbed turns are marked.

Where contestants live (one process or several) does not matter here: each turn is a request to a
worker, and while it works all others wait on their pipes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.machine import Guard
from benchmarks.peers import PEERS
from benchmarks.sizes import Row


class Effort(Struct, frozen=True):
    """rounds: undisturbed ones wanted of each contestant, of at most `most_rounds`.

    sample_ms: shortest timed stretch. seconds: after so many a row ends with the rounds it has.
    clock: of calls (`worker.Worker.time`).
    """

    rounds: int
    most_rounds: int
    sample_ms: float
    seconds: float
    clock: str = "wall"


QUICK = Effort(6, 10, 3.0, 3.0)
FULL = Effort(20, 40, 8.0, 30.0)
_FEWEST_ROUNDS = 4
_FAR = 5.0  # times slower than the fastest: such a contestant leaves after the fewest rounds


class WorkerProcess:
    """One worker, asked by lines of JSON. `tree`: whose packages it imports; else as we do."""

    def __init__(
        self, peers: Sequence[str], environment: Mapping[str, str], tree: Path | None = None
    ) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", ",".join(peers)]
        self.peers = tuple(peers)
        self._process = subprocess.Popen(
            command,
            cwd=tree,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
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
            reason = f"process of {', '.join(self.peers)} ended: {self._process.wait()}"
            raise WorkerDied(reason, request.get("contestant", ""))
        return json.loads(line)

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


class WorkerDied(Exception):
    """A library brought its process down, when `contestant` was asked; the others go on."""

    def __init__(self, reason: str, contestant: str) -> None:
        super().__init__(reason)
        self.contestant = contestant


class Field:
    """All contestants at one number of threads."""

    def __init__(
        self, peers: Sequence[str], environment: Mapping[str, str], guard: Guard, effort: Effort
    ) -> None:
        homes: dict[str, list[str]] = {}
        for name in peers:
            homes.setdefault(PEERS[name].home, []).append(name)
        self._environment = environment
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
                merged["failures"] |= self._replace(worker, died)
                continue
            place |= dict.fromkeys(answer["contestants"], worker)
            merged["contestants"] |= answer.pop("contestants")
            merged["failures"] |= answer.pop("failures")
            merged |= answer
        self._take_turns(place, merged)
        return merged

    def _replace(self, worker: WorkerProcess, died: WorkerDied) -> dict[str, str]:
        """A new process for the next row; the failures of this one."""
        self._workers.remove(worker)
        self._workers.append(WorkerProcess(worker.peers, self._environment))
        return dict.fromkeys(worker.peers, str(died))

    def _take_turns(self, place: dict[str, WorkerProcess], merged: dict[str, Any]) -> None:
        found = merged["contestants"]
        for entry in found.values():
            entry["repeats"] = max(1, min(100_000, int(self._effort.sample_ms / entry["call_ms"])))
            entry |= {"samples": [], "quiet": []}
        fastest = min((entry["call_ms"] for entry in found.values()), default=0.0)
        near = [n for n in found if found[n]["call_ms"] <= _FAR * fastest]
        stop = time.perf_counter() + self._effort.seconds
        for turn in range(self._effort.most_rounds):
            if turn >= _FEWEST_ROUNDS and (self._is_enough(found) or time.perf_counter() > stop):
                break
            playing = [n for n in found if turn < _FEWEST_ROUNDS or n in near]
            first = turn % max(1, len(playing))
            complete = {n: len(found[n]["samples"]) for n in found}
            try:
                self._play_round(playing[first:] + playing[:first], place, found)
            except WorkerDied as died:
                worker = place[died.contestant]
                merged["failures"] |= self._replace(worker, died)
                for name in [n for n, home in place.items() if home is worker]:
                    del place[name], found[name]
                for name, entry in found.items():  # rounds are compared pairwise
                    del entry["samples"][complete[name] :], entry["quiet"][complete[name] :]

    def _play_round(
        self, playing: Sequence[str], place: Mapping[str, WorkerProcess], found: Mapping[str, Any]
    ) -> None:
        was_quiet = self._guard.is_quiet()
        for name in playing:
            repeats = found[name]["repeats"]
            clock = self._effort.clock
            ms = place[name].ask("time", contestant=name, repeats=repeats, clock=clock)
            is_quiet = self._guard.is_quiet()
            found[name]["samples"].append(ms)
            found[name]["quiet"].append(was_quiet and is_quiet)
            was_quiet = is_quiet

    def _is_enough(self, found: Mapping[str, Any]) -> bool:
        """True if every contestant still playing has its undisturbed rounds."""
        longest = max((len(entry["quiet"]) for entry in found.values()), default=0)
        playing = (entry["quiet"] for entry in found.values() if len(entry["quiet"]) == longest)
        return all(sum(quiet) >= self._effort.rounds for quiet in playing)

    def versions(self) -> dict[str, str]:
        return {k: v for worker in self._workers for k, v in worker.ask("versions").items()}

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
