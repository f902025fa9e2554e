# SPDX-License-Identifier: Apache-2.0
"""One group in this process: python -m tools.gpu.group NAME OUT PROGRAMS FIRST

NAME: of `GROUPS`. PROGRAMS: the folder of the acceptance programs. FIRST: number of its first case.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.gpu.case import run_cases
from tools.gpu.groups import GROUPS
from tools.gpu.library import Library, Torch


def run(library: Library, name: str, out: str, programs: str, first: str) -> int:
    cases = GROUPS[name].cases(library, Path(programs))
    return run_cases(name, cases, library, Path(out), int(first))


if __name__ == "__main__":
    sys.exit(run(Torch(), *sys.argv[1:]))
