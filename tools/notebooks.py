# SPDX-License-Identifier: Apache-2.0
"""`./dev notebooks [NAMES]`: run docs/notebooks, and keep what they show.

In the environment of `./dev test-hosts`, which has torch. Outputs that are the same stay as they
were, pictures while no cell's code changed (`tests/notebooks.py`). Exit status 1 if a cell failed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.notebooks import notebooks
from tests.pages import run_apart
from tools.hosts import environment


def main(names: Sequence[str]) -> int:
    found = {path.stem: path for path in notebooks()}
    unknown = [name for name in names if name not in found]
    if unknown:
        print(f"no notebook {', '.join(unknown)} among {', '.join(found)}", file=sys.stderr)
        return 2
    python = environment()
    n_failed = 0
    for name in names or found:
        with tempfile.TemporaryDirectory() as folder:
            done = run_apart(found[name], Path(folder), True, "tests.notebooks", python)
        print(f"{name}: {'done' if done.returncode == 0 else done.stderr}", flush=True)
        n_failed += done.returncode != 0
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
