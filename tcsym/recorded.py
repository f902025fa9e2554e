# SPDX-License-Identifier: Apache-2.0
"""A trace written by `tcsym.record` -> what was called, at which sizes, how often, for how long."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from tcsym.errors import OptionError

_log = logging.getLogger("tcsym.record")


class Calls(Struct, frozen=True):
    """Calls of one def at one choice of sizes.

    sizes: name -> value.
    count: number of calls.
    seconds: time of all of them.
    default_options: nobody had tuned for these sizes.
    """

    sizes: Mapping[str, int]
    count: int
    seconds: float
    default_options: bool


class Recorded(Struct, frozen=True):
    """One def of a trace: `define(source, filename=…, target=…)[kernel]` is it again.

    program: its canonical hash; names and comments do not matter.
    calls: those that took most time first.
    """

    kernel: str
    program: str
    source: str
    filename: str
    target: str | None
    calls: tuple[Calls, ...]

    @property
    def seconds(self) -> float:
        """Time of all its calls."""
        return sum(c.seconds for c in self.calls)


def load(path: str | os.PathLike[str]) -> tuple[Recorded, ...]:
    """All defs that were called, those that took most time first.

    Calls of equal sizes are added up. A line that is cut off or no line of a trace is left out,
    with a warning. Errors: OptionError if the file cannot be read or has no call in it.
    """
    texts: dict[tuple[str, str], dict[str, Any]] = {}
    calls: dict[tuple[str, str], dict[tuple[tuple[str, int], ...], Calls]] = {}
    for line in _lines(os.fspath(path)):
        key = line["kernel"], line["program"]
        if "source" in line:
            texts[key] = line
            continue
        sizes = tuple((str(n), int(v)) for n, v in line["sizes"].items())
        of_kernel = calls.setdefault(key, {})
        before = of_kernel.get(sizes, Calls({}, 0, 0.0, False))
        of_kernel[sizes] = Calls(
            dict(sizes),
            before.count + int(line["calls"]),
            before.seconds + float(line["seconds"]),
            bool(line["default_options"]),
        )
    found = [
        Recorded(
            *key,
            texts[key]["source"],
            texts[key]["filename"],
            texts[key]["target"],
            tuple(sorted(of_kernel.values(), key=lambda c: -c.seconds)),
        )
        for key, of_kernel in calls.items()
        if key in texts
    ]
    if not found:
        raise OptionError(f"{path}: there is no recorded call", hint="record with `tcsym.record`")
    return tuple(sorted(found, key=lambda r: -r.seconds))


def _lines(path: str) -> Iterator[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            content = file.read()
    except OSError as e:
        raise OptionError(f"cannot read the trace {path}: {e.strerror or e}") from None
    for k, text in enumerate(content.splitlines(), 1):
        try:
            line = json.loads(text)
            if "source" not in line:
                _ = line["sizes"].items(), line["calls"], line["seconds"], line["default_options"]
            else:
                _ = line["filename"], line["target"]
            _ = line["kernel"], line["program"]
        except (ValueError, TypeError, KeyError, AttributeError):
            _log.warning("%s:%d: not a line of a trace", path, k)
            continue
        yield line
