# SPDX-License-Identifier: Apache-2.0
"""Commands of the system's C compiler and its binary utilities -> what they make, or why not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tcsym.errors import TargetError


def compiler() -> str:
    return tool(os.environ.get("CC", "cc"))


def object_copier() -> str:
    return tool(os.environ.get("OBJCOPY", "objcopy"))


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        hint = "install a C compiler and its binary utilities, or set CC and OBJCOPY"
        raise TargetError(f"`{name}` was not found, which links artifacts", hint=hint)
    return found


def ran(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        what = " ".join(Path(x).name for x in command[:1])
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise TargetError(f"`{what}` could not link the artifact: {last[0]}")
