# SPDX-License-Identifier: Apache-2.0
"""Stores of nests larger than the last cache -> stores that bypass the caches, under a condition.

An ordinary store first reads its line from memory and later evicts another line. Where a nest
touches more than the last cache holds, what it writes would be evicted before anybody reads it; a
streamed store (x86: non-temporal) moves the written bytes only. So the innermost loops of nests
that do little else than move data are there twice, streamed and not. Which runs is decided by sizes
and by the address of the output: vectors must lie at multiples of 16 bytes, and rows must be long,
because a line that is written in part costs more than it saves.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Call
from tcsym.index.expr import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Condition,
    Index,
    Max,
    Min,
    all_of,
    any_of,
    atom_parts,
    eq,
    factors_of,
    ge,
    index,
    minimum,
    mod,
    of_atom,
    var,
)
from tcsym.index.linear import linear_coefficient
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    THREADS,
    Allocate,
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    Value,
)
from tcsym.ir.traverse import map_node, subvalues, walk
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import find_loop, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.version.versioning import duplicate
from tcsym.target.machine import Machine

LONG_ROW_BYTES = 2048  # half a page: beside it, the ragged ends of a row are little
CHEAP_CALLS = frozenset(("fabs", "fma", "fmax", "fmin", "sqrt"))
SHARED_CACHE = 4  # by which part more than a cache pays off in it for several threads at once
LEAST_SHARE = 4  # of the last cache: less than a quarter of it written is not worth it


class _Streams(Struct, frozen=True):
    """Stores in the innermost loop `loop`, by identity, that may be streamed if `condition`."""

    loop: str
    stores: frozenset[int]
    buffers: frozenset[str]
    condition: Condition


def stream_stores(kernel: Kernel, machine: Machine, names: Names) -> Kernel:
    """Innermost loops of cheap nests get a streamed version for more than the last cache."""
    cache_bytes = machine.level("l3").bytes
    read = frozenset(a.buffer for a in accesses(kernel.body) if not a.written)
    for nest in _tops(kernel.body):
        for streams in _find_streams(kernel, nest, read, machine.stream_bytes):
            several = minimum(var(THREADS) - 1, 1)
            least = cache_bytes + 1 + several * (cache_bytes // SHARED_CACHE)
            large = _is_large(kernel, nest, streams.buffers, least, cache_bytes)
            condition = in_context(kernel, all_of((large, streams.condition)))
            if condition != FALSE:
                kernel = _with_version(kernel, streams, condition, names)
    return kernel


def _tops(node: Node) -> tuple[Loop, ...]:
    """Outermost loops, if their iterations may run in any order."""
    match node:
        case Loop():
            return (node,) if node.order == "parallel" else ()
        case Block(body):
            return tuple(x for part in body for x in _tops(part))
        case Branch(_, a, b):
            return _tops(a) + (() if b is None else _tops(b))
        case Allocate(_, body):
            return _tops(body)
        case _:
            return ()


def _with_version(kernel: Kernel, streams: _Streams, condition: Condition, names: Names) -> Kernel:
    for name in streams.buffers:
        kernel = kernel.with_buffer(replace(kernel.buffer(name), phase=_phase(name)))
    marked = map_node(find_loop(kernel.body, streams.loop), lambda x: _marked(x, streams.stores))
    kernel, copy, _ = duplicate(kernel, marked, names)
    body = replace_loop(kernel.body, streams.loop, lambda x: Branch(condition, copy, x))
    return replace(kernel, body=body)


def _marked(x: Node, stores: frozenset[int]) -> Node:
    return replace(x, streamed=True) if isinstance(x, Store) and id(x) in stores else x


def _phase(buffer: str) -> str:
    return f"{buffer}.phase"


# ---- which stores


def _find_streams(
    kernel: Kernel, nest: Loop, read: frozenset[str], unit: int
) -> tuple[_Streams, ...]:
    """None at all if the nest does more than move data and compute cheaply. `read`: buffers."""
    found: dict[str, list[tuple[Store, Condition]]] = {}
    for x, around in walk(nest):
        if isinstance(x, Loop | Block | Branch | Allocate):
            continue
        if not isinstance(x, Store) or not _is_cheap(x.value):
            return ()
        buffer = kernel.buffer(x.buffer)
        condition = FALSE if x.buffer in read else _can_stream(buffer, x, around, unit)
        if condition != FALSE:
            innermost = next(y for y in reversed(around) if y.kind == "serial")
            found.setdefault(innermost.variable, []).append((x, condition))
    return tuple(
        _Streams(
            loop,
            frozenset(id(x) for x, _ in stores),
            frozenset(x.buffer for x, _ in stores),
            all_of(c for _, c in stores),
        )
        for loop, stores in found.items()
    )


def _can_stream(buffer: Buffer, store: Store, around: tuple[Loop, ...], unit: int) -> Condition:
    """When the store writes whole vectors, at multiples of `unit` bytes, along long rows."""
    lane = around[-1]
    width = extent(lane).as_int() or 0
    vectors = lane.kind == "vector" and lane.mask is None
    if buffer.space != "argument" or not vectors or width * buffer.dtype.bytes < unit:
        return FALSE
    place = _place(buffer, store.subscripts)
    steps = [(x, linear_coefficient(place, x.variable)) for x in around]
    if any(step is None or step == ZERO for _, step in steps) or steps[-1][1] != ONE:
        return FALSE
    strip = math.prod(extent(x).as_int() or 1 for x in around if x.kind != "serial")
    loops = [(x, step) for x, step in steps if step is not None and x.kind == "serial"]
    if not loops or loops[-1][1] != index(strip):
        return FALSE
    first = substitute(place, {lane.variable: ZERO})
    moving = frozenset(x.variable for x in around)
    aligned = _is_aligned(buffer, first, moving, unit)
    return all_of((aligned, _has_long_rows(buffer, loops)))


def _place(buffer: Buffer, subscripts: tuple[Index, ...]) -> Index:
    """In elements from the buffer's start."""
    return sum((s * step for s, step in zip(subscripts, buffer.element_strides())), ZERO)


