"""What the options store keeps: tuned regions, and trials; with a checksum each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tcsym.digest import hexdigest
from tcsym.records import dataclass


@dataclass(frozen=True, slots=True)
class Tuned:
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


@dataclass(frozen=True, slots=True)
class Trial:
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


COLUMNS: dict[type, tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind)) for kind in (Tuned, Trial)
}


def values(row: Tuned | Trial) -> tuple[Any, ...]:
    return tuple([getattr(row, name) for name in COLUMNS[type(row)]])


def checksum(row: Tuned | Trial) -> str:
    return hexdigest(json.dumps(values(row)).encode())


def tuned_from(data: Mapping[str, Any]) -> Tuned:
    """ValueError, KeyError: a column is missing or of another type."""
    row = Tuned(*(data[name] for name in COLUMNS[Tuned]))
    if not all(isinstance(v, float if f == "gain" else str) for f, v in _named(row)):
        raise ValueError(f"no tuned program: {row!r:.200}")
    return row


def _named(row: Tuned) -> list[tuple[str, Any]]:
    return list(zip(COLUMNS[Tuned], values(row), strict=True))
