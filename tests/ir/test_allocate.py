# SPDX-License-Identifier: Apache-2.0
"""Temporaries that live together lie apart; others share their place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from tcsym.index.expr import ZERO, Index
from tcsym.index.values import evaluate
from tcsym.ir.allocate import allocate, buffer_bytes
from tcsym.ir.loops import Allocate, Block, Branch, Kernel, Loop, Node
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.target.names import resolve_target
from tests.polyhedral.programs import SOURCES, scheduled

SIZES = (1, 7, 40)


def lifetimes(node: Node, around: tuple[str, ...] = ()) -> set[frozenset[str]]:
    """Names of buffers that exist at the same time, of one task or outside of all."""
    match node:
        case Allocate(names, body):
            inside = (*around, *names)
            return {frozenset(inside)} | lifetimes(body, inside)
        case Loop():
            return lifetimes(node.body, () if node.kind == "parallel" else around)
        case Block(body):
            return set[frozenset[str]]().union(*(lifetimes(x, around) for x in body))
        case Branch(_, then, orelse):
            found = lifetimes(then, around)
            return found if orelse is None else found | lifetimes(orelse, around)
        case _:
            return set()


def overlap(kernel: Kernel, a: str, b: str, sizes: dict[str, int]) -> bool:
    offsets = allocate(kernel).offsets

    def span(name: str) -> tuple[int, int]:
        first: Index = offsets[name]
        start = evaluate(first, sizes)
        return start, start + evaluate(buffer_bytes(kernel.buffer(name)), sizes)

    (first, end), (other, other_end) = span(a), span(b)
    return first < other_end and other < end


@pytest.mark.parametrize("name", SOURCES)
def test_what_lives_together_lies_apart(name: str) -> None:
    kernel = map_cpu(scheduled(name).kernel, resolve_target("cpu:avx2").machine, Options()).kernel
    storage = allocate(kernel)
    assert storage.offsets.keys() == {b.name for b in kernel.buffers if b.space == "arena"}
    for size in SIZES:
        sizes = dict.fromkeys(kernel.sizes, size)
        if any(v not in sizes for e in storage.offsets.values() for v in e.variables()):
            continue  # threads, too
        for together in lifetimes(kernel.body):
            placed = sorted(n for n in together if n in storage.offsets)
            for a, b in itertools.combinations(placed, 2):
                assert not overlap(kernel, a, b, sizes), (a, b, size)
        for n, offset in storage.offsets.items():
            end = evaluate(offset + buffer_bytes(kernel.buffer(n)), sizes)
            most = max(
                evaluate(storage.shared_bytes, sizes), evaluate(storage.private_bytes, sizes)
            )
            assert evaluate(offset, sizes) % 64 == 0 and end <= most


def test_lifetimes_that_follow_share_their_place() -> None:
    kernel = scheduled("softmax").kernel
    mapped = map_cpu(kernel, resolve_target("cpu:avx2").machine, Options()).kernel
    storage, alive = allocate(mapped), lifetimes(mapped.body)
    tasks = [sorted(x & storage.offsets.keys()) for x in alive]  # of versions, of which one runs
    most = [x for x in tasks if x and not any(set(x) < set(y) for y in tasks)]
    assert len({*map(tuple, most)}) > 2
    sizes = {"N": 9, "D": 40}

    def n_bytes(names: Iterable[str]) -> int:
        return sum(evaluate(buffer_bytes(mapped.buffer(n)), sizes) for n in names)

    for names in most:
        assert ZERO in [storage.offsets[n] for n in names]
    assert evaluate(storage.private_bytes, sizes) == max(map(n_bytes, most))
