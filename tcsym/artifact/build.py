"""Compiled levels of a kernel -> a folder: shared library, C header, manifest.

The system's C compiler links. Symbols of all but the ways in are local, so several artifacts go
into one program.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path

from tcsym.artifact.c_text import filling, first_failing, holding, numbers, string
from tcsym.artifact.codes import Level, default_targets, levels_of
from tcsym.artifact.device_text import HEADER, launch_rules, tables, write_files
from tcsym.artifact.errors import CODES, FORMAT, MANIFEST
from tcsym.artifact.tools import compiler, ran, tool
from tcsym.dispatch.table import Table
from tcsym.errors import OptionError, TargetError
from tcsym.frontend.program import Tensor
from tcsym.index.expr import TRUE, ZERO, Condition, all_of, eq, ge, mod, var
from tcsym.index.text import condition_text
from tcsym.ir.archive import SYMBOL, members
from tcsym.ir.compiled import CONTEXT_FIELDS, Fault
from tcsym.options import Options
from tcsym.runtime.entry_image import all_dense, entry_image
from tcsym.runtime.plan import CallPlan
from tcsym.strategy import Strategy, Symbolic
from tcsym.target.target import Target
from tcsym.types import DType

_WRITTEN = {"output": " (written)", "inout": " (updated)"}
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLPack's types, by numpy's kinds


def export(
    path: str | PathLike[str],
    plan: CallPlan,
    target: Target | str | None,
    options: Options,
    bounds: Mapping[str, int],
    targets: Sequence[str] | None,
    strategy: Strategy = Symbolic(),  # noqa: B008 (frozen)
    table: Table | None = None,
) -> Path:
    """Writes the folder; it appears whole or not at all.

    strategy, table: which versions there are, see `levels_of`.
    Errors: OptionError if something is there that is no artifact, or for unknown targets;
    TargetError without a C compiler.
    """
    folder = Path(path)
    if folder.exists() and not (folder / MANIFEST).is_file() and any(folder.iterdir()):
        raise OptionError(f"`{folder}` is there, and no artifact", hint="give another folder")
    wanted = targets or default_targets(target)
    levels = levels_of(plan, options, wanted, strategy, table)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as made:
        new = Path(made) / "new"
        new.mkdir()
        _Artifact(plan, levels, bounds, new).write()
        if folder.exists():
            folder.rename(Path(made) / "old")
        new.rename(folder)
    return folder


class _Artifact:
    """One being written."""

    def __init__(
        self, plan: CallPlan, levels: Sequence[Level], bounds: Mapping[str, int], folder: Path
    ) -> None:
        self.plan = plan
        self.name = plan.program.name
        self.levels = [level for level in levels if not level.is_device]
        self.devices = [level for level in levels if level.is_device]
        self.files: list[tuple[tuple[str, ...], ...]] = []  # of each device's versions
        self.bounds = bounds
        self.folder = folder
        self.tensors = (*plan.program.inputs, *plan.program.outputs)

        self.checks = [*_promised(plan)]
        self.checks += [(c.condition, c.kind, c.message) for c in plan.program.checks]

    def write(self) -> None:
        self.files = [write_files(level, self.folder, self.name) for level in self.devices]
        template = files("tcsym.artifact").joinpath("entry.c").read_text()
        template = template.replace("@CUDA@", tables(self.devices, self.files))
        header = self.header()
        (self.folder / f"{self.name}.h").write_text(header)
        with tempfile.TemporaryDirectory() as work:
            build = Path(work)
            (build / f"{self.name}.h").write_text(header)
            (build / "entry.c").write_text(self.tables() + template)
            levels = (*self.levels, *self.devices)
            objects = [self._level_objects(level, build) for level in levels]
            self._link(build, [o for own in objects for o in own])
        (self.folder / MANIFEST).write_text(json.dumps(self.manifest(), indent=2) + "\n")

    # ---- linking

    def _level_objects(self, level: Level, build: Path) -> list[str]:
        """One object for each version, with one symbol."""
        out: list[str] = []
        for k, code in enumerate(level.codes):
            parts = []
            for j, content in enumerate(members(code.compiled.object_code)):
                part = build / f"{level.name}_{k}_{j}.o"
                part.write_bytes(content)
                parts.append(str(part))
            whole = str(build / f"{level.name}_{k}.o")
            ran([compiler(), "-r", "-nostdlib", "-o", whole, *parts])
            symbol = f"{SYMBOL}_{level.name}_{k}"
            renamed = f"--redefine-sym={SYMBOL}={symbol}"
            ran([tool("objcopy"), f"--keep-global-symbol={SYMBOL}", whole])
            ran([tool("objcopy"), renamed, whole])
            out.append(whole)
        return out

    def _link(self, build: Path, objects: Sequence[str]) -> None:
        library = self.folder / f"lib{self.name}.so"
        flags = ["-O2", "-std=gnu11", "-fPIC", "-shared", "-s", "-fvisibility=hidden", "-pthread"]
        source = str(build / "entry.c")
        rest = [source, *objects, "-o", str(library), f"-I{build}", "-lm", "-ldl"]
        try:
            ran([compiler(), *flags, "-fopenmp", *rest])
        except TargetError:  # a compiler without OpenMP: calls then run on one thread
            ran([compiler(), *flags, *rest])

    # ---- texts

    def manifest(self) -> dict[str, object]:
        """What a person and the loader read."""
        program = self.plan.program
        return {
            "name": self.name,
            "format": FORMAT,
            "library": f"lib{self.name}.so",
            "source": program.source,
            "sizes": list(program.sizes),
            "given": list(program.free_sizes),
            "places": {p.name: p.place for p in program.size_parameters},
            "fixed": {n: v for n, v in zip(program.sizes, self.plan.initial) if v is not None},
            "bounds": dict(self.bounds),
            "inputs": [_tensor_data(t) for t in program.inputs],
            "outputs": [_tensor_data(t) for t in program.outputs],
            "checks": [
                {"kind": kind, "condition": condition_text(c), "message": message}
                for c, kind, message in self.checks
            ],
            "entry": self._entry(),
            "levels": [self._level_data(level) for level in self.levels],
            "devices": [
                self._level_data(level, own) for level, own in zip(self.devices, self.files)
            ],
            "errors": CODES,
        }

    def _entry(self) -> str | None:
        """What native code needs to check arguments and make results, as the loader has it do."""
        sizes, count = tuple(range(len(self.plan.sizes))), len(self.tensors)
        order = tuple(range(count))
        image = entry_image(self.plan, (ZERO, ZERO), order, sizes, all_dense(self.plan))
        return None if image is None else image.words.hex()

    def _level_data(
        self, level: Level, code_files: Sequence[Sequence[str]] | None = None
    ) -> dict[str, object]:
        """Its versions, the first of which serves whose condition holds."""
        versions: list[dict[str, object]] = [
            {
                "where": condition_text(c.context),
                "version": c.about,
                "shared_bytes": str(c.compiled.shared_bytes),
                "private_bytes": str(c.compiled.private_bytes),
            }
            for c in level.codes
        ]
        for version, code, own in zip(versions, level.codes, code_files or ()):
            version |= {"files": list(own), "launches": launch_rules(code)}
        features = list(level.target.features)
        return {"name": level.name, "features": features, "versions": versions}

    def header(self) -> str:
        """The C header."""
        text = files("tcsym.artifact").joinpath("header.h").read_text()
        program = self.plan.program
        n_extents = sum(len(t.shape) for t in self.tensors)
        arguments = "\n".join(
            f" *   {k}: {t.dtype}({', '.join(map(str, t.shape))}) {t.name}"
            f"{_WRITTEN.get(t.role, '')}"
            for k, t in enumerate(self.tensors)
        )
        return (
            text.replace("@CUDA@", HEADER if self.devices else "")
            .replace("@NAME@", self.name)
            .replace("@GUARD@", f"TCSYM_{self.name.upper()}_H")
            .replace("@ARGUMENTS@", arguments)
            .replace("@SIZES@", ", ".join(program.sizes) or "none")
            .replace("@GIVEN@", ", ".join(program.free_sizes) or "none")
            .replace("@EXTENTS@", str(n_extents))
            .replace("@ERRORS@", ", ".join(f"ERROR_{k.upper()} = {v}" for k, v in CODES.items()))
        )

    def tables(self) -> str:
        """What entry.c needs to know of the kernel."""
        program, sizes = self.plan.program, self.plan.program.sizes
        places = {n: k for k, n in enumerate(sizes)}
        extents = [e for t in self.tensors for e in t.shape]
        of_inputs = [e for t in program.inputs for e in t.shape]
        direct = [
            places.get(str(e), -1) if k < len(of_inputs) else -1 for k, e in enumerate(extents)
        ]
        fixed = [v if v is not None else -1 for v in self.plan.initial[: len(sizes)]]
        arguments = "".join(
            f"    {{{string(t.name)}, {string(str(t.dtype))}, {_type_code(t.dtype)}, "
            f"{t.dtype.bits}, {len(t.shape)}, {int(t.role != 'input')}}},\n"
            for t in self.tensors
        )
        return "".join(
            [
                f'#define _GNU_SOURCE\n#include "{self.name}.h"\n{_INCLUDES}',
                f"#define NAME(suffix) {self.name}##suffix\n",
                f'#define FFI_NAME __attribute__((visibility("default"))) __tvm_ffi_{self.name}\n',
                f"#define KERNEL {string(self.name)}\n",
                f"enum {{ N_SIZES = {len(sizes)}, N_GIVEN = {len(program.free_sizes)}, "
                f"N_ARGUMENTS = {len(self.tensors)}, N_EXTENTS = {len(extents)}, "
                f"N_CONTEXT = {len(CONTEXT_FIELDS)} }};\n",
                f"enum {{ {', '.join(f'ERROR_{k.upper()} = {v}' for k, v in CODES.items())} }};\n",
                _TYPES,
                f"static const Argument arguments[] = {{\n{arguments}    {{0}}}};\n",
                "static const char *const size_names[] = {"
                + ", ".join([*map(string, sizes), "0"])
                + "};\n",
                numbers("int64_t", "bounds", [self.bounds.get(n, -1) for n in sizes]),
                numbers("int64_t", "fixed", fixed),
                numbers("int", "given_sizes", [places[n] for n in program.free_sizes]),
                numbers("int", "extent_sizes", direct),
                filling("extents_of", extents, sizes, "extents"),
                first_failing("first_failing", [c for c, *_ in self.checks], sizes),
                self._messages("checks", [(kind, text) for _, kind, text in self.checks]),
                *[self._level_tables(level) for level in (*self.levels, *self.devices)],
                self._levels(),
            ]
        )

    def _messages(self, name: str, found: Sequence[tuple[str, str]]) -> str:
        lines = "".join(f"    {{{CODES[kind]}, {string(text)}}},\n" for kind, text in found)
        return f"static const Message {name}[] = {{\n{lines}    {{0, 0}}}};\n"

    def _level_tables(self, level: Level) -> str:
        out: list[str] = []
        sizes = self.plan.program.sizes
        names = [t.name for t in self.tensors]
        entries = []
        for k, code in enumerate(level.codes):
            end = f"{level.name}_{k}"
            compiled = code.compiled
            counts = [compiled.shared_bytes, compiled.private_bytes]
            out += [
                f"int32_t {SYMBOL}_{end}(void *const *, const int64_t *, const int64_t *);\n",
                holding(f"serves_{end}", code.context, sizes),
                filling(f"bytes_{end}", counts, sizes, "bytes"),
                numbers("int", f"arguments_{end}", [names.index(n) for n in compiled.arguments]),
                numbers("int", f"sizes_{end}", [sizes.index(n) for n in compiled.sizes]),
                self._messages(f"faults_{end}", [_fault_text(f) for f in compiled.faults]),
            ]
            entries.append(
                f"{{serves_{end}, {SYMBOL}_{end}, bytes_{end}, arguments_{end}, sizes_{end}, "
                f"{len(compiled.sizes)}, faults_{end}}}"
            )
        if level.is_device:
            defined = enumerate(entries)
            return "".join([*out, *[f"#define KERNEL_{level.name}_{k} {e}\n" for k, e in defined]])
        rows = "".join(f"    {e},\n" for e in entries)
        features = [f'__builtin_cpu_supports("{f}")' for f in level.target.features]
        out.append(f"static const Kernel kernels_{level.name}[] = {{\n{rows}}};\n")
        out.append(
            f"static int runs_{level.name}(void) {{ return {' && '.join(features) or '1'}; }}\n"
        )
        return "".join(out)

    def _levels(self) -> str:
        lines = "".join(
            f"    {{{string(x.name)}, runs_{x.name}, kernels_{x.name}}},\n" for x in self.levels
        )
        end = "static int runs_always(void) { return 1; }\n"
        return f"{end}static const Level levels[] = {{\n{lines}    {{0, runs_always, 0}}}};\n\n"


_INCLUDES = """#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

