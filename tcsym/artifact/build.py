# SPDX-License-Identifier: Apache-2.0
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

from msgspec.structs import replace

from tcsym.artifact import constants, device_text
from tcsym.artifact.c_text import filling, first_failing, holding, numbers, string
from tcsym.artifact.codes import Code, Level, default_targets, levels_of
from tcsym.artifact.constants import Constants, size_places
from tcsym.artifact.device_text import launch_rules, write_files
from tcsym.artifact.errors import CODES, FORMAT, MANIFEST
from tcsym.artifact.library import require_artifacts
from tcsym.artifact.tools import compiler, object_copier, ran
from tcsym.dispatch.table import Table
from tcsym.errors import OptionError, TargetError
from tcsym.frontend.infer_messages import plain_index
from tcsym.frontend.program import Tensor
from tcsym.index.expr import TRUE, ZERO, Condition, all_of, eq, ge, mod, var
from tcsym.index.text import condition_text
from tcsym.ir.archive import SYMBOL, members
from tcsym.ir.compiled import BINDING, CONTEXT_FIELDS, Fault
from tcsym.options import Options
from tcsym.runtime.entry_image import all_dense, entry_image
from tcsym.runtime.limits import LIMIT
from tcsym.runtime.plan import CallPlan
from tcsym.strategy import Strategy, Symbolic
from tcsym.target.target import Target
from tcsym.types import DType

_WRITTEN = {"output": " (written)", "inout": " (updated)"}
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLPack's types, by numpy's kinds


def export(
    path: str | PathLike[str],
    own: Constants,
    target: Target | str | None,
    options: Options | None,
    bounds: Mapping[str, int],
    targets: Sequence[str] | None,
    strategy: Strategy = Symbolic(),  # noqa: B008 (frozen)
    table: Table | None = None,
) -> Path:
    """Writes the folder; it appears whole or not at all.

    own: what callers give, and what is compiled. strategy, table: which versions there are, see
    `levels_of`.
    Errors: OptionError if something is there that is no artifact, or for unknown targets;
    TargetError without a C compiler, and on macOS.
    """
    require_artifacts()
    folder = Path(path)
    _require_free(folder)
    wanted = targets or default_targets(target)
    levels = levels_of(own.code, options, wanted, strategy, table, own.binding)
    if own.tensors and any(level.is_device for level in levels):
        hint = "give targets of processors only"
        raise TargetError("artifacts with constants have no code for devices", hint=hint)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as made:
        new = Path(made) / "new"
        new.mkdir()
        _Artifact(own, levels, bounds, new).write()
        if folder.exists():
            folder.rename(Path(made) / "old")
        new.rename(folder)
    return folder


def _require_free(folder: Path) -> None:
    """An artifact may be written there, perhaps in place of one."""
    parent = next(x for x in folder.absolute().parents if x.exists())
    if not parent.is_dir():
        raise OptionError(
            f"`{parent}` is a file", hint="an artifact is a folder: give another path"
        )
    is_artifact = (folder / MANIFEST).is_file()
    if folder.exists() and not is_artifact and not (folder.is_dir() and not any(folder.iterdir())):
        raise OptionError(f"`{folder}` is there, and no artifact", hint="give another folder")


