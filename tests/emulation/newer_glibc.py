# SPDX-License-Identifier: Apache-2.0
"""Symbols of C library 2.38 for the emulator's module, where the C library is older.

The module was linked against a newer one and uses two of its functions under their new names.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

_SOURCE = """
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
unsigned long long __isoc23_strtoull(const char *s, char **end, int base) {
    return strtoull(s, end, base);
}
int __isoc23_sscanf(const char *s, const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    int n = vsscanf(s, format, rest);
    va_end(rest);
    return n;
}
"""


@lru_cache(None)
def provide_newer_symbols() -> None:
    """Loads the missing functions for all later modules; needs a C compiler then."""
    if hasattr(ctypes.CDLL(None), "__isoc23_strtoull"):
        return
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "newer.c"), Path(folder, "newer.so")
        source.write_text(_SOURCE)
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
        subprocess.run(command, check=True, capture_output=True)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
