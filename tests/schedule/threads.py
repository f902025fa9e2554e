# SPDX-License-Identifier: Apache-2.0
"""Runs the threads of a device's block, each to the next barrier or what its warp does together."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from tcsym.index.expr import index
from tcsym.ir.device import TILE_COLUMNS, TILE_ROWS, WARP, Operand, held, n_held
from tests.schedule.memory import Clock, Memory, Tracked

Request = tuple[Any, ...]  # what is asked for, the node that asks, and what is given
Body = Callable[..., Generator[Request, Any, None]]


class Copies:
    """Of a thread: what it has begun to copy. It is done as late as may be."""

    def __init__(self) -> None:
        self.begun: list[Callable[[], None]] = []
        self.groups: list[list[Callable[[], None]]] = []

    def begin(
        self, target: Tracked, to: Sequence[int], source: Memory, at: Sequence[int], there: bool
    ) -> None:
        place = tuple(to)
        target.take_off(place)
        self.begun.append(lambda: target.land(place, source[tuple(at)] if there else 0))

    def commit(self) -> None:
        self.groups.append(self.begun)
        self.begun = []

    def wait(self, pending: int) -> None:
        while len(self.groups) > pending:
            for copy in self.groups.pop(0):
                copy()


def run_block(
    body: Body,
    memory: dict[str, Memory],
    shape: tuple[int, ...],
    clock: Clock,
    order: Callable[[Iterable[int]], Sequence[int]],
) -> None:
    """`order`: in which threads take their turns."""
    clock.block, clock.epoch = clock.block + 1, 0
    copies = [Copies() for _ in range(math.prod(shape))]
    places = itertools.product(*map(range, shape))
    running = {n: body({**memory}, at, copies[n]) for n, at in enumerate(places)}
    asked: dict[int, Request] = {}
    answers: dict[int, Any] = {}
    while running:
        for n in order([n for n in running if n not in asked]):
            clock.thread = n
            try:
                asked[n] = running[n].send(answers.pop(n, None))
            except StopIteration:
                del running[n]
        answers = _served(asked, len(running), len(copies), clock)
    clock.thread = None
    left = any(c.begun or any(c.groups) for c in copies)
    assert not left, "nobody waits for a copy"


def _served(asked: dict[int, Request], running: int, threads: int, clock: Clock) -> dict[int, Any]:
    """Answers to requests that are complete; they are asked for no more."""
    if not asked:
        return {}
    nodes = {r[:2] for r in asked.values()}
    if len(nodes) == 1 and len(asked) == threads and next(iter(nodes))[0] == "barrier":
        asked.clear()
        clock.epoch += 1
        return {}
    answers: dict[int, Any] = {}
    for first in range(0, threads, WARP):
        warp = range(first, first + WARP)
        given = [asked[n] for n in warp if n in asked]
        if len(given) == WARP and len({r[:2] for r in given}) == 1 and given[0][0] != "barrier":
            answers |= zip(warp, _together(given))
    for n in answers:
        del asked[n]
    reached = f"{len(asked)} of {threads} threads, {running} of which have not ended"
    assert answers, f"{' and '.join(sorted(r[0] for r in nodes))} reached by {reached}"
    return answers


def _together(given: list[Request]) -> list[Any]:
    if given[0][0] == "multiply":
        return _multiplied(given)
    if given[0][0] == "matrices":
        return _exchanged(given)
    _, _, direction, lanes, _ = given[0]
    values = [r[-1] for r in given]
    steps = {
        "across": [k ^ lanes for k in range(WARP)],
        "up": [k - lanes for k in range(WARP)],
        "down": [k + lanes for k in range(WARP)],
    }
    return [values[f if 0 <= f < WARP else k] for k, f in enumerate(steps[direction])]


def _exchanged(given: list[Request]) -> list[list[float]]:
    """What each thread gets of matrices, of which lane 8 i + r gives row r of matrix i.

    Reference: PTX ISA, ldmatrix.
    """
    _, _, count, transposed, row = given[0]
    matrices = [[r[-1] for r in given[8 * i : 8 * i + 8]] for i in range(count)]
    n = len(row) // 4
    inside = [[(k // 4, k % 4 * n + e) for e in range(n)] for k in range(WARP)]
    return [
        [m[c][r] if transposed else m[r][c] for m in matrices for r, c in places]
        for places in inside
    ]


def _multiplied(given: list[Request]) -> list[list[float]]:
    """For each thread of the warp what the product adds to its elements."""
    depth = given[0][2]

    def places(operand: Operand, lane: int) -> list[tuple[int, ...]]:
        found = [held(operand, depth, index(lane), e) for e in range(n_held(operand, depth))]
        return [tuple(x.constant for x in at) for at in found]

    left: dict[tuple[int, ...], float] = {}
    right: dict[tuple[int, ...], float] = {}
    for lane, (_, _, _, a, b) in enumerate(given):
        left |= zip(places("left", lane), a, strict=True)
        right |= zip(places("right", lane), b, strict=True)
    assert len(left) == TILE_ROWS * depth and len(right) == depth * TILE_COLUMNS
    if depth == 8:
        left, right = ({at: _tf32(x) for at, x in m.items()} for m in (left, right))
    sums = {
        (i, j): sum(left[i, k] * right[k, j] for k in range(depth))
        for i in range(TILE_ROWS)
        for j in range(TILE_COLUMNS)
    }
    return [[sums[at] for at in places("target", lane)] for lane in range(WARP)]


def _tf32(x: float) -> float:
    (bits,) = struct.unpack("<I", struct.pack("<f", x))
    return float(struct.unpack("<f", struct.pack("<I", (bits + 0x1000) & ~0x1FFF))[0])
