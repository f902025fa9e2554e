"""Key -> (manifest, object code) on disk: generated code survives the process.

One file an entry, `<directory>/code/<key>.tco`: magic, BLAKE2 checksum of the rest, length of the
manifest, manifest, object code. Files appear whole (temporary file, then rename); whatever does not
verify is a miss and is removed. The directory is private to the user (0700), because code is loaded
from it. Any failure of the file system means working without the cache, with one warning.

A manifest is JSON data, written by `marshal`: importing json takes 5 ms. Marshal trusts its input,
so it sees nothing that the checksum has not passed.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import struct
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tcsym.config import CACHE, CACHE_DIR
from tcsym.digest import digest, hexdigest
from tcsym.packages import installed

if TYPE_CHECKING:
    from tcsym.compiled import Compiled
    from tcsym.context import Context
    from tcsym.options import Options
    from tcsym.target import Target

MAX_BYTES = 512 * 2**20
MARSHAL = 4  # the form that every Python since 3.4 reads
_MAGIC = b"TCSYM2\r\n"
_HEADER = struct.Struct("<8s32sI")
_SUFFIX, _TEMPORARY = ".tco", ".tmp-"
_STORES_BETWEEN_PRUNES = 64
_STALE_SECONDS = 3600.0
_SOURCES = (".py", ".ll", ".o", ".json")
# Above the compiler in the import contract: they use its code and do not shape it.
_ABOVE = frozenset({"runtime", "dispatch", "tuning", "library", "autotune_cache"})
_warned: list[str] = []


class CacheEntry:
    """A file of the cache; `manifest` is {} for a damaged one."""

    def __init__(self, key: str, size: int, last_used: float, manifest: dict[str, Any]) -> None:
        self.key = key
        self.bytes = size
        self.last_used = last_used
        self.manifest = manifest


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
    """Versions of everything that shapes generated code, with the state of the compiler's sources.

    Size and time of a source stand for what is in it, as they do for Python's own compiled files.
    """
    return _versions()[0]


def whole_version() -> str:
    """As `compiler_version`, of everything that a call passes through."""
    return _versions()[1]


@lru_cache(None)
def _versions() -> tuple[str, str]:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    compiler: list[str] = []
    above: list[str] = []

    def note(directory: str, found: list[str]) -> None:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(_SOURCES):
                    if not name.startswith("cli"):
                        place, status = entry.path[len(package) :], entry.stat()
                        found.append(f"{place} {status.st_size} {status.st_mtime_ns}")
                elif name != "__pycache__" and entry.is_dir():
                    note(entry.path, above if name in _ABOVE else found)

    note(package, compiler)
    versions = " ".join([installed(name) for name in ("tcsym", "llvmlite", "islpy")])
    states = ["\n".join(sorted(found)) for found in (compiler, compiler + above)]
    first, second = [f"{versions} {hexdigest(state.encode())}" for state in states]
    return first, second


class CodeCache:
    """The cache in one directory; `directory` None: no cache."""

    def __init__(self, directory: str | None, max_bytes: int = MAX_BYTES) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self._stores = 0

    @staticmethod
    def default() -> CodeCache:
        """The user's cache, by TCSYM_CACHE_DIR and TCSYM_CACHE (0: none)."""
        return _cache_at(CACHE_DIR.read(), CACHE.read())

    # ---- variants

    def load(self, key: str) -> Compiled | None:
        entry = self.read(key)
        if entry is None:
            return None
        from tcsym.compiled import Compiled  # a warm process may never need it

        manifest, code = entry
        try:
            return Compiled.from_manifest(manifest["compiled"], code)
        except (KeyError, TypeError, ValueError):
            self._remove(key)
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
        path = self._path(key)
        try:
            content = _content(path)
        except FileNotFoundError:
            return None
        except OSError as e:
            _warn(f"cannot read the code cache: {e}")
            return None
        entry = _decode(key, content)
        if entry is None:
            self._remove(key)
            return None
        with contextlib.suppress(OSError):  # a cache that cannot be written is good to read
            os.utime(path)
        return entry

    def write(self, key: str, manifest: Mapping[str, Any], code: bytes) -> None:
        if self.directory is None:
            return
        name = f"{_TEMPORARY}{os.getpid()}-{os.urandom(6).hex()}"
        temporary = os.path.join(self.directory, name)
        try:
            with open(temporary, "wb") as file:
                file.write(_encode(key, manifest, code))
            os.replace(temporary, self._path(key))
        except OSError as e:
            _warn(f"cannot write the code cache, going on without: {e}")
            _unlink(temporary)
            return
        if self._stores % _STORES_BETWEEN_PRUNES == 0:
            self.prune(self.max_bytes)
        self._stores += 1

    # ---- management

    def entries(self) -> tuple[CacheEntry, ...]:
        """All entries, the last used first."""
        found = []
        for path, status in self._files():
            key = os.path.basename(path).removesuffix(_SUFFIX)
            try:
                entry = _decode(key, _content(path))
            except OSError:
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
        for path, status in files:
            if excess <= 0:
                break
            removed += _unlink(path)
            excess -= status.st_size
        self._remove_stale()
        return removed

    def clear(self) -> int:
        return self.prune(-1)

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        for name in self._names():
            if name.endswith(_SUFFIX):
                path = self._path(name.removesuffix(_SUFFIX))
                with contextlib.suppress(OSError):  # another process removed it
                    yield path, os.stat(path)

    def _names(self) -> list[str]:
        try:
            return [] if self.directory is None else os.listdir(self.directory)
        except OSError:
            return []

    def _remove_stale(self) -> None:
        """Temporary files of processes that were killed while writing."""
        for name in self._names():
            if name.startswith(_TEMPORARY):
                path = os.path.join(self.directory or "", name)
                with contextlib.suppress(OSError):
                    if time.time() - os.stat(path).st_mtime > _STALE_SECONDS:
                        os.unlink(path)

    def _path(self, key: str) -> str:
        assert self.directory is not None
        return os.path.join(self.directory, f"{key}{_SUFFIX}")

    def _remove(self, key: str) -> None:
        _unlink(self._path(key))


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
    manifest = marshal.loads(content[start : start + length])
    if not isinstance(manifest, dict) or manifest.get("key") != key:
        return None
    return manifest, content[start + length :]


def _content(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


@lru_cache(None)
def _cache_at(directory: str | None, enabled: bool) -> CodeCache:
    if not enabled:
        return CodeCache(None)
    try:
        return CodeCache(private_directory(directory or user_directory(), "code"))
    except OSError as e:
        _warn(f"no code cache: {e}")
        return CodeCache(None)


def user_directory() -> str:
    """By the XDG Base Directory Specification."""
    path = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
    if not os.path.isabs(path):
        raise OSError("there is no home directory (set TCSYM_CACHE_DIR)")
    return os.path.join(path, "tcsym")


def private_directory(base: str, name: str) -> str:
    """`base`/`name`, made if it is not there, owned by this user and open to nobody else."""
    path = os.path.join(os.path.abspath(base), name)
    os.makedirs(path, mode=0o700, exist_ok=True)
    status = os.stat(path)
    if status.st_uid != os.geteuid():
        raise OSError(f"{path} belongs to another user")
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)
    return path


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
