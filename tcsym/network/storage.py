# SPDX-License-Identifier: Apache-2.0
"""Tensors with lifetimes -> storages that they share, each as large as its largest tensor.

Tensors take turns with a storage if steps of one turn never need two of them, or the step that
needs two may write the one over the other (`in_place`). Larger ones choose first, each the storage
that grows least by it (Pisarchyk, Lee: Efficient Memory Management for Deep Neural Net Inference,
2020: greedy by size, shared objects). Byte counts are expressions in the sizes, so one assignment
serves all sizes; it is chosen by what tensors need at the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tcsym.frontend.program import Program, Role
from tcsym.index.expr import Index, index, maximum
from tcsym.index.values import evaluate
from tcsym.ir.compiled import ARENA_LINE
from tcsym.network.steps import Step, lifetimes
from tcsym.sizes.context import Interval, interval
from tcsym.types import DType

Bounds = Mapping[str, int]


class Planned(Struct, frozen=True):
    """A tensor of a program. `bytes`: of its elements, `max_bytes`: at the bounds, or None.

    storage: its number; None for what belongs to the caller. first, last: turns that need it.
    over: the tensor that its first step writes it over.
    """

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    role: Role
    bytes: Index
    max_bytes: int | None
    storage: int | None
    first: int
    last: int
    over: str = ""


class Storage(Struct, frozen=True):
    """Memory of tensors that take turns. `offset`: in the arena; both None without bounds."""

    tensors: tuple[str, ...]
    bytes: Index
    max_bytes: int | None
    offset: int | None


def element_bytes(dtype: DType, shape: Sequence[Index]) -> Index:
    """Bytes of a dense tensor."""
    total = index(dtype.bytes)
    for extent in shape:
        total = total * extent
    return total


def place(
    program: Program,
    steps: Sequence[Step],
    turns: Sequence[Sequence[int]],
    bounds: Bounds,
    over: Mapping[str, str],
) -> tuple[tuple[Planned, ...], tuple[Storage, ...]]:
    """What is planned for tensors that cross steps, and for inputs and outputs.

    bounds: largest values of sizes; without one for each that matters there is no arena. over:
    by tensor, one that it may be written over.
    """
    alive = lifetimes(program, steps, turns)
    ranges = {name: Interval(0, bounds.get(name)) for name in program.sizes}
    found = [t for t in program.tensors if t.name in alive]
    sizes = {t.name: element_bytes(t.dtype, t.shape) for t in found}
    most = {n: interval(e, ranges).high for n, e in sizes.items()}
    placed = [t.name for t in found if t.role in ("output", "temporary")]
    owners = _owners(placed, alive, sizes, most, over)
    tensors = tuple(
        Planned(
            t.name,
            t.dtype,
            t.shape,
            t.role,
            sizes[t.name],
            most[t.name],
            owners.get(t.name),
            *alive[t.name],
            over[t.name] if t.name in over and owners[over[t.name]] == owners[t.name] else "",
        )
        for t in found
    )
    return tensors, _storages(tensors)


def _owners(
    names: Sequence[str],
    alive: Mapping[str, tuple[int, int]],
    sizes: Mapping[str, Index],
    most: Mapping[str, int | None],
    over: Mapping[str, str],
) -> dict[str, int]:
    """The storage of each. Where bounds do not tell bytes, all sizes are taken to be alike."""
    weight = {n: _weight(most[n], sizes[n]) for n in names}
    taken: list[list[str]] = []

    def fits(a: str, b: str) -> bool:
        apart = alive[a][1] < alive[b][0] or alive[b][1] < alive[a][0]
        return apart or over.get(a) == b or over.get(b) == a

    for name in sorted(names, key=lambda n: (-weight[n], alive[n], n)):
        free = [k for k, held in enumerate(taken) if all(fits(name, x) for x in held)]
        if free:
            best = min(free, key=lambda k: abs(max(weight[x] for x in taken[k]) - weight[name]))
            taken[best].append(name)
        else:
            taken.append([name])
    return {name: k for k, held in enumerate(taken) for name in held}


def _weight(most: int | None, size: Index) -> int:
    return typical(size) if most is None else most


def typical(size: Index) -> int:
    """At equal sizes."""
    return evaluate(size, dict.fromkeys(size.variables(), 64))


def weight(storages: Sequence[Storage]) -> int:
    """Bytes to compare plans by: at the bounds; where these do not tell, at equal sizes."""
    return sum(_weight(s.max_bytes, s.bytes) for s in storages)


def _storages(tensors: Sequence[Planned]) -> tuple[Storage, ...]:
    count = 1 + max((t.storage for t in tensors if t.storage is not None), default=-1)
    held = [[t for t in tensors if t.storage == k] for k in range(count)]
    most = [_largest([t.max_bytes for t in own]) for own in held]
    offsets: list[int | None] = [None] * count
    if None not in most:
        offset = 0
        for k, m in enumerate(most):
            offsets[k] = offset
            offset += -(-(m or 0) // ARENA_LINE) * ARENA_LINE
    return tuple(
        Storage(tuple(t.name for t in own), maximum(*[t.bytes for t in own]), most[k], offsets[k])
        for k, own in enumerate(held)
    )


def _largest(values: Sequence[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return max(known) if len(known) == len(values) else None


def arena_bytes(storages: Sequence[Storage]) -> int | None:
    """Of all storages side by side, at the bounds."""
    if not storages:
        return 0
    last = storages[-1]
    return None if last.offset is None or last.max_bytes is None else last.offset + last.max_bytes
