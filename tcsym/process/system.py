# SPDX-License-Identifier: Apache-2.0
"""Which system this is: machine code is made and run on Linux, and on macOS on Apple's processors.

Elsewhere texts are checked, and `Kernel.reference` runs them; Windows has not all that these need,
and setup.py says so. What is for macOS alone is marked `macOS: never run`, until it has.
"""

from __future__ import annotations

import os
import sys

PROCESSORS = {"linux": ("x86_64", "aarch64"), "darwin": ("aarch64",)}  # by LLVM's names
KNOWN = "Linux with x86-64 or AArch64 processors, or macOS on Apple's"
_OTHER_NAMES = {"arm64": "aarch64", "amd64": "x86_64", "AMD64": "x86_64"}


def runs_code() -> bool:
    """True where kernels can run."""
    return processors() in PROCESSORS.get(system()[0], ()) and sys.maxsize == 2**63 - 1


def processors() -> str:
    """LLVM's name of the family of this machine's processors, whatever the system calls it."""
    machine = system()[1]
    return _OTHER_NAMES.get(machine, machine)


def system() -> tuple[str, str]:
    """Names of the system and of its processors: ("linux", "x86_64")."""
    return sys.platform, os.uname().machine if hasattr(os, "uname") else "unknown processors"


def is_macos() -> bool:
    return system()[0] == "darwin"


def macos_fact(name: str) -> bytes:
    """What macOS knows by this name, an integer little end first; empty if nothing.

    macOS: never run.
    """
    import ctypes

    value, size = ctypes.create_string_buffer(256), ctypes.c_size_t(256)
    given = name.encode(), value, ctypes.byref(size), None, ctypes.c_size_t(0)
    return b"" if ctypes.CDLL(None).sysctlbyname(*given) else value.raw[: size.value]


def require_runs_code() -> None:
    """TargetError where kernels cannot run."""
    if runs_code():
        return
    from tcsym.errors import TargetError

    raise TargetError(
        f"kernels run on {KNOWN} (64 bits), this is {' with '.join(system())}",
        hint="run them in such a container or machine; `reference` of a kernel runs here, slowly",
    )
