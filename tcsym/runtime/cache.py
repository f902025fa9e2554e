# SPDX-License-Identifier: Apache-2.0
"""Key -> (manifest, object code) on disk: generated code survives the process.

One file an entry, `<directory>/code/<key>.tco`: magic, BLAKE2 checksum of the rest, length of the
manifest, manifest, object code. Files appear whole (temporary file, then rename); whatever does not
verify is a miss and is removed. The directory and its files are this user's alone
(`runtime.private`), because code is loaded from them. Any failure of the file system means working
without the cache, with one warning.

A manifest is JSON data, written by `marshal`: importing json takes 5 ms. Marshal trusts its input,
so it sees nothing that the checksum has not passed.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tcsym.process.config import CACHE, CACHE_DIR
from tcsym.process.system import runs_code
from tcsym.runtime.digest import digest
from tcsym.runtime.private import PrivateDirectory, UnsafeFileError

if TYPE_CHECKING:
    from tcsym.ir.compiled import Compiled

MAX_BYTES = 512 * 2**20
MARSHAL = 4  # the form that every Python since 3.4 reads
_MAGIC = b"TCSYM2\r\n"
_HEADER = struct.Struct("<8s32sI")
_SUFFIX, _TEMPORARY = ".tco", ".tmp-"
_STORES_BETWEEN_PRUNES = 64
_STALE_SECONDS = 3600.0
_warned: list[str] = []


class CacheEntry:
    """A file of the cache; `manifest` is {} for a damaged one."""

    def __init__(self, key: str, size: int, last_used: float, manifest: dict[str, Any]) -> None:
        self.key = key
        self.bytes = size
        self.last_used = last_used
        self.manifest = manifest


class CodeCache:
    """The cache in one directory; `directory` None: no cache, and `trouble` says why."""

    def __init__(
        self, directory: str | None, max_bytes: int = MAX_BYTES, trouble: str = ""
    ) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.trouble = trouble
        self._place = PrivateDirectory(directory or "")
        self._stores = 0

    @staticmethod
    def default() -> CodeCache:
        """The user's cache, by TCSYM_CACHE_DIR and TCSYM_CACHE (0: none)."""
        return _cache_at(CACHE_DIR.read(), CACHE.read())

    # ---- variants

    def load(self, key: str) -> Compiled | None:
        """None if absent, or not what `store` writes."""
        entry = self.read(key)
        if entry is None:
            return None
        from tcsym.ir.compiled import SYMBOL, Compiled  # a warm process may never need it
        from tcsym.runtime.loader import LoadError, defined_names

        manifest, code = entry
        try:
            if SYMBOL not in defined_names(code):
                raise LoadError(f"the object does not define `{SYMBOL}`")
            return Compiled.from_manifest(manifest["compiled"], code)
        except (LookupError, TypeError, ValueError):
            self.remove(key)
            return None

    def store(self, key: str, compiled: Compiled, about: Mapping[str, str] | None = None) -> None:
        """`about` is shown to people only (`tcsym cache list`)."""
        manifest = {**(about or {}), "compiled": compiled.manifest()}
        self.write(key, manifest, compiled.object_code)

    # ---- any manifest with bytes

    def read(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """The verified entry, marked as used now; None if absent or damaged."""
        if self.directory is None:
            return None
        try:
            entry = _decode(key, self._place.read(f"{key}{_SUFFIX}"))
        except FileNotFoundError:
            return None
        except UnsafeFileError:
            entry = None
        except OSError as e:
            _warn(f"cannot read the code cache: {e}")
            return None
        if entry is None:
            self.remove(key)
        return entry

    def write(self, key: str, manifest: Mapping[str, Any], code: bytes) -> None:
        if self.directory is None:
            return
        temporary = f"{_TEMPORARY}{os.getpid()}-{os.urandom(6).hex()}"
        try:
            self._place.write(f"{key}{_SUFFIX}", _encode(key, manifest, code), temporary)
        except OSError as e:
            _warn(f"cannot write the code cache, going on without: {e}")
            return
        if self._stores % _STORES_BETWEEN_PRUNES == 0:
            self.prune(self.max_bytes)
        self._stores += 1

    def remove(self, key: str) -> None:
        """An entry that serves nobody."""
        self._unlink(f"{key}{_SUFFIX}")

    # ---- management

    def entries(self) -> tuple[CacheEntry, ...]:
        """All entries, the last used first."""
        found = []
        for name, status in self._files():
            key = name.removesuffix(_SUFFIX)
            try:
                entry = _decode(key, self._place.read(name, mark=False))
            except UnsafeFileError:
                entry = None
            except OSError:  # another process removed it
                continue
            manifest = entry[0] if entry else {}
            found.append(CacheEntry(key, status.st_size, status.st_mtime, manifest))
        return tuple(sorted(found, key=lambda e: -e.last_used))

    def total_bytes(self) -> int:
        return sum(status.st_size for _, status in self._files())

    def prune(self, max_bytes: int) -> int:
        """Removes the longest unused entries beyond `max_bytes`; returns how many."""
        files = sorted(self._files(), key=lambda f: f[1].st_mtime)
        excess = sum(status.st_size for _, status in files) - max_bytes
        removed = 0
        for name, status in files:
            if excess <= 0:
                break
            removed += self._unlink(name)
            excess -= status.st_size
        self._remove_stale()
        return removed

    def clear(self) -> int:
        return self.prune(-1)

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        for name in self._names():
            if name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):  # another process removed it
                    yield name, self._place.status(name)

    def _names(self) -> list[str]:
        try:
            return [] if self.directory is None else self._place.names()
        except OSError:
            return []

    def _remove_stale(self) -> None:
        """Temporary files of processes that were killed while writing."""
        for name in self._names():
            if name.startswith(_TEMPORARY):
                with contextlib.suppress(OSError):
                    if time.time() - self._place.status(name).st_mtime > _STALE_SECONDS:
                        self._place.remove(name)

    def _unlink(self, name: str) -> bool:
        try:
            self._place.remove(name)
        except OSError:
            return False
        return True