class _Artifact:
    """One being written."""

    def __init__(
        self, own: Constants, levels: Sequence[Level], bounds: Mapping[str, int], folder: Path
    ) -> None:
        self.own = own
        self.plan = plan = own.call
        self.name = plan.program.name
        self.levels = [level for level in levels if not level.is_device]
        self.devices = [level for level in levels if level.is_device]
        self.files: list[tuple[tuple[str, ...], ...]] = []  # of each device's versions
        self.stored = constants.write_arrays(own, folder)
        self.bounds = bounds
        self.folder = folder
        self.tensors = (*plan.program.inputs, *plan.program.outputs)

        self.checks = [*_promised(plan), *_fitting(plan)]
        self.checks += [(c.condition, c.kind, c.message) for c in plan.program.checks]

    def write(self) -> None:
        self.files = [write_files(level, self.folder, self.name) for level in self.devices]
        template = files("tcsym.artifact").joinpath("entry.c").read_text()
        template = template.replace("@CUDA@", device_text.tables(self.devices, self.files))
        template = template.replace("@CONSTANTS@", constants.code_text(self.own))
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
        for end, code in _named(level):
            parts = []
            for j, content in enumerate(members(code.compiled.object_code)):
                part = build / f"{end}_{j}.o"
                part.write_bytes(content)
                parts.append(str(part))
            whole = str(build / f"{end}.o")
            ran([compiler(), "-r", "-nostdlib", "-o", whole, *parts])
            symbol = f"{SYMBOL}_{end}"
            renamed = f"--redefine-sym={SYMBOL}={symbol}"
            ran([object_copier(), f"--keep-global-symbol={SYMBOL}", whole])
            ran([object_copier(), renamed, whole])
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
            "bytes": (self.folder / f"lib{self.name}.so").stat().st_size,
            "source": program.source,
            "sizes": list(program.sizes),
            "given": list(program.free_sizes),
            "places": {p.name: p.place for p in program.size_parameters},
            "fixed": {n: v for n, v in zip(program.sizes, self.plan.initial) if v is not None},
            "bounds": dict(self.bounds),
            "constants": constants.constants_data(self.own),
            "told": list(self.own.told),
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
        told = [0 if n in self.own.told else v for n, v in zip(self.plan.sizes, self.plan.initial)]
        plan = replace(self.plan, initial=(*told, *self.plan.initial[len(told) :]))
        image = entry_image(plan, (ZERO, ZERO), order, sizes, all_dense(plan))
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
            text.replace("@CUDA@", device_text.HEADER if self.devices else "")
            .replace("@CONSTANTS@", constants.header(self.own))
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
        extents = [e for t in self.tensors for e in t.shape]
        direct = size_places([e for t in program.inputs for e in t.shape], sizes)
        direct += [-1] * (len(extents) - len(direct))
        fixed = [v if v is not None else -1 for v in self.plan.initial[: len(sizes)]]
        levels = (*self.levels, *self.devices)
        most = max(len(c.compiled.arguments) for x in levels for c in (*x.codes, *x.binding))
        most = max(most, len(self.tensors) + len(self.own.bound))
        return "".join(
            [
                f'#define _GNU_SOURCE\n#include "{self.name}.h"\n{_INCLUDES}',
                f"#define NAME(suffix) {self.name}##suffix\n",
                '#define FFI_NAME(suffix) __attribute__((visibility("default"))) '
                f"__tvm_ffi_{self.name}##suffix\n",
                f"#define KERNEL {string(self.name)}\n",
                f"enum {{ N_SIZES = {len(sizes)}, N_GIVEN = {len(program.free_sizes)}, "
                f"N_ARGUMENTS = {len(self.tensors)}, N_EXTENTS = {len(extents)}, "
                f"MOST_ARGUMENTS = {most}, "
                f"N_CONTEXT = {len(CONTEXT_FIELDS)} }};\n",
                f"enum {{ {', '.join(f'ERROR_{k.upper()} = {v}' for k, v in CODES.items())} }};\n",
                _TYPES,
                f"static const Argument arguments[] = {{\n{_rows(self.tensors)}    {{0}}}};\n",
                "static const char *const size_names[] = {"
                + ", ".join([*map(string, sizes), "0"])
                + "};\n",
                numbers("int64_t", "bounds", [self.bounds.get(n, -1) for n in sizes]),
                numbers("int64_t", "fixed", fixed),
                numbers("int", "given_sizes", [sizes.index(n) for n in program.free_sizes]),
                numbers("int", "extent_sizes", direct),
                filling("extents_of", extents, sizes, "extents"),
                first_failing("first_failing", [c for c, *_ in self.checks], sizes),
                self._messages("checks", [(kind, text) for _, kind, text in self.checks]),
                constants.tables(self.own, _rows(self.own.tensors), self.stored),
                *[self._level_tables(level) for level in levels],
                self._levels(),
            ]
        )

    def _messages(self, name: str, found: Sequence[tuple[str, str]]) -> str:
        lines = "".join(f"    {{{CODES[kind]}, {string(text)}}},\n" for kind, text in found)
        return f"static const Message {name}[] = {{\n{lines}    {{0, 0}}}};\n"

    def _level_tables(self, level: Level) -> str:
        out: list[str] = []
        sizes = (*self.plan.program.sizes, BINDING)
        names = [t.name for t in (*self.tensors, *self.own.bound)]
        entries: dict[str, str] = {}
        for end, code in _named(level):
            compiled = code.compiled
            counts = [compiled.shared_bytes, compiled.private_bytes]
            packed = [n for n, _ in compiled.held]
            known = {n: k for k, n in enumerate([*names, *packed])}
            out += [
                f"int32_t {SYMBOL}_{end}(void *const *, const int64_t *, const int64_t *);\n",
                holding(f"serves_{end}", code.context, sizes),
                filling(f"bytes_{end}", counts, sizes, "bytes"),
                filling(f"packed_bytes_{end}", [e for _, e in compiled.held], sizes, "bytes"),
                f"static void *packed_{end}[{len(packed) + 1}];\n",
                numbers("int", f"arguments_{end}", [known[n] for n in compiled.arguments]),
                numbers("int", f"sizes_{end}", [sizes.index(n) for n in compiled.sizes]),
                self._messages(f"faults_{end}", [_fault_text(f) for f in compiled.faults]),
            ]
            entries[end] = (
                f"{{serves_{end}, {SYMBOL}_{end}, bytes_{end}, packed_bytes_{end}, packed_{end}, "
                f"arguments_{end}, sizes_{end}, {len(compiled.arguments)}, {len(compiled.sizes)}, "
                f"{len(packed)}, faults_{end}}}"
            )
        if level.is_device:
            return "".join([*out, *[f"#define KERNEL_{end} {e}\n" for end, e in entries.items()]])
        for kind, own in (("kernels", level.codes), ("binding", level.binding)):
            ends = _ends(level, kind, own)
            rows = "".join(f"    {entries[end]},\n" for end in ends)
            out.append(f"static const Kernel {kind}_{level.name}[] = {{\n{rows}    {{0}}}};\n")
        features = [f'__builtin_cpu_supports("{f}")' for f in level.target.features]
        out.append(
            f"static int runs_{level.name}(void) {{ return {' && '.join(features) or '1'}; }}\n"
        )
        return "".join(out)

    def _levels(self) -> str:
        lines = "".join(
            f"    {{{string(x.name)}, runs_{x.name}, kernels_{x.name}, {len(x.codes)}, "
            f"{f'binding_{x.name}' if x.binding else '0'}}},\n"
            for x in self.levels
        )
        end = "static int runs_always(void) { return 1; }\n"
        return (
            f"{end}static const Level levels[] = {{\n{lines}    {{0, runs_always, 0, 0, 0}}}};\n\n"
        )


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
    void (*bytes)(const int64_t *, int64_t *), (*packed_bytes)(const int64_t *, int64_t *);
    void **packed;
    const int *arguments, *sizes;
    int n_arguments, n_sizes, n_packed;
    const Message *faults;
} Kernel;
typedef struct {
    const char *name;
    int (*runs_here)(void);
    const Kernel *kernels;
    int n_kernels;
    const Kernel *binding;
} Level;

