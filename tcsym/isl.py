"""islpy as `isl`, for all of the package: imported without `importlib.metadata`.

islpy asks that for its own version alone, and importing it takes as long as islpy itself. Its
module `islpy.version` is therefore made here, of what the installation says.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType

from tcsym.packages import installed


def _prepare() -> None:
    known = re.fullmatch(r"islpy-((\d+(?:\.\d+)*)([a-z0-9]*))\.dist-info", installed("islpy"))
    if known is None or "islpy" in sys.modules or "importlib.metadata" in sys.modules:
        return
    version = ModuleType("islpy.version")
    version.__dict__.update(
        VERSION_TEXT=known[1],
        VERSION=tuple(map(int, known[2].split("."))),
        VERSION_STATUS=known[3],
    )
    sys.modules["islpy.version"] = version


_prepare()
import islpy as isl  # noqa: E402

isl.__dict__.setdefault("version", sys.modules["islpy.version"])  # as importing it would

__all__ = ["isl"]
