# SPDX-License-Identifier: Apache-2.0
"""Programs that run as on another system: what is asked of the system is made up.

numpy, LLVM and the C library are those of this one. A fake macOS translates what it is told.
"""

from __future__ import annotations

import subprocess
import sys

_BEGIN = """
import ctypes, os, sys
import numpy as np
import llvmlite.binding  # reads the name of the system
given = os.uname()
given = os.uname_result((*given[:4], {machine!r}))
os.uname = lambda: given
sys.platform = {platform!r}
"""
REFUSING = """
from tcsym.runtime import loader, memory
def refuse(*_, **__):
    raise AssertionError("machine code on another system")
loader.load_object = loader.load_archive = refuse
memory.Memory.__init__ = refuse
"""
_MACOS = """
FACTS = {
    "machdep.cpu.brand_string": b"Apple M1\\0", "hw.cpufamily": bytes([1, 2, 3, 4]),
    "hw.perflevel0.physicalcpu": bytes([4, 0, 0, 0]),
    "hw.perflevel0.cpusperl2": bytes([4, 0, 0, 0]),
    "hw.optional.arm.FEAT_DotProd": bytes([1, 0, 0, 0]),
    "hw.optional.arm.FEAT_I8MM": bytes([0, 0, 0, 0]),
    "hw.perflevel0.l1dcachesize": (128 << 10).to_bytes(8, "little"),
    "hw.perflevel0.l2cachesize": (12 << 20).to_bytes(8, "little"),
} if os.uname().machine == "arm64" else {}
class Mapping:
    def __call__(self, at, size, protection, flags, *others):
        assert flags == 0x1002, flags
        own = Real(None).mmap
        own.restype, own.argtypes = self.restype, self.argtypes
        return own(at, size, protection, 0x22, *others)
Real, cleared = ctypes.CDLL, []
class Fake(Real):
    def __init__(self, *given, **how):
        super().__init__(*given, **how)
        self.mmap = Mapping()
    def sysctlbyname(self, name, value, size, new, new_size):
        found = FACTS.get(name.decode())
        if found is None:
            return -1
        value.raw, size._obj.value = found.ljust(len(value)), len(found)
        return 0
    def sys_icache_invalidate(self, at, size):
        cleared.append(size.value)
        Real("libgcc_s.so.1")["__clear_cache"](at, ctypes.c_void_p(at.value + size.value))
ctypes.CDLL = Fake
"""


def told(code: str, machine: str, platform: str) -> subprocess.CompletedProcess[str]:
    """What such a program says."""
    script = _BEGIN.format(machine=machine, platform=platform)
    script += (_MACOS if platform == "darwin" else "") + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
