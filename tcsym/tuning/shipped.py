# SPDX-License-Identifier: Apache-2.0
"""The shipped options store: `autotune_cache/*.json`, one readable file a program; read-only.

Also the form of `tcsym cache export`: what tuning learned on one machine can be reviewed as a
diff, put into a repository, and imported on another.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tcsym.tuning.warn import warn_once

if TYPE_CHECKING:
    from tcsym.tuning.rows import Tuned

SCHEMA = 1
DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "autotune_cache")
_SHOWN_HASH = 12


def file_name(name: str, program: str) -> str:
    return f"{name}-{program[:_SHOWN_HASH]}.json"


def tuned_text(rows: Iterable[Tuned]) -> str:
    """All machines' trees of one program as JSON, sorted, one fact a line."""
    import json  # nor anything else that a program without tuned options does not need

    by_machine = sorted(rows, key=lambda row: row.machine)
    first = by_machine[0]
    data = {
        "schema": SCHEMA,
        "program": first.program,
        "name": first.name,
        "structure": first.structure,
        "text": first.text.strip().splitlines(),
        "machines": [
            {
                "machine": row.machine,
                "created": row.created,
                "gain": round(row.gain, 4),
                "measured": [json.dumps(sizes) for sizes in json.loads(row.measured)],
                "tree": json.loads(row.tree),
            }
            for row in by_machine
        ],
    }
    return json.dumps(data, indent=1) + "\n"


def tuned_rows(text: str) -> list[Tuned]:
    """The inverse. ValueError, KeyError, TypeError: it is not what `tuned_text` writes."""
    import json

    from tcsym.tuning.rows import tuned_from

    data: dict[str, Any] = json.loads(text)
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']!r}, this version reads {SCHEMA}")
    common = {key: data[key] for key in ("program", "name", "structure")}
    common["text"] = "\n".join(data["text"])
    rows = []
    for entry in data["machines"]:
        measured = json.dumps([json.loads(sizes) for sizes in entry["measured"]])
        tree = json.dumps(entry["tree"])
        gain = float(entry["gain"])
        rows.append(
            tuned_from({**common, **entry, "gain": gain, "measured": measured, "tree": tree})
        )
    return rows


def shipped(program: str, directory: str = DIRECTORY) -> list[Tuned]:
    """What is shipped for a program, for all machines; none if its file is not readable."""
    path = _paths(directory).get(program[:_SHOWN_HASH])
    if path is None:
        return []
    try:
        return [row for row in read(path) if row.program == program]
    except (OSError, ValueError, KeyError, TypeError) as error:
        warn_once(f"cannot read {path}: {error!r}")
        return []


def read(path: str) -> list[Tuned]:
    with open(path, encoding="utf-8") as file:
        return tuned_rows(file.read())


def paths(directory: str = DIRECTORY) -> list[str]:
    """Files of the store, sorted."""
    try:
        names = sorted(n for n in os.listdir(directory) if n.endswith(".json"))
    except OSError:
        return []
    return [os.path.join(directory, name) for name in names]


@lru_cache(None)
def _paths(directory: str) -> dict[str, str]:
    """By the beginning of the hash; listed once in a process."""
    return {path[: -len(".json")].rpartition("-")[2]: path for path in paths(directory)}
