# SPDX-License-Identifier: Apache-2.0
"""`tcsym doctor`: what was found on this machine, what is missing and how to get it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from shutil import which

import click
from msgspec import Struct, to_builtins

from tcsym.cli.output import byte_text, json_option, print_json, print_table
from tcsym.errors import TargetError, TCError
from tcsym.process.config import CACHE, CACHE_DIR, OPTIONS, VARIABLES
from tcsym.process.system import KNOWN, runs_code

_REQUIRED = ("numpy", "ml_dtypes", "islpy", "lark", "llvmlite", "msgspec", "click", "rich")
_OPTIONAL = (("torch", "pip install tcsym[torch]"), ("jax", "pip install tcsym[jax]"))


class Finding(Struct, frozen=True):
    """One line of the report. `good` None: neither good nor bad."""

    name: str
    value: str
    good: bool | None = None
    hint: str = ""


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """What was found on this machine, what is missing and how to get it.

    \b
    Example: tcsym doctor
    """
    findings = list(examine())
    if as_json:
        print_json([to_builtins(f) for f in findings])
    else:
        marks = {True: "ok", False: "MISSING", None: ""}
        rows = [
            (f.name, marks[f.good], f"{f.value}  ({f.hint})" if f.hint else f.value)
            for f in findings
        ]
        print_table(("what", "", "found"), rows)
    if any(f.good is False for f in findings):
        raise click.exceptions.Exit(1)


def examine() -> Iterator[Finding]:
    """All findings, in the order of the report. One that fails reports its failure."""
    for part in _PARTS:
        try:
            yield from part()
        except (TCError, ImportError, OSError) as error:
            yield Finding(part.__name__.strip("_"), str(error), False)


def _python() -> Iterator[Finding]:
    from tcsym import __version__

    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("tcsym", __version__)
    yield Finding("python", f"{python} at {sys.executable}", sys.version_info >= (3, 11))
    is_supported = runs_code()
    hint = "" if is_supported else f"kernels run on {KNOWN} only"
    yield Finding("system", f"{platform.system()} {platform.machine()}", is_supported, hint)


def _packages() -> Iterator[Finding]:
    for name in _REQUIRED:
        found = _version(name)
        yield Finding(name, found or "", bool(found), "" if found else f"pip install {name}")
    for name, how in _OPTIONAL:
        found = _version(name)
        yield Finding(name, found or "not installed", None, "" if found else how)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _compiler() -> Iterator[Finding]:
    from tcsym.runtime.native import HAS_ENTRIES
    from tcsym.target.llvm import version as llvm_version

    yield Finding("LLVM", ".".join(map(str, llvm_version())), True)
    hint = (
        ""
        if HAS_ENTRIES
        else "install a C compiler, then tcsym again: calls are slow, on one thread"
    )
    yield Finding("native calls", "yes" if HAS_ENTRIES else "not built", HAS_ENTRIES or None, hint)


def _processor() -> Iterator[Finding]:
    from tcsym.target.host import processor
    from tcsym.target.names import resolve_target

    target = resolve_target("cpu")
    bits = target.machine.vector_bits
    vectors = f"{bits} bits" if bits else "none"
    yield Finding("processor", target.cpu)
    yield Finding("vectors", vectors)
    *own, last = [byte_text(level.bytes) for level in target.machine.levels]
    yield Finding("caches", f"{', '.join(own)} a core, {last} shared")
    yield Finding("features", " ".join(sorted(processor().features)))


def _threads() -> Iterator[Finding]:
    from tcsym.process.threads import available_cores, get_num_threads
    from tcsym.runtime.pool import loaded_openmp

    yield Finding("threads", f"{get_num_threads()} of {available_cores()} available cores")
    yield Finding("OpenMP", loaded_openmp() or "none loaded here: own threads are used")


def _caches() -> Iterator[Finding]:
    from tcsym.runtime.cache import CodeCache

    cache = CodeCache.default()
    if cache.directory is None:
        yield Finding("code cache", f"none: {cache.trouble}", False if CACHE.read() else None)
    else:
        entries, size = cache.entries(), byte_text(cache.total_bytes())
        yield Finding("code cache", f"{len(entries)} entries, {size}, in {cache.directory}", True)


def _options() -> Iterator[Finding]:
    from tcsym.tuning.database import Database
    from tcsym.tuning.rows import Tuned

    if not OPTIONS.read():
        yield Finding("tuned options", "none: switched off by TCSYM_OPTIONS")
        return
    try:
        database = Database.opened(CACHE_DIR.read())
    except OSError as error:
        yield Finding("tuned options", f"the user's are not used: {error}", False)
        return
    n = len(database.select(Tuned))
    yield Finding("tuned options", f"{n} programs of the user, in {database.directory}", True)


def _cuda() -> Iterator[Finding]:
    """Whether target `cuda` can run here. Neither good nor bad: nobody needs a device."""
    from tcsym.target.devices import kind_here, names

    found = _version("pycuda")
    yield Finding("pycuda", found or "not installed: tcsym calls the driver itself", None)
    try:
        kind = kind_here()
        devices = ", ".join(names())
        yield Finding("CUDA devices", f"{devices}: code for {kind.name}", True)
    except TargetError as error:
        yield Finding("CUDA devices", f"none: {error.message}", None, error.hint)
    assembler = which("ptxas")
    how = 'with CUDA\'s toolkit; only `explain("sass")` needs it: the driver translates kernels'
    yield Finding("ptxas", assembler or "not found", None, "" if assembler else f"it comes {how}")


def _variables() -> Iterator[Finding]:
    for variable in VARIABLES:
        value = variable.read()
        yield Finding(variable.name, "not set" if value is None else str(value))


_PARTS = (
    _python,
    _packages,
    _compiler,
    _processor,
    _threads,
    _caches,
    _options,
    _cuda,
    _variables,
)
