# SPDX-License-Identifier: Apache-2.0
"""Which system this is: machine code is made and run on Linux with x86-64 or AArch64 processors.

Everything else works everywhere: texts are checked, and `Kernel.reference` runs them.
"""

from __future__ import annotations

import os
import sys

PROCESSORS = ("x86_64", "aarch64")  # by LLVM's names
_OTHER_NAMES = {"arm64": "aarch64", "amd64": "x86_64", "AMD64": "x86_64"}


def runs_code() -> bool:
    """True where kernels can run."""
    name, machine = system()
    return name == "linux" and machine in PROCESSORS and sys.maxsize == 2**63 - 1


def processors() -> str:
    """LLVM's name of the family of this machine's processors, whatever the system calls it."""
    machine = system()[1]
    return _OTHER_NAMES.get(machine, machine)


def system() -> tuple[str, str]:
    """Names of the system and of its processors: ("linux", "x86_64")."""
    return sys.platform, os.uname().machine if hasattr(os, "uname") else "unknown processors"


def require_runs_code() -> None:
    """TargetError where kernels cannot run."""
    if runs_code():
        return
    from tcsym.errors import TargetError

    known, here = " or ".join(PROCESSORS), " with ".join(system())
    raise TargetError(
        f"kernels run on linux with {known} processors (64 bits), this is {here}",
        hint="run them in such a container or machine; `reference` of a kernel runs here, slowly",
    )
