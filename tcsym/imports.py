"""Compiled modules of tcsym in one file, beside Python's: hundreds of them are imported sooner.

Python lists directories, opens, reads and checks one file for each module, 0.15 ms each. A process
that compiles a kernel imports 270: that was a quarter of its time. So the first such process of an
installation copies what lies in `__pycache__` into one file there, which later ones map.

An entry serves while its source has the time and the length it was compiled from, as Python's own
files do. All else (another Python, changed or new sources, directories that cannot be written) is
left to Python's finder.
"""

from __future__ import annotations

import marshal
import mmap
import os
import sys
from contextlib import suppress
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import CodeType
from typing import Any

ROOT = os.path.dirname(__file__)
_HEADER_BYTES = 16  # of Python's files: magic number, flags, time and length of the source
_KINDS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)

# Module -> source below the root, its `__cached__`, whether a package, time and length, place.
Entry = tuple[str, str, bool, int, int, int, int]


class Finder(FileFinder):
    """Of one directory: modules in the file are made from there, others as ever."""

    missed = False  # True if some module of any directory was not in the file

    def __init__(self, directory: str, entries: dict[str, Entry], code: memoryview) -> None:
        super().__init__(directory, *_KINDS)
        self._entries = entries
        self._code = code

    def find_spec(self, fullname: str, target: Any = None) -> ModuleSpec | None:
        entry = self._entries.get(fullname)
        if entry is None or not _is_of(entry):
            Finder.missed = True
            return super().find_spec(fullname, target)
        file, cached, is_package, _, _, start, end = entry
        path = os.path.join(ROOT, file)
        loader = Loader(fullname, path, self._code[start:end])
        spec = ModuleSpec(fullname, loader, origin=path, is_package=is_package)
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(path)]
        spec.has_location = True
        spec.cached = os.path.join(ROOT, cached)
        return spec


class Loader(SourceFileLoader):
    """Of one module in the file."""

    def __init__(self, fullname: str, path: str, code: memoryview) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            made: CodeType = marshal.loads(self._code)
        except (EOFError, TypeError, ValueError):
            return super().get_code(fullname)
        return made


def _is_of(entry: Entry) -> bool:
    """The source is the one that was compiled."""
    try:
        found = os.stat(os.path.join(ROOT, entry[0]))
    except OSError:
        return False
    return (int(found.st_mtime), found.st_size) == entry[3:5]


def _path() -> str:
    """Beside the compiled file of this module; the name says of which Python."""
    return f"{(__spec__ and __spec__.cached) or __file__}-all"


def install() -> None:
    """From now on modules of tcsym come from the file, if there is one."""
    found = _mapped()
    Finder.missed = found is None
    if found is None:
        return
    entries, code = found
    for directory in {os.path.dirname(os.path.join(ROOT, entry[0])) for entry in entries.values()}:
        sys.path_importer_cache[directory] = Finder(directory, entries, code)


def _mapped() -> tuple[dict[str, Entry], memoryview] | None:
    try:
        with open(_path(), "rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        n = int.from_bytes(content[:8], "little")
        made_by, root, entries = marshal.loads(content[8 : 8 + n])
    except (OSError, EOFError, TypeError, ValueError, NotImplementedError):
        return None
    return (entries, content[8 + n :]) if (made_by, root) == (sys.version, ROOT) else None


def renew() -> None:
    """Write the file afresh, of all modules that Python has compiled. Nothing if it may not."""
    from importlib.util import cache_from_source

    if not os.access(os.path.dirname(_path()), os.W_OK):
        return
    entries, parts, size = dict[str, Entry](), list[bytes](), 0
    for directory, _, files in os.walk(ROOT):
        for name in (n for n in files if n.endswith(".py")):
            source = os.path.join(directory, name)
            compiled = cache_from_source(source)
            code = _compiled(source, compiled)
            if code is not None:
                module = _module_name(source)
                file, cached = os.path.relpath(source, ROOT), os.path.relpath(compiled, ROOT)
                about = os.stat(source)
                place = int(about.st_mtime), about.st_size, size, size + len(code)
                entries[module] = (file, cached, name == "__init__.py", *place)
                parts.append(code)
                size += len(code)
    index = marshal.dumps((sys.version, ROOT, entries))
    _write(b"".join((len(index).to_bytes(8, "little"), index, *parts)))
    Finder.missed = False


def _module_name(source: str) -> str:
    parts = os.path.relpath(source, os.path.dirname(ROOT)).removesuffix(".py").split(os.sep)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _compiled(source: str, compiled: str) -> bytes | None:
    """What Python made of this source as it is now, if it did."""
    from importlib.util import MAGIC_NUMBER

    try:
        about = os.stat(source)
        with open(compiled, "rb") as file:
            content = file.read()
    except OSError:
        return None
    of = (int(about.st_mtime) & 0xFFFFFFFF, about.st_size & 0xFFFFFFFF)
    header = b"".join((MAGIC_NUMBER, bytes(4), *(n.to_bytes(4, "little") for n in of)))
    if not content.startswith(header):
        return None
    code: CodeType = marshal.loads(content[_HEADER_BYTES:])
    return marshal.dumps(code if code.co_filename == source else _named(code, source))


def _named(code: CodeType, source: str) -> CodeType:
    """`code` that says it is of this file: it may have been compiled under another name."""
    constants = [_named(c, source) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.replace(co_filename=source, co_consts=tuple(constants))


def _write(content: bytes) -> None:
    """At once for all readers: those that map the old file keep that."""
    own = f"{_path()}.{os.getpid()}"
    try:
        with open(own, "xb") as file:
            file.write(content)
        os.replace(own, _path())
    except OSError:  # a full disk, say
        with suppress(OSError):
            os.unlink(own)