/* Integers that stay far from 0 where they would leave their 128 bits, or 64 as factors. */
typedef __int128 wide;
#define UNUSED __attribute__((unused)) static
UNUSED wide within(wide a, wide most) { return a > most ? most : a < -most ? -most : a; }
UNUSED int64_t narrow(wide a) { return (int64_t)within(a, INT64_MAX); }
UNUSED wide sum(wide a, wide b) { return within(a + b, (wide)1 << 126); }
UNUSED wide product(wide a, wide b) {
    const wide most = (wide)1 << 63;
    return within(a, most) * within(b, most);
}
/* Rounded towards minus infinity; 0 where the divisor is 0. */
UNUSED wide quotient(wide a, wide b) {
    if (!b) return 0;
    wide q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
UNUSED wide remainder_of(wide a, wide b) { return b ? a - quotient(a, b) * b : 0; }
"""


def _fitting(plan: CallPlan) -> Iterator[tuple[Condition, str, str]]:
    """That its formulas fit."""
    for f in plan.limits.formulas:
        message = f"`{plain_index(f.index)}` does not fit in 64 bits"
        yield ge(LIMIT - 1, f.most), "size", message


def _named(level: Level) -> list[tuple[str, Code]]:
    """Its versions, with what the names of their symbols end in."""
    found = (("kernels", level.codes), ("binding", level.binding))
    return [(end, c) for kind, own in found for end, c in zip(_ends(level, kind, own), own)]


def _ends(level: Level, kind: str, codes: Sequence[Code]) -> list[str]:
    between = "" if kind == "kernels" else f"{kind}_"
    return [f"{level.name}_{between}{k}" for k, _ in enumerate(codes)]


def _rows(tensors: Sequence[Tensor]) -> str:
    """Of a table of arguments."""
    return "".join(
        f"    {{{string(t.name)}, {string(str(t.dtype))}, {_type_code(t.dtype)}, "
        f"{t.dtype.bits}, {len(t.shape)}, {int(t.role != 'input')}}},\n"
        for t in tensors
    )


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
