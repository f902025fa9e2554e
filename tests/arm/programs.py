# SPDX-License-Identifier: Apache-2.0
"""The acceptance programs in symbolic mode: compiled here, run where they belong.

    python -m tests.arm.programs [--compile] FOLDER [FILE.jsonl …]

FOLDER has `run.py`, and `programs.jsonl`, which comes before the files. Exit status 1 if a program
does not hold.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import tcsym
from tests.arm.kernels import TARGET, compiled_only
from tests.strategies_acceptance import load_runner


def compile_calls(runner: Any, file: Path) -> None:
    """What calls of the records need, into the code cache; not those that are to be an error."""
    for record in map(json.loads, file.read_text().splitlines()):
        run, numbers = runner.Runner("symbolic"), np.random.default_rng(0)
        for sizes in record["sizes"] if record["valid"] else ():
            specs = record["inputs"].items()
            run(record, {name: runner.make(x, sizes, numbers) for name, x in specs}, sizes)


def main() -> int:
    words = sys.argv[1:]
    compiles = words[0] == "--compile"
    folder, *files = map(Path, words[compiles:])
    runner, failed = load_runner(folder), 0
    with patch.object(tcsym, "define", partial(tcsym.define, target=TARGET)):
        for file in (folder / "programs.jsonl", *files):
            if compiles:
                with compiled_only():
                    compile_calls(runner, file)
                continue
            with patch.object(sys, "argv", ["run.py", str(file), "--mode", "symbolic"]):
                failed |= runner.main()
    return failed


if __name__ == "__main__":
    sys.exit(main())
