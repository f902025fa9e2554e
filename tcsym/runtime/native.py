# SPDX-License-Identifier: Apache-2.0
"""The native part of the run time (tcsym/native); where it was not built, what can stand for it.

`HAS_ENTRIES`: calls may enter native code. Else Python serves every call, on one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "ARENA_BUSY",
    "CODE_MISSING",
    "DRIVER_ERROR",
    "HAS_ENTRIES",
    "OUT_OF_MEMORY",
    "SIMT_FAULT",
    "native",
    "require_native",
]

if TYPE_CHECKING:
    from tcsym.runtime import _native as native
else:
    try:
        from tcsym.runtime import _native as native
    except ImportError:
        from tcsym.runtime import without_native as native

HAS_ENTRIES = hasattr(native, "Entry")
ARENA_BUSY, OUT_OF_MEMORY = native.ARENA_BUSY, native.OUT_OF_MEMORY
CODE_MISSING, SIMT_FAULT = native.CODE_MISSING, native.SIMT_FAULT
DRIVER_ERROR = getattr(native, "DRIVER_ERROR", 0)  # devices need the native part


def require_native(target: str) -> None:
    """TargetError where the target of that name needs what was not built."""
    if not HAS_ENTRIES:
        from tcsym.errors import TargetError  # a warm process does not load it

        raise TargetError(
            f"target `{target}` needs the native part of the run time",
            hint="install tcsym where there is a C compiler; `tcsym doctor` says more",
        )
