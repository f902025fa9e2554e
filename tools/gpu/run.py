# SPDX-License-Identifier: Apache-2.0
"""Groups, each in a process of its own: eight at once, then what is timed alone, then the rest.

What a case found is a line of JSON in OUT, written at once; what processes print goes to a log
there. A case that breaks its context ends its process, and the group goes on behind it in another.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import IO

from tools.gpu.case import BROKEN
from tools.gpu.groups import GROUPS
from tools.gpu.lines import FILE, put, table, taken

LOG = "log.txt"
MOST_AT_ONCE = 8
POLLED = 0.05  # seconds
END_SECONDS = 10.0  # until a process that was killed is gone


class Running:
    """A group's process."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        paths: Sequence[Path],
        environment: Mapping[str, str],
        patience: float,
    ) -> None:
        self.name, self.group = name, GROUPS[name]
        self._command, self._paths = command, paths
        self._environment = {**environment, **({"TCSYM_SYNC": "1"} if self.group.syncs else {})}
        self._seconds = self.group.seconds * patience
        self._begun = time.monotonic()
        self._first = 0

    def begin(self, log: IO[bytes]) -> Running:
        out, programs = self._paths
        given = self.name, str(out), str(programs), str(self._first)
        self._process = subprocess.Popen(
            [*self._command, *given], stdout=log, stderr=subprocess.STDOUT, env=self._environment
        )
        return self

    def has_ended(self, log: IO[bytes], end: float) -> bool:
        """It is ended when its time is over; a broken context is left for a new process."""
        out, seconds = self._paths[0], time.monotonic() - self._begun
        code = self._process.poll()
        if code is None and (seconds > self._seconds or time.monotonic() > end):
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # what a driver holds may stay
                self._process.wait(END_SECONDS)
            self._tell(f"ended after {seconds:.0f} s")
            return True
        if code is None or code in (0, 1):
            return code is not None
        n = len(taken(out, self.name))
        if code != BROKEN:  # a signal: the case in flight has no line
            self._tell(f"its process ended with {code}, behind {n} cases")
            n += 1
        self._first = n
        self.begin(log)
        return False

    def _tell(self, why: str) -> None:
        line = {"group": self.name, "case": "the process", "ok": False, "why": why, "s": 0}
        put(self._paths[0], line)


def run(
    names: Sequence[str],
    command: Sequence[str],
    paths: tuple[Path, Path],
    seconds: float,
    environment: Mapping[str, str],
    patience: float = 1.0,
) -> bool:
    """Whether all cases of the groups hold. paths: for results; of the acceptance programs.
    patience: how much longer than on a device a group may take. Results of before are replaced."""
    out, end = paths[0], time.monotonic() + seconds
    for old in (FILE, LOG):
        (out / old).unlink(missing_ok=True)
    with (out / LOG).open("ab") as log:
        for batch in _batches(names):
            waiting, running = list(batch), list[Running]()
            while waiting or running:
                while waiting and len(running) < at_once() and time.monotonic() < end:
                    new = Running(waiting.pop(0), command, paths, environment, patience)
                    running.append(new.begin(log))
                for x in [x for x in running if x.has_ended(log, end)]:
                    running.remove(x)
                    print(table(x.name, taken(out, x.name), x.group.is_timed), flush=True)
                if time.monotonic() > end and waiting:
                    print(f"left out, as time was over: {' '.join(waiting)}", flush=True)
                    waiting.clear()
                time.sleep(POLLED)
    lines = taken(out)
    good = sum(x["ok"] for x in lines)
    print(f"{good} of {len(lines)} cases hold; {out}", flush=True)
    return good == len(lines) and {x["group"] for x in lines} >= {*names}


def at_once() -> int:
    """Processes, of which each compiles."""
    return max(1, min(MOST_AT_ONCE, (os.cpu_count() or 1) // 2))


def _batches(names: Sequence[str]) -> Iterator[list[str]]:
    """Neighbours that run at once; what is timed is a batch by itself."""
    for is_timed, found in groupby(names, lambda name: GROUPS[name].is_timed):
        if is_timed:
            yield from ([name] for name in found)
        else:
            yield list(found)


def environment_with(*paths: Path) -> dict[str, str]:
    """Of processes that find modules there first."""
    before = os.environ.get("PYTHONPATH")
    found = os.pathsep.join([*map(str, paths), *([before] if before else [])])
    return {**os.environ, "PYTHONPATH": found, "PYTHONUNBUFFERED": "1"}