def _encode(key: str, manifest: Mapping[str, Any], code: bytes) -> bytes:
    text = marshal.dumps({**manifest, "key": key}, MARSHAL)
    body = struct.pack("<I", len(text)) + text + code
    return _MAGIC + digest(body) + body


def _decode(key: str, content: bytes) -> tuple[dict[str, Any], bytes] | None:
    if len(content) < _HEADER.size:
        return None
    magic, checksum, length = _HEADER.unpack_from(content)
    body = content[_HEADER.size - 4 :]
    if magic != _MAGIC or digest(body) != checksum:
        return None
    start = _HEADER.size
    try:
        manifest = marshal.loads(content[start : start + length])
    except (EOFError, TypeError, ValueError):
        return None
    if not isinstance(manifest, dict) or manifest.get("key") != key:
        return None
    return manifest, content[start + length :]


@lru_cache(None)
def _cache_at(directory: str | None, enabled: bool) -> CodeCache:
    if not enabled:
        return CodeCache(None, trouble="switched off by TCSYM_CACHE")
    if not runs_code():
        return CodeCache(None, trouble="no code runs on this system")
    try:
        return CodeCache(kept_directory(directory, "code", discard=_is_ours).path)
    except OSError as e:
        _warn(f"no code cache, every process compiles anew: {e}")
        return CodeCache(None, trouble=str(e))


def _is_ours(name: str) -> bool:
    return name.endswith(_SUFFIX) or name.startswith(_TEMPORARY)


def kept_directory(
    base: str | None, name: str, discard: Callable[[str], bool] | None = None
) -> PrivateDirectory:
    """The directory for one kind of what is kept, by TCSYM_CACHE_DIR (None: it is not set)."""
    owns_base = base is None
    base = user_directory() if base is None else base
    return PrivateDirectory.made(base, name, owns_base=owns_base, discard=discard)


def user_directory() -> str:
    """By the XDG Base Directory Specification."""
    path = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
    if not os.path.isabs(path):
        raise OSError("there is no home directory (set TCSYM_CACHE_DIR)")
    return os.path.join(path, "tcsym")


def options_state() -> tuple[int, ...]:
    """What changes when the user's store of tuned options is written; () without one."""
    try:
        path = os.path.join(CACHE_DIR.read() or user_directory(), "options", "options.db")
        return (os.stat(path).st_mtime_ns, *_log_state(f"{path}-wal"))
    except OSError:
        return ()


def _log_state(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size


def _warn(text: str) -> None:
    """Logs the first trouble of the process only."""
    if not _warned:
        import logging

        _warned.append(text)
        logging.getLogger("tcsym.cache").warning(text)