"""
_TYPES = """
typedef struct { const char *name, *type; int code, bits, rank, written; } Argument;
typedef struct { int code; const char *text; } Message;
typedef struct {
    int (*serves)(const int64_t *);
    int32_t (*code)(void *const *, const int64_t *, const int64_t *);
    void (*bytes)(const int64_t *, int64_t *);
    const int *arguments, *sizes;
    int n_sizes;
    const Message *faults;
} Kernel;
typedef struct { const char *name; int (*runs_here)(void); const Kernel *kernels; } Level;

/* Rounded towards minus infinity; 0 where the divisor is 0. */
__attribute__((unused)) static int64_t quotient(int64_t a, int64_t b) {
    if (!b) return 0;
    int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
__attribute__((unused)) static int64_t remainder_of(int64_t a, int64_t b) {
    return b ? a - quotient(a, b) * b : 0;
}
"""


def _promised(plan: CallPlan) -> Iterator[tuple[Condition, str, str]]:
    """What is declared of sizes, for which the code was made; upper bounds are among the bounds."""
    for slot, dim in plan.promises.items():
        size = var(plan.sizes[slot])
        keeps = all_of((ge(size, dim.lo), eq(mod(size, dim.multiple_of), 0)))
        if keeps != TRUE:
            yield keeps, "size", f"size `{size}` is not as declared: {dim}"


def _type_code(dtype: DType) -> int:
    """DLPack's."""
    return 4 if dtype is DType.BFLOAT16 else _CODES[dtype.numpy.kind]


def _tensor_data(t: Tensor) -> dict[str, object]:
    data: dict[str, object] = {
        "name": t.name,
        "type": str(t.dtype),
        "shape": [str(e) for e in t.shape],
    }
    return {**data, "inout": True} if t.role == "inout" else data


def _fault_text(fault: Fault) -> tuple[str, str]:
    return fault.kind, fault.message
