# SPDX-License-Identifier: Apache-2.0
"""The acceptance programs on the device, a case for each, by their own runner."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.gpu.case import Case, Wrong
from tools.gpu.library import Library

SHARES = 8  # groups


def cases(library: Library, folder: Path, share: int) -> Iterator[Case]:
    """Those that are valid or fail at the call: every eighth."""
    if not (folder / "run.py").is_file():
        return
    runner = _runner(folder)
    runner.to_device, runner.to_host = library.of, library.host
    records = list(enumerate(map(json.loads, (folder / "programs.jsonl").open())))
    called = [x for x in records if x[1]["valid"] or x[1]["error"]["phase"] == "call"]
    for number, record in called[share::SHARES]:
        yield Case(record["name"], lambda n=number, r=record: _program(runner, n, r))


def _program(runner: Any, number: int, record: Any) -> dict[str, Any]:
    why = runner.check(runner.Runner("device"), number, record)
    if why:
        raise Wrong(why, {})
    return {"calls": len(record["sizes"]) if record["valid"] else 1}


def _runner(folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("acceptance_runner", folder / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