def _is_aligned(buffer: Buffer, place: Index, moving: frozenset[str], to: int) -> Condition:
    """Element `place` of the buffer is at a multiple of `to` bytes, wherever loops are."""
    return _is_multiple(var(_phase(buffer.name)) + place, moving, to // buffer.dtype.bytes)


def _is_multiple(e: Index, moving: frozenset[str], unit: int) -> Condition:
    """What stays the same, and each step of the variables `moving`, is a multiple of `unit`."""
    still, conditions = index(e.constant), []
    for atom, c in e.terms:
        factors = factors_of(atom)
        steps = [of_atom(f) for f in factors if of_atom(f).variables() & moving]
        if isinstance(atom, Min | Max) and c == 1:
            conditions += [_is_multiple(part, moving, unit) for part in atom_parts(atom)]
        elif not steps:
            still = still + of_atom(atom) * c
        else:
            rest = [of_atom(f) for f in factors if not of_atom(f).variables() & moving]
            conditions.append(eq(mod(math.prod(rest, start=index(c)), unit), 0))
    return all_of((eq(mod(still, unit), 0), *conditions))


def _has_long_rows(buffer: Buffer, loops: list[tuple[Loop, Index]]) -> Condition:
    """The innermost loop's row is long, or the next row begins where it ends."""
    if len(loops) < 2:
        return TRUE
    (_, following), (inner, step) = loops[-2:]
    row = extent(inner) * step
    return any_of((ge(row, LONG_ROW_BYTES // buffer.dtype.bytes), eq(following, row)))


# ---- how much


def _is_large(
    kernel: Kernel, nest: Loop, written: frozenset[str], least: Index, cache_bytes: int
) -> Condition:
    """The nest moves at least so many bytes, and a good part of the cache is written."""
    touched = {
        a.buffer: None
        for a in accesses(nest)
        if kernel.buffer(a.buffer).space == "argument"
        and all(isinstance(s, Index) for s in a.subscripts)
    }
    total = sum((_bytes(kernel.buffer(name)) for name in touched), ZERO)
    output = sum((_bytes(kernel.buffer(name)) for name in sorted(written)), ZERO)
    return all_of((ge(total, least), ge(output, cache_bytes // LEAST_SHARE)))


def _bytes(buffer: Buffer) -> Index:
    total = Index((), buffer.dtype.bytes)
    for extent_ in buffer.shape:
        total = total * extent_
    return total


def _is_cheap(v: Value) -> bool:
    """No function of more than an instruction or two is called."""
    return all(x.function in CHEAP_CALLS for x in subvalues(v) if isinstance(x, Call))
