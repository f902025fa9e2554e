# SPDX-License-Identifier: Apache-2.0
"""Levels for devices -> what an artifact has of them: code in files, tables in C, launch rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from tcsym.artifact.c_text import string
from tcsym.artifact.codes import Code, Level
from tcsym.codegen.device.ptxas import assembled, assembler

HEADER = """\
/* On a CUDA device, where `buffers` are: the call is enqueued on a stream of the driver's (0 is the
 * default one) in the device's primary context, and returns. What it finds while it runs is the
 * error of a later call, or of waiting. Tensors on a device run there, too. */
TCSYM_API int @NAME@_cuda_run(void *const *buffers, const int64_t *sizes, int device, void *stream);
TCSYM_API int @NAME@_cuda_wait(int device, void *stream);

"""
GRIDS = "cuda_grids.h"
NONE = """enum { HAS_CUDA = 0 };
#define run_on_device(buffers, sizes, device, stream) 0
#define stream_of(device) NULL
"""
TYPES = """enum { HAS_CUDA = 1, MOST_DEVICE_KERNELS = @MOST@ };
typedef struct {
    Kernel kernel;
    const char *const *files, *const *functions;
    int n_functions;
} DeviceKernel;
typedef struct {
    const char *name;
    int capability, is_exact;
    const DeviceKernel *kernels;
} DeviceLevel;
"""


def write_files(level: Level, folder: Path, name: str) -> tuple[tuple[str, ...], ...]:
    """PTX of each version and, where NVIDIA's assembler is found, machine code before it: their
    names, the first to try first."""
    out = []
    for k, code in enumerate(level.codes):
        ptx = code.compiled.device_code
        stem = f"{name}.{level.name}.{k}"
        found = [f"{stem}.ptx"]
        (folder / found[0]).write_bytes(ptx)
        if assembler() is not None:
            found.insert(0, f"{stem}.cubin")
            (folder / found[0]).write_bytes(assembled(ptx.decode(), level.target.cpu).cubin)
        out.append(tuple(found))
    return tuple(out)


def launch_rules(code: Code) -> list[dict[str, object]]:
    """Of each function: how many blocks, in sizes, and threads of each. Which ones run the host
    half decides, in the order of the text."""
    return [
        {"function": name, "blocks": str(blocks), "threads": threads}
        for name, blocks, threads in code.grids
    ]


def tables(levels: Sequence[Level], files_of: Sequence[Sequence[Sequence[str]]]) -> str:
    """The part of entry.c for devices: types, tables, cuda.c with what the run time has, too."""
    if not levels:
        return NONE
    most = max(len(level.codes) for level in levels)
    out = [TYPES.replace("@MOST@", str(most))]
    lines = []
    for level, own in zip(levels, files_of, strict=True):
        kernels = []
        for k, (code, names) in enumerate(zip(level.codes, own, strict=True)):
            end = f"{level.name}_{k}"
            functions = code.compiled.device_functions
            out += [_strings(f"files_{end}", names), _strings(f"functions_{end}", functions)]
            given = f"KERNEL_{end}, files_{end}, functions_{end}, {len(functions)}"
            kernels.append(f"    {{{given}}},\n")
        rows = "".join(kernels)
        out.append(
            f"static const DeviceKernel device_{level.name}[] = {{\n{rows}"
            "    {{0}, 0, 0, 0}};\n"
        )
        number = int(re.sub(r"\D", "", level.name))
        exact = int(level.name.endswith("a"))
        lines.append(f"    {{{string(level.name)}, {number}, {exact}, device_{level.name}}},\n")
    out.append(
        f"static const DeviceLevel device_levels[] = {{\n{''.join(lines)}    {{0, 0, 0, 0}}}};\n\n"
    )
    cuda, grids = (files("tcsym.artifact").joinpath(x).read_text() for x in ("cuda.c", GRIDS))
    return "".join(out) + cuda.replace("@GRIDS@", grids)


def _strings(name: str, texts: Sequence[str]) -> str:
    return f"static const char *const {name}[] = {{{', '.join([*map(string, texts), '0'])}}};\n"
