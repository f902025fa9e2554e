# SPDX-License-Identifier: Apache-2.0
"""What generated code depends on besides its program: part of all keys of what is kept.

The contents of the sources count, not their times, which builds may set. Reading all of them takes
20 ms. So their digests are kept in the code cache, under a key of what changes when a file does:
its length, its times (nobody can set the one of its last change), its inode, and of an installed
wheel also RECORD, which has the digests of all files: some file systems have no such times.
"""

from __future__ import annotations

import marshal
import os
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from tcsym.runtime.cache import CodeCache
from tcsym.runtime.digest import hexdigest
from tcsym.runtime.packages import installed, record

if TYPE_CHECKING:
    from tcsym.options import Options
    from tcsym.sizes.context import Context
    from tcsym.target.target import Target

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SOURCES = (".py", ".c", ".h", ".json")
# Above the compiler in the import contract: they use its code and do not shape it.
_ABOVE = frozenset(
    {"native", "runtime", "dispatch", "tuning", "kernel", "library", "autotune_cache"}
)
_NEVER = frozenset({"__pycache__", "cli"})  # no part of a call
_MARSHAL = 2  # equal data are equal bytes; later forms tell whether an object is used twice
_SETTLED_SECONDS = 2.0  # a file may change twice within one tick of the clock that stamps it


def code_key(
    program: str,
    target: Target,
    options: Options,
    fixed: Mapping[str, int],
    layouts: tuple[str, ...],
    context: Context = (),
) -> str:
    """Key of one variant. `program`: any text that determines the def, with its positions."""
    sizes = sorted(fixed.items())
    facts = (compiler_version(), program, target, options, sizes, layouts, context)
    return hexdigest(repr(facts).encode())


def compiler_version() -> str:
    """Versions of all that shapes generated code, with a digest of the compiler's sources."""
    return _versions()[0]


def whole_version() -> str:
    """As `compiler_version`, of everything that a call passes through."""
    return _versions()[1]


@lru_cache(None)
def _versions() -> tuple[str, str]:
    versions = " ".join([installed(name) for name in ("tcsym", "llvmlite", "islpy")])
    first, second = _digests()
    return f"{versions} {first}", f"{versions} {second}"


def _digests() -> tuple[str, str]:
    """Of the compiler's sources, and of these with all others."""
    files = list(_files(ROOT))
    states = [(f.path, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for f, s in files]
    wheel = record(os.path.dirname(ROOT), installed("tcsym"))
    key = hexdigest(marshal.dumps((states, wheel), _MARSHAL))
    cache = CodeCache.default()
    found = cache.read(key)
    kept = [] if found is None else found[1].decode("ascii", "replace").split()
    if len(kept) == 2:
        return kept[0], kept[1]
    first, second = _read_digests(sorted(file.path for file, _ in files))
    if max(status.st_ctime for _, status in files) + _SETTLED_SECONDS < time.time():
        cache.write(key, {"what": "digests of tcsym's sources"}, f"{first} {second}".encode())
    return first, second


def _files(directory: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(_SOURCES):
                yield entry, entry.stat()
            elif name not in _NEVER and entry.is_dir():
                yield from _files(entry.path)


def _read_digests(paths: list[str]) -> tuple[str, str]:
    compiler: list[str] = []
    above: list[str] = []
    for path in paths:
        place = os.path.relpath(path, ROOT)
        with open(path, "rb", buffering=0) as file:
            line = f"{place} {hexdigest(file.readall())}"
        (above if _ABOVE.intersection(place.split(os.sep)[:-1]) else compiler).append(line)
    first, second = [hexdigest("\n".join(x).encode()) for x in (compiler, compiler + above)]
    return first, second
