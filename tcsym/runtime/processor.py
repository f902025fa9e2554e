# SPDX-License-Identifier: Apache-2.0
"""This machine's processor as LLVM sees it, from the code cache: LLVM need not be loaded to ask."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from tcsym.process.system import is_macos, macos_fact, processors
from tcsym.runtime.cache import CodeCache
from tcsym.runtime.digest import hexdigest
from tcsym.runtime.versions import compiler_version

if TYPE_CHECKING:
    from tcsym.target.host import Processor

_TELLING = (  # of x86-64, and of AArch64
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)

_WHAT = "processor"


@lru_cache(None)
def known_processor() -> Processor:
    """As `target.host.processor`, without LLVM if it was asked before on such a machine."""
    from tcsym.target.host import Processor, processor

    marks = processor_marks()
    if not marks:
        return processor()
    text = f"{_WHAT} {processors()} {compiler_version()}\n{marks}"  # emulated ones have these marks
    key = hexdigest(text.encode())
    cache = CodeCache.default()
    found = cache.read(key)
    if found is not None:
        with suppress(ValueError):  # not what is written below
            text = found[1].decode("ascii")
            what, name, *features = text.split(" ")
            if text.isprintable() and what == _WHAT:
                return Processor(name, frozenset(features))
    here = processor()
    words = _WHAT, here.name, *sorted(here.features)
    cache.write(key, {"what": _WHAT}, " ".join(words).encode())
    return here


def processor_marks() -> str:
    """What the system says about the first processor; "" if it says nothing."""
    if is_macos():  # macOS: never run
        facts = macos_fact("machdep.cpu.brand_string").rstrip(b"\0"), macos_fact("hw.cpufamily")
        return f"{facts[0].decode()}\t{facts[1].hex()}" if all(facts) else ""
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            first = file.read(8192).decode().partition("\n\n")[0]  # all of it takes milliseconds
    except (OSError, UnicodeDecodeError):
        return ""
    lines = [line for line in first.splitlines() if line.partition("\t")[0] in _TELLING]
    return "\n".join(lines) if "flags" in first or "Features" in first else ""
