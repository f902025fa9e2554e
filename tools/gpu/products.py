# SPDX-License-Identifier: Apache-2.0
"""Products of matrices, in each type: every version of the default plan, and every plan by name.

Each is computed twice. Small whole numbers have exact sums, so that one wrong element of a
fragment, a panel or an edge shows, whatever the type; normal numbers tell the error beside float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace

import tcsym
from tcsym.compiler import analyse
from tcsym.index.values import evaluate, holds
from tcsym.options import Options
from tcsym.schedule.device.plan import Tiles
from tcsym.target.names import resolve_target
from tcsym.target.target import Target
from tcsym.tuning.device_space import DeviceNest, DeviceSpace, axis, device_space
from tcsym.tuning.space import with_values
from tcsym.types import DType
from tools.gpu.case import Case, Wrong, equal
from tools.gpu.library import Library

Sizes = tuple[int, int, int]  # M, K, N
NN = "def mm({0}(M,K) A, {0}(K,N) B) -> (C) {{ C(m,n) +=! A(m,k) * B(k,n) }}"
TT = "def mm({0}(K,M) A, {0}(N,K) B) -> (C) {{ C(m,n) +=! A(k,m) * B(n,k) }}"
TEXTS = {"nn": NN, "tt": TT}


class Kind(NamedTuple):
    """most: what the error's norm may be, of that of the product."""

    declared: str
    dtype: str
    most: float
    tf32: bool = False


KINDS = {
    "float32": Kind("float", "float32", 5e-6),
    "tf32": Kind("float", "float32", 2e-3, tf32=True),
    "float16": Kind("float16", "float16", 1e-3),
    "bfloat16": Kind("bfloat16", "bfloat16", 5e-3),
}
# Sizes that take each version of the default plan for sm_90a, at most some millions of terms: sums
# in parts, blocks of 128 and of 64 (of copies of 16 bytes and of 4), rows by 128, 512 and 32
# threads, a thread a point. A test looks whether they still do.
FEW: tuple[Sizes, ...] = (
    *((16, 104, 384), (3, 520, 512), (8, 1040, 128), (16, 101, 385), (3, 1001, 1000)),
    *(
        (200, 4, 8192),
        (200, 1, 8192),
        (64, 4, 8192),
        (65, 1, 8192),
        (1000, 8, 1040),
        (1000, 1, 1040),
    ),
    *(
        (17, 8, 256),
        (65, 8, 65),
        (16, 8, 200),
        (65, 9, 201),
        (8, 8, 520),
        (1, 8, 4096),
        (1024, 8, 4),
    ),
    *((1, 100, 1), (2, 130, 136), (1, 130, 1), (1, 8, 1), (1, 4, 1), (1, 1, 1), (64, 64, 64)),
)
# Those of a device, beside: full blocks and edges of long sums.
MORE: tuple[Sizes, ...] = (
    *((2048, 512, 2048), (4096, 1024, 4096), (4096, 1026, 4096), (2049, 1023, 2047)),
    *((16, 8192, 64), (16, 8191, 65), (256, 4096, 264), (1, 4096, 1), (130, 33, 257)),
)
PHASED = (16, 104, 384), (200, 8, 1040)  # of arrays that begin beside multiples of 16 bytes
PLANNED: tuple[Sizes, ...] = ((136, 104, 136), (67, 101, 131))  # aligned, and ragged: by each plan
EMPTY = (0, 3, 4), (3, 0, 4)
SPARSE = (
    10  # of so many plans one is rehearsed: a twin's code of large blocks takes a while to make
)


@lru_cache(None)
def kernel(kind: str, layout: str, plan: str = "") -> Any:
    made = KINDS[kind]
    options = Options(plan=plan, tf32=made.tf32) if plan else Options(tf32=made.tf32)
    return tcsym.define(text(kind, layout), target="cuda", options=options).mm


def text(kind: str, layout: str) -> str:
    return TEXTS[layout].format(KINDS[kind].declared)


@lru_cache(None)
def space(kind: str, layout: str, target: str = "cuda") -> DeviceSpace:
    """What the model says of the kernel."""
    (program,) = analyse(text(kind, layout)).values()
    return device_space(program, _factors(resolve_target(target), KINDS[kind].tf32))


def _factors(target: Target, tf32: bool) -> Target:
    machine, more = target.machine, (DType.FLOAT32,) * tf32
    return replace(target, machine=replace(machine, factors=(*machine.factors, *more)))


