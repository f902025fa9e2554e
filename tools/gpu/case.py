# SPDX-License-Identifier: Apache-2.0
"""A case of a group, what it compares, and how a group's cases run in this process."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from tools.gpu.library import Library
from tools.gpu.lines import put

BROKEN = 3  # exit status: the context is broken, cases are left


class Case(NamedTuple):
    """run: gives figures, and raises where something is wrong."""

    name: str
    run: Callable[[], dict[str, Any]]


class Wrong(Exception):
    """A result is not what it has to be; figures: what was found."""

    def __init__(self, why: str, figures: dict[str, Any]) -> None:
        super().__init__(why)
        self.figures = figures


def equal(library: Library, got: Any, expected: Any) -> dict[str, Any]:
    """Figures of a result that has no rounding."""
    differ = int((library.wide(got) != expected).sum())
    if differ:
        raise Wrong(f"{differ} of {prod(expected.shape)}", {"wrong": differ})
    return {"wrong": differ}


def near(library: Library, got: Any, expected: Any, most: float) -> dict[str, Any]:
    """Figures of a result of which each element is as near as `most`, of the largest one."""
    scale = max(float(abs(expected).max()), 1e-30)
    error = float(abs(library.wide(got) - expected).max()) / scale
    if not error <= most:  # NaN is not, either
        raise Wrong(f"off by {error:.3g}, more than {most:.3g}", {"error": error})
    return {"error": error}


def run_cases(
    group: str, cases: Iterable[Case], library: Library, out: Path, first: int = 0
) -> int:
    """An exit status: 0, 1 if a case failed, BROKEN as soon as the device's context is."""
    status = 0
    for case in list(cases)[first:]:
        begun, line = time.monotonic(), {"group": group, "case": case.name, "ok": True}
        try:
            line |= case.run()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            line |= {**getattr(error, "figures", {}), "ok": False, "why": why}
            print(f"{group}: {case.name}", flush=True)
            traceback.print_exc()
            status = 1
        put(out, {**line, "s": round(time.monotonic() - begun, 2)})
        if not line["ok"] and not _is_alive(library):
            return BROKEN
    return status


def _is_alive(library: Library) -> bool:
    try:
        library.synchronize()
    except Exception:
        return False
    return True
