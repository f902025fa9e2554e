# SPDX-License-Identifier: Apache-2.0
"""What the options store keeps: tuned regions, trials, choices of `auto`; with a checksum each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tcsym.runtime.digest import hexdigest


class Tuned(Struct, frozen=True):
    """The decision tree of one program on one machine.

    program: canonical hash. structure: class of similar programs. tree: JSON. measured: JSON list
    of the sizes it was learned from, in the order of `Program.sizes`. gain: how many times faster
    than the analytic default, over these sizes. created: ISO date. name, text: for people.
    """

    program: str
    machine: str
    structure: str
    tree: str
    measured: str
    gain: float
    created: str
    name: str
    text: str


class Trial(Struct, frozen=True):
    """One candidate at one size, or (sizes "") its failure.

    compiler: version of what generated the code. options, sizes: JSON. ratio: its time by that of
    the analytic default, of which the logarithm has standard error `noise`. state: measured,
    raced (given up early), failed, pruned; `reason` says why.
    """

    program: str
    machine: str
    compiler: str
    options: str
    sizes: str
    state: str
    reason: str
    ratio: float
    seconds: float
    noise: float
    created: str


class Chosen(Struct, frozen=True):
    """How strategy `auto` serves a program's calls on one machine.

    question: JSON of all that the answer depends on beside: declared and known sizes, options,
    compiler. measured: JSON of `dispatch.weigh.Weighed`. way: what was the fastest.
    """

    program: str
    machine: str
    question: str
    measured: str
    way: str
    created: str
    name: str


class Fastest(Struct, frozen=True):
    """Which of a program's tuned options was measured to be the fastest at single sizes.

    question: digest of all that the answer depends on beside: candidates, declared and known sizes,
    compiler. sizes, options: JSON. before, seconds: of a call with the region's options, and with
    these. name: for people.
    """

    program: str
    machine: str
    question: str
    sizes: str
    options: str
    before: float
    seconds: float
    created: str
    name: str


Row = Tuned | Trial | Chosen | Fastest
COLUMNS: dict[type, tuple[str, ...]] = {
    kind: kind.__struct_fields__ for kind in (Tuned, Trial, Chosen, Fastest)
}


def values(row: Row) -> tuple[Any, ...]:
    return tuple([getattr(row, name) for name in COLUMNS[type(row)]])


def checksum(row: Row) -> str:
    return hexdigest(json.dumps(values(row)).encode())


def tuned_from(data: Mapping[str, Any]) -> Tuned:
    """ValueError, KeyError: a column is missing or of another type."""
    row = Tuned(*(data[name] for name in COLUMNS[Tuned]))
    if not all(isinstance(v, float if f == "gain" else str) for f, v in _named(row)):
        raise ValueError(f"no tuned program: {row!r:.200}")
    if not _are_sizes(json.loads(row.measured)):
        raise ValueError(f"no sizes: {row.measured:.200}")
    return row


def _are_sizes(measured: object) -> bool:
    """True for lists of integers, at least one, all of the same length."""
    rows = measured if isinstance(measured, list) else []
    alike = len({len(v) for v in rows if isinstance(v, list)}) == 1
    return alike and all(isinstance(v, list) and all(type(n) is int for n in v) for v in rows)


def _named(row: Tuned) -> list[tuple[str, Any]]:
    return list(zip(COLUMNS[Tuned], values(row), strict=True))
