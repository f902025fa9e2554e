# SPDX-License-Identifier: Apache-2.0
"""Several records -> fewer: those of the same sizes and target become one.

A long run can so be made in parts: by kernels, by number of threads, at quiet times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.record import summary

Record = Mapping[str, Any]


def merged(records: Iterable[Record]) -> list[dict[str, Any]]:
    """In order of first appearance. A row measured twice counts as measured last."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["sizes"], record["target"]), []).append(record)
    return [_merge(group) for group in groups.values()]


def _merge(group: list[Record]) -> dict[str, Any]:
    rows: dict[tuple[str, int], Any] = {}
    startup: dict[str, Any] = {}
    made: dict[str, Any] = dict(group[-1])
    made["machines"], made["versions"] = {}, {}
    for record in group:
        made["machines"] |= record["machines"]
        made["versions"] |= record["versions"]
        rows |= {(r["label"], r["threads"]): r for r in record["rows"]}
        startup |= {r["kernel"]: r for r in record["startup"]["rows"]}
    calls = [r["startup"]["call"] for r in group if r["startup"]["call"]]
    most = max(calls, key=lambda c: len(c["contestants"]), default=None)
    made["machines"] = dict(sorted(made["machines"].items()))
    made["rows"] = list(rows.values())
    made["startup"] = {"rows": list(startup.values()), "call": most}
    made["command"] = "\n".join(dict.fromkeys(r["command"] for r in group))
    made["summary"] = summary(made["rows"], made["sizes"] == "random")
    return made
