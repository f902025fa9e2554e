# SPDX-License-Identifier: Apache-2.0
"""The groups, in the order in which they run: what tells most of the device first."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from tools.gpu.case import Case
from tools.gpu.library import Library

Cases = Callable[[Library, Path], Iterable[Case]]
KINDS = ("bfloat16", "float32", "tf32", "float16")
ROWS = ("softmax", "layer_norm", "log_softmax", "rms_norm", "row_sum")


class Group(NamedTuple):
    """cases: of arrays of a library, and the folder of the acceptance programs. is_timed: it runs
    alone, and its table has all cases. seconds: after which it is ended. syncs: calls raise what
    their kernels find. is_usual: it runs unless groups are named."""

    cases: Cases
    is_timed: bool = False
    seconds: float = 50.0
    syncs: bool = False
    is_usual: bool = True


def _about(library: Library, programs: Path) -> Iterator[Case]:
    yield Case("machine", machine)
    yield Case("device", library.about)
    yield Case("doctor", doctor)


def doctor() -> dict[str, Any]:
    """What tcsym finds here goes to the log."""
    return {"status": subprocess.run([sys.executable, "-m", "tcsym", "doctor"]).returncode}


def machine() -> dict[str, Any]:
    """Versions that decide what code is made, and what the machine says of its devices."""
    found: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count()}
    for name in ("numpy", "llvmlite", "islpy", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    for name in ("ptxas", "compute-sanitizer", "ncu"):
        found[name] = shutil.which(name)
    if shutil.which("nvidia-smi"):
        asked = "--query-gpu=name,driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"
        told = subprocess.run(["nvidia-smi", *asked], capture_output=True, text=True, check=False)
        found["nvidia-smi"] = told.stdout.strip()
    return found


def _groups() -> Iterator[tuple[str, Group]]:
    from tools.gpu import costs, launches, products, programs, rows, speeds, updates

    def plans(layout: str) -> Iterator[tuple[str, Group]]:
        for kind in KINDS:
            made = Group(lambda x, _, k=kind: products.by_plans(x, k, layout))
            yield f"plans-{kind}-{layout}", made

    yield "about", Group(_about, is_timed=True)
    for kind in KINDS:
        yield f"products-{kind}", Group(lambda x, _, k=kind: products.by_sizes(x, k))
    yield "rows-softmax", Group(lambda x, _: rows.cases(x, "softmax"))
    yield "launches", Group(lambda x, _: launches.cases(x))
    yield "updates", Group(lambda x, _: updates.cases(x))
    yield from plans("nn")
    for name in ROWS[1:]:
        yield f"rows-{name}", Group(lambda x, _, n=name: rows.cases(x, n))
    yield "maps", Group(lambda x, _: rows.maps(x))
    yield "speeds", Group(lambda x, _: speeds.cases(x), is_timed=True, seconds=90)
    yield "costs", Group(lambda x, _: costs.cases(x), is_timed=True, seconds=30)
    for share in range(programs.SHARES):
        yield (
            f"programs-{share}",
            Group(lambda x, folder, s=share: programs.cases(x, folder, s), syncs=True),
        )
    yield from plans("tt")
    # For `--under compute-sanitizer`, which is slow.
    yield "sanitized", Group(lambda x, _: _sanitized(x), seconds=300, is_usual=False)


def _sanitized(library: Library) -> Iterator[Case]:
    """Tensor cores, a sum in parts, blocks that wait for each other."""
    from tools.gpu import launches, products

    for plan in ("WarpTiles:64x64x32x3x32x32", "SplitSum:64x64x32x3x32x32"):
        yield products.case(library, "bfloat16", "nn", (67, 101, 131), plan, 0)
    yield from (c for c in launches.cases(library) if c.name.endswith("40 GridSteps"))


GROUPS: dict[str, Group] = dict(_groups())
