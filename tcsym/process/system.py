# SPDX-License-Identifier: Apache-2.0
"""Which system this is: machine code is made and run on Linux with x86-64 processors only.

Everything else works everywhere: texts are checked, and `Kernel.reference` runs them.
"""

from __future__ import annotations

import os
import sys


def runs_code() -> bool:
    """True where kernels can run."""
    return system() == ("linux", "x86_64") and sys.maxsize == 2**63 - 1


def system() -> tuple[str, str]:
    """Names of the system and of its processors: ("linux", "x86_64")."""
    return sys.platform, os.uname().machine if hasattr(os, "uname") else "unknown processors"


def require_runs_code() -> None:
    """TargetError where kernels cannot run."""
    if runs_code():
        return
    from tcsym.errors import TargetError

    raise TargetError(
        f"kernels run on linux with x86_64 processors (64 bits), this is {' with '.join(system())}",
        hint="run them in such a container or machine; `reference` of a kernel runs here, slowly",
    )
