# SPDX-License-Identifier: Apache-2.0
"""Constants of an artifact: what callers give once, and the part of its C text that is for them.

Where arrays are given at export, they are files beside the library, as numpy writes them; else
whoever loads it binds them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from io import BytesIO
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tcsym.artifact.c_text import filling, numbers, string
from tcsym.frontend.program import Tensor
from tcsym.index.expr import Index, var
from tcsym.network.calls import constants_call, free_call, require_within
from tcsym.network.plan import Plan
from tcsym.network.storage import element_bytes
from tcsym.runtime.arguments import MISSING, bind
from tcsym.runtime.arrays import Array, numpy_array
from tcsym.runtime.plan import CallPlan
from tcsym.sizes.dims import Dim
from tcsym.types import DType

NONE = """
static void *bound_argument(const Kernel *kernel, int k) {
    return (void)kernel, (void)k, NULL;
}

static int known_sizes(int64_t *sizes) {
    memcpy(sizes, fixed, sizeof fixed);
    return 0;
}

static void release_bound(void) {}

static int run_bound(const Level *level, const Team *team, void *const *buffers,
                     const int64_t *sizes) {
    return run_kernel(serving(level->kernels, sizes), team, buffers, sizes, 0);
}
"""
HEADER = """\
/* Constants, which calls do not give; one set of them is bound at a time:
@CONSTANTS@
 * Their memory stays the caller's and is read by calls; after it was written, they are bound again.
 * Of `sizes`, those that constants tell are read@TOLD@. */
TCSYM_API int @NAME@_bind(void *const *constants, const int64_t *sizes);
TCSYM_API int @NAME@_bind_tensors(DLTensor *const *constants);

"""
FROM_FILES = """.
 * Calls before any binding use the files beside the library, as does binding NULL"""


class Constants(NamedTuple):
    """call: what is left for callers to give. code: what is compiled for calls; `binding`: what
    makes `held` of the constants. told: sizes that their shapes tell. arrays: those of the folder.
    """

    call: CallPlan
    code: CallPlan
    binding: CallPlan | None
    tensors: tuple[Tensor, ...] = ()
    held: tuple[Tensor, ...] = ()
    told: tuple[str, ...] = ()
    arrays: Mapping[str, Array] = {}

    @property
    def bound(self) -> tuple[Tensor, ...]:
        return *self.tensors, *self.held


def without_constants(plan: CallPlan) -> Constants:
    return Constants(plan, plan, None)


def constants_of(plan: Plan, given: Mapping[str, object] | Collection[str]) -> Constants:
    """given: arrays by name, or names alone. Errors: those of `Plan.session`; TargetError."""
    plan = plan.with_constants(tuple(given))
    tensors = {t.name: t for t in plan.program.inputs}
    constants = tuple(tensors[n] for n in plan.constants)
    told = tuple(n for n in plan.call.sizes if any(var(n) in t.shape for t in constants))
    known, arrays = dict[str, Dim | int](), dict[str, Array]()
    if isinstance(given, Mapping):
        header = constants_call(plan)
        bound = bind(header, [given.get(p.name, MISSING) for p in header.parameters], None)
        require_within(plan, header, bound.sizes)
        known = {n: v for n, v in zip(header.sizes, bound.sizes) if v is not None}
        arrays = {p.name: numpy_array(v) for p, v in zip(header.inputs, bound.views)}
    return Constants(
        free_call(plan, known),
        plan.call,
        None if plan.binding is None else plan.binding.call,
        constants,
        tuple(tensors[n] for n in plan.held),
        told,
        arrays,
    )


def write_arrays(own: Constants, folder: Path) -> list[tuple[str, str, int]]:
    """A file for each: its name, what its header says, where its data begin."""
    out = []
    for t in own.tensors if own.arrays else ():
        array, made = own.arrays[t.name], BytesIO()
        dense = np.array(array, order="C")
        np.save(made, dense.view(np.uint16) if t.dtype is DType.BFLOAT16 else dense)
        content = made.getvalue()
        start = 10 + int.from_bytes(content[8:10], "little")
        name = f"{own.call.program.name}.{t.name}.npy"
        (folder / name).write_bytes(content)
        out.append((name, content[10:start].decode("latin-1").strip(), start))
    return out


def constants_data(own: Constants) -> list[dict[str, object]]:
    """As the manifest has them."""
    name = own.call.program.name
    found: list[dict[str, object]] = []
    for t in own.tensors:
        shape = [str(e) for e in t.shape]
        found.append({"name": t.name, "type": str(t.dtype), "shape": shape})
        if own.arrays:
            found[-1]["file"] = f"{name}.{t.name}.npy"
    return found


def header(own: Constants) -> str:
    """The part of the C header."""
    if not own.tensors:
        return ""
    lines = [
        f" *   {k}: {t.dtype}({', '.join(map(str, t.shape))}) {t.name}"
        for k, t in enumerate(own.tensors)
    ]
    end = FROM_FILES if own.arrays else ""
    told = f": {', '.join(own.told) or 'none'}{end}"
    return HEADER.replace("@CONSTANTS@", "\n".join(lines)).replace("@TOLD@", told)


def tables(own: Constants, arguments: str, stored: list[tuple[str, str, int]]) -> str:
    """What constants.c needs to know. arguments: of the constants, as rows."""
    if not own.tensors:
        return ""
    sizes = own.code.program.sizes
    extents = [e for t in own.tensors for e in t.shape]
    rows = ""
    for (name, text, start), t in zip(stored, own.tensors):
        n = prod(own.arrays[t.name].shape) * t.dtype.bytes
        rows += f"    {{{string(name)}, {string(text)}, {start}, {n}}},\n"
    return "".join(
        [
            _COUNTS.format(len(own.tensors), len(own.held), len(extents)),
            f"static const Argument constant_arguments[] = {{\n{arguments}    {{0}}}};\n",
            f"static const File constant_files[] = {{\n{rows}    {{0}}}};\n",
            numbers("int", "is_told", [int(n in own.told) for n in sizes]),
            numbers("int", "constant_sizes", size_places(extents, sizes)),
            filling("constant_extents", extents, sizes, "extents"),
            filling(
                "held_bytes", [element_bytes(t.dtype, t.shape) for t in own.held], sizes, "bytes"
            ),
        ]
    )


_COUNTS = """#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
enum {{ N_CONSTANTS = {}, N_HELD = {}, N_CONSTANT_EXTENTS = {} }};
typedef struct {{ const char *name, *header; size_t start, bytes; }} File;
"""


def size_places(extents: Sequence[Index], sizes: Sequence[str]) -> list[int]:
    """Of each extent that is a size, its place; else -1."""
    places = {n: k for k, n in enumerate(sizes)}
    return [places.get(str(e), -1) for e in extents]


def code_text(own: Constants) -> str:
    """The functions."""
    if not own.tensors:
        return NONE
    return files("tcsym.artifact").joinpath("constants.c").read_text()