def nest(kind: str, layout: str, target: str = "cuda") -> DeviceNest:
    (found,) = space(kind, layout, target).nests.values()
    return found


def version(found: DeviceNest, sizes: Sizes, phase: int = 0) -> int:
    """Which of the versions that sizes choose runs."""
    known = dict(zip("MKN", sizes, strict=True)) | {f"{x}.phase": phase for x in "ABC"}
    return next(k for k, v in enumerate(found.taken) if holds(v.when, known))


def plan_name(found: DeviceNest, number: int) -> str:
    """Of a version, with what its copies move."""
    plan = found.taken[number].plan
    tiles = getattr(plan, "tiles", plan)
    copies = f", {tiles.copied} bytes" if isinstance(tiles, Tiles) else ""
    return f"{plan.name}{copies}"  # type: ignore[union-attr]


def predicted(kind: str, layout: str, sizes: Sizes, plan: str = "") -> float:
    """Seconds of a call, by the model."""
    found = space(kind, layout)
    (loop,) = found.nests
    options = with_values(Options(), {axis(loop): plan}) if plan else Options()
    values = tuple(dict(zip("MKN", sizes, strict=True))[x] for x in found.program.sizes)
    (cost,) = found.costs(options, values)
    assert cost is not None
    known = dict(zip(found.program.sizes, values, strict=True))
    return evaluate(cost.cycles, known) / (found.target.machine.unit.mhz * 1e6)


def operands(library: Library, kind: str, layout: str, sizes: Sizes, is_whole: bool) -> Any:
    """A and B as the text has them."""
    (m, k, n), dtype = sizes, KINDS[kind].dtype
    shapes = ((m, k), (k, n)) if layout == "nn" else ((k, m), (n, k))
    make = library.whole if is_whole else library.random
    return [make(*shape, dtype=dtype) for shape in shapes]


def product(library: Library, layout: str, a: Any, b: Any) -> Any:
    """In float64."""
    x, y = library.wide(a), library.wide(b)
    return x @ y if layout == "nn" else x.T @ y.T


def compared(
    library: Library, kind: str, layout: str, sizes: Sizes, plan: str, phase: int
) -> dict[str, Any]:
    run, dtype, figures = kernel(kind, layout, plan), KINDS[kind].dtype, dict[str, Any]()
    for is_whole in (True, False):
        given = operands(library, kind, layout, sizes, is_whole)
        if phase:
            given = [library.shifted(x) for x in given]
        out = library.filled(sizes[0], sizes[2], dtype=dtype)
        run(*given, out=out)
        tcsym.synchronize()
        want = product(library, layout, *given)
        if is_whole:
            figures |= equal(library, out, library.rounded(want, dtype))
        else:
            figures |= norm(library, out, want, KINDS[kind].most)
    return figures


def norm(library: Library, got: Any, want: Any, most: float) -> dict[str, Any]:
    """Of the error, as a part of that of the product."""
    scale = float((want * want).sum()) ** 0.5
    off = library.wide(got) - want
    error = float((off * off).sum()) ** 0.5 / max(scale, 1e-30)
    if not error <= most:
        raise Wrong(f"the norm of the error is {error:.3g}, more than {most:.3g}", {"norm": error})
    return {"norm": error}


def by_sizes(library: Library, kind: str) -> Iterator[Case]:
    """The default plan at sizes that take each version of it."""
    for layout in TEXTS:
        shapes = [(s, 0) for s in (*FEW, *EMPTY)] + [(s, 1) for s in PHASED]
        if not library.is_small:
            shapes += [(s, 0) for s in MORE]
        for sizes, phase in shapes:
            yield case(library, kind, layout, sizes, "", phase)


def by_plans(library: Library, kind: str, layout: str) -> Iterator[Case]:
    """Every plan that the nest is offered, by its name: blocks that are full, and edges."""
    plans = list(nest(kind, layout).plans)
    for plan in plans[::SPARSE] if library.is_small else plans:
        for sizes in PLANNED:
            yield case(library, kind, layout, sizes, plan, 0)


def case(library: Library, kind: str, layout: str, sizes: Sizes, plan: str, phase: int) -> Case:
    def run() -> dict[str, Any]:
        found = nest(kind, layout)
        taken = plan or plan_name(found, version(found, sizes, phase))
        return {"plan": taken, **compared(library, kind, layout, sizes, plan, phase)}

    apart = f" +{phase}" if phase else ""
    by = f" {plan}" if plan else ""
    return Case(f"{kind} {layout} {'x'.join(map(str, sizes))}{apart}{by}", run)
