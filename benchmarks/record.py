# SPDX-License-Identifier: Apache-2.0
"""Measured rows -> the record: what JSON holds, and what tables, picture and report are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.contestant import writes_to_given
from benchmarks.machine import Machine
from benchmarks.peers import OURS
from benchmarks.sizes import Row
from benchmarks.statistics import LEAST_ROUNDS, geometric_mean, least, median, ratio

SCHEMA = 1
GOALS = {"contractions": (1.05, 0.9), "others": (1.5, 1.0), "substituted": (0.97, 0.9)}
TRAINING_GOALS = {"contractions": (1.0, 0.85), "others": (1.3, 0.9), "layers": (1.0, 0.75)}
RANDOM_GOAL = (1.0, 0.75)

Record = dict[str, Any]


def row_record(row: Row, measured: Mapping[str, Any], machine: Machine, threads: int) -> Record:
    """One line. A ratio compares outputs allocated by both, or given to both (`out=`)."""
    entries = {name: _entry(raw) for name, raw in measured["contestants"].items()}
    made: Record = {
        "kernel": row.case.name,
        "label": row.label,
        "part": row.case.part,
        "class": row.case.goal,
        "sizes": dict(row.sizes),
        "threads": threads,
        "flops": measured.get("flops", 0.0),
        "bytes": measured.get("bytes", 0.0),
        "contestants": entries,
        "failures": dict(measured["failures"]),
        "ratios": {},
        "substituted": {},
        "best_peer": None,
        "roofline": None,
    }
    ours = entries.get("tcsym")
    if ours is None:
        return made
    made["roofline"] = machine.bound_ms(made["flops"], made["bytes"]) / ours["min_ms"]
    for name, entry in entries.items():
        base = entries.get("tcsym out=") if writes_to_given(name) else ours
        if name in OURS[:2] or base is None:
            continue
        kind = "substituted" if name in OURS else "ratios"
        made[kind][name] = _ratio_record(entry, base)
    made["best_peer"] = min(made["ratios"], key=lambda n: made["ratios"][n]["value"], default=None)
    return made


def _entry(raw: Mapping[str, Any]) -> Record:
    """`disturbed`: too few quiet rounds, so all are used."""
    quiet = [bool(q) for q in raw["quiet"]]
    disturbed = sum(quiet) < LEAST_ROUNDS
    kept = [s if q or disturbed else None for s, q in zip(raw["samples"], quiet)]
    return {
        "min_ms": least(kept),
        "median_ms": median(kept),
        "first_ms": raw["first_ms"],
        "error": raw["error"],
        "repeats": raw["repeats"],
        "disturbed": disturbed,
        "samples": raw["samples"],
        "quiet": quiet,
    }


def _ratio_record(entry: Mapping[str, Any], base: Mapping[str, Any]) -> Record:
    """Over the rounds in which neither was disturbed; with too few of them, over all."""
    both = [a and b for a, b in zip(entry["quiet"], base["quiet"])]
    disturbed = sum(both) < LEAST_ROUNDS
    kept = [disturbed or q for q in both]
    theirs, ours = ([s if q else None for s, q in zip(e["samples"], kept)] for e in (entry, base))
    found = ratio(theirs, ours)
    return {
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "rounds": found.rounds,
        "disturbed": disturbed,
    }


def summary(rows: Iterable[Record], is_random: bool) -> list[Record]:
    """Geometric means of (best peer's time / ours) by class and threads, with their goals."""
    groups: dict[tuple[str, str, int], list[tuple[float, str]]] = {}
    for r in rows:
        if r["best_peer"]:
            value = r["ratios"][r["best_peer"]]["value"]
            key = (r["part"], r["class"], r["threads"])
            groups.setdefault(key, []).append((value, r["label"]))
        for name, found in r["substituted"].items():
            key = (r["part"], f"substituted: {name.removeprefix('tcsym ')}", r["threads"])
            groups.setdefault(key, []).append((found["value"], r["label"]))
    return [
        _group_record(part, kind, threads, values, is_random)
        for (part, kind, threads), values in sorted(groups.items())
    ]


def by_peer(rows: Iterable[Record]) -> list[Record]:
    """Geometric mean and worst of each peer's time over ours, by class and threads."""
    groups: dict[tuple[str, int, str], list[tuple[float, str]]] = {}
    for r in rows:
        for peer, found in r["ratios"].items():
            key = (r["class"], r["threads"], peer)
            groups.setdefault(key, []).append((found["value"], r["label"]))
    return [
        {
            "class": kind,
            "threads": threads,
            "peer": peer,
            "rows": len(values),
            "mean": geometric_mean(v for v, _ in values),
            "worst": min(values)[0],
            "worst_at": min(values)[1],
        }
        for (kind, threads, peer), values in sorted(groups.items())
    ]


def by_kernel(rows: Iterable[Record]) -> list[Record]:
    """Over the sizes of each kernel: geometric mean of (best peer's time / ours), and the worst."""
    groups: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for r in rows:
        if r["best_peer"]:
            value = r["ratios"][r["best_peer"]]["value"]
            groups.setdefault((r["kernel"], r["threads"]), []).append((value, r["label"]))
    return [
        {
            "kernel": kernel,
            "threads": threads,
            "rows": len(values),
            "mean": geometric_mean(v for v, _ in values),
            "worst": min(values)[0],
            "worst_at": min(values)[1],
            "below": sum(v < 1 for v, _ in values),
        }
        for (kernel, threads), values in groups.items()
    ]


def _group_record(
    part: str, kind: str, threads: int, values: Sequence[tuple[float, str]], is_random: bool
) -> Record:
    name = kind.partition(":")[0]
    goals = TRAINING_GOALS if part in ("training", "layers") else GOALS
    goal = RANDOM_GOAL if is_random and name != "substituted" else goals[name]
    worst, where = min(values)
    return {
        "part": part,
        "class": kind,
        "threads": threads,
        "rows": len(values),
        "mean": geometric_mean(v for v, _ in values),
        "worst": worst,
        "worst_at": where,
        "below": sum(v < goal[1] for v, _ in values),
        "goal_mean": goal[0],
        "goal_each": goal[1],
    }
