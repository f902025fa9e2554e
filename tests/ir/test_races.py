# SPDX-License-Identifier: Apache-2.0
"""What isl says of races on shared memory is what a run of the kernel finds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from msgspec.structs import replace

from tcsym.index.expr import (
    Condition,
    Index,
    eq,
    floordiv,
    ge,
    index,
    lt,
    maximum,
    minimum,
    mod,
    var,
)
from tcsym.ir.device import Barrier, BeginCopy, CommitCopies, WaitCopies
from tcsym.ir.loops import Allocate, Branch, Kernel, Loop, Node, block
from tcsym.ir.races import races
from tcsym.ir.text import kernel_text
from tcsym.ir.verify import InternalError, verify
from tcsym.types import DType
from tests.ir.device_kernels import I, J, N, T, allocated, argument, loop, made, rd, st, temporary
from tests.schedule.execute import execute
from tests.schedule.naive import con

ROWS, COLUMNS = 2, 3
THREADS = ROWS * COLUMNS
ELEMENTS = 3 * THREADS
LANE = COLUMNS * I + J


class Draft:
    """A random body of a block's threads."""

    def __init__(self, seed: int, copies: bool) -> None:
        self.chance = random.Random(seed)
        self.copies = copies
        self.loops = 0

    def subscript(self, around: tuple[str, ...]) -> Index:
        steps = [var(v) for v in around] or [index(1)]
        return self.chance.choice(
            [
                LANE,
                THREADS - 1 - LANE,
                LANE + THREADS * minimum(steps[-1], 2),
                LANE + THREADS * mod(steps[-1], 2),
                LANE + steps[-1],
                floordiv(LANE, 2),
                steps[-1] + THREADS,
                2 * LANE,
                minimum(LANE, 2),
                maximum(I, steps[-1]),
                index(4),
            ]
        )

    def condition(self, around: tuple[str, ...], uniform: bool) -> Condition:
        steps = [var(v) for v in around] or [N]
        choices = [eq(steps[-1], 1), lt(steps[-1], 2)]
        choices += [] if uniform else [eq(LANE, 0), lt(LANE, 3), ge(J, 1), eq(I, steps[-1])]
        return self.chance.choice(choices)

    def node(self, around: tuple[str, ...], depth: int) -> Node:
        kinds = ["barrier", "barrier", "store", "load", "loop", "if", "all if"]
        kinds += ["copy", "commit", "wait"] if self.copies else []
        match self.chance.choice(kinds if depth else [*kinds[:4], *kinds[7:]]):
            case "store":
                return st("P", (self.subscript(around),), con(1.0))
            case "load":
                return st("R", (0,), rd("P", self.subscript(around)))
            case "barrier":
                return Barrier()
            case "loop":
                self.loops += 1
                name = f"c{self.loops}"
                bound = N if self.chance.random() < 0.3 else index(3)
                return loop("serial", name, bound, *self.nodes((*around, name), depth - 1))
            case "if":
                inner = self.subscript(around)
                return Branch(self.condition(around, False), st("P", (inner,), con(2.0)))
            case "all if":
                inner_nodes = block(*self.nodes(around, depth - 1))
                return Branch(self.condition(around, True), inner_nodes)
            case "copy":
                at = self.subscript(around)
                return BeginCopy("P", (at,), "X", (at,), 1, self.condition(around, False))
            case "commit":
                return CommitCopies()
            case _:
                return WaitCopies(self.chance.choice([0, 0, 1, 2]))

    def nodes(self, around: tuple[str, ...], depth: int) -> list[Node]:
        return [self.node(around, depth) for _ in range(self.chance.randint(2, 4))]

    def kernel(self) -> Kernel:
        fill = [st("P", (LANE + k * THREADS,), con(0.0)) for k in range(3)]
        ends = [CommitCopies(), WaitCopies()] if self.copies else []
        body = allocated("R", *fill, Barrier(), *self.nodes((), 2), *ends)
        threads = loop("thread", "i", ROWS, loop("thread", "j", COLUMNS, body))
        buffers = [
            argument("X", "N"),
            temporary("P", "shared", ELEMENTS),
            temporary("R", "register", 1),
        ]
        return made("draft", "N", buffers, loop("block", "b", 1, allocated("P", threads)))


def runs(kernel: Kernel, n: int) -> bool:
    """Without a race at that size."""
    x = replace(kernel.buffer("X"), shape=(index(ELEMENTS),))
    try:
        execute(kernel.with_buffer(x), {"N": n}, {"X": np.ones(ELEMENTS, np.float32)})
    except AssertionError as e:
        assert "race" in str(e) or "still being copied" in str(e) or "unset" in str(e), e
        return False
    return True


@pytest.mark.parametrize("copies", [False, True], ids=["plain", "copies"])
@pytest.mark.parametrize("seed", range(60))
def test_proofs_agree_with_runs(seed: int, copies: bool) -> None:
    kernel = Draft(seed, copies).kernel()
    proved = not list(races(kernel))
    assert proved == all(runs(kernel, n) for n in range(6)), kernel_text(kernel)


def one_block(body: Node) -> Node:
    threads = loop("thread", "t", 4, body)
    return Loop("b", index(0), index(1), Allocate(("P",), threads), "block", "parallel")


def of(body: Node, size: int = 64) -> Kernel:
    buffers = [argument("X", "N"), temporary("P", "shared", size), temporary("R", "register", 1)]
    return made("races", "N", buffers, body)


def test_steps_of_the_host_are_the_same_for_all_threads() -> None:
    """Its loop may start anywhere, and a step is over before the next one."""
    step = var("s")
    body = one_block(st("P", (T + 4 * mod(step, 2),), con(1.0)))
    verify(of(Loop("s", N - 7, N, body)), "device")
    verify(of(Loop("s", N - 7, N, one_block(st("P", (4 * T + mod(step, 4),), con(1.0))))), "device")
    with pytest.raises(InternalError, match="race"):
        verify(of(Loop("s", N - 7, N, one_block(st("P", (mod(T + step, 2),), con(1.0))))), "device")


def test_a_barrier_that_may_not_be_reached_parts_nothing() -> None:
    """Its condition is one that isl cannot express."""
    write, read = st("P", (T,), con(1.0)), allocated("R", st("R", (0,), rd("P", 3 - T)))
    verify(of(one_block(block(write, Barrier(), read))), "device")
    for condition in (eq(mod(var("c") * N, 3), 0), lt(var("c"), 1)):
        some = loop("serial", "c", 2, Branch(condition, Barrier()))
        kernel = of(one_block(block(write, some, read)))
        assert bool(list(races(kernel))) == (condition != lt(var("c"), 1))


RACING = st("P", (index(0),), con(2.0))


def test_steps_of_the_host_are_known() -> None:
    never = one_block(Branch(ge(var("s"), 2), RACING))
    verify(of(Loop("s", index(-3), index(2), never)), "device")
    with pytest.raises(InternalError, match="race"):
        verify(
            of(Loop("s", index(-3), index(0), one_block(Branch(lt(var("s"), 0), RACING)))), "device"
        )


def test_sides_of_a_branch_are_apart() -> None:
    def kernel(other: Index) -> Kernel:
        sides = Branch(lt(T, 2), st("P", (T,), con(1.0)), st("P", (other,), con(1.0)))
        return of(one_block(sides))

    verify(kernel(T), "device")
    assert list(races(kernel(T - 2)))


def test_masked_threads_touch_nothing() -> None:
    threads = replace(loop("thread", "t", 4, st("P", (mod(T, 2),), con(1.0))), mask=index(2))
    grid = Loop("b", index(0), index(1), Allocate(("P",), threads), "block", "parallel")
    verify(of(grid), "device")


READ_OTHERS = st("R", (0,), rd("P", 3 - T))
COPY = BeginCopy("P", (T,), "X", (T,), 1, lt(T, N))
SEQUENCES = {
    "begin commit wait barrier read": True,
    "barrier begin commit wait barrier read": True,
    "begin commit wait read barrier": False,
    "begin commit barrier wait read": False,
    "begin commit barrier read wait": False,
    "begin wait barrier commit read wait": False,
    "read begin commit wait": False,
    "read barrier begin commit wait": True,
    "begin commit commit wait1 barrier read wait": True,
    "begin commit wait1 barrier read wait": False,
}


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_others_see_copies_behind_a_wait_and_a_barrier(sequence: str) -> None:
    nodes: dict[str, Node] = {
        "begin": COPY,
        "commit": CommitCopies(),
        "wait": WaitCopies(),
        "wait1": WaitCopies(1),
        "barrier": Barrier(),
        "read": READ_OTHERS,
    }
    fill = [st("P", (T,), con(0.0)), Barrier()]
    body = allocated("R", *fill, *(nodes[word] for word in sequence.split()))
    kernel = of(one_block(body))
    assert (not list(races(kernel))) == SEQUENCES[sequence] == runs(kernel, 3)


def test_copies_of_several_elements_overlap() -> None:
    def kernel(step: int) -> Kernel:
        begun = replace(COPY, target_subscripts=(step * T,), elements=2)
        return of(one_block(block(begun, CommitCopies(), WaitCopies())))

    verify(kernel(2), "device")
    assert list(races(kernel(1)))


def test_gathered_elements_may_be_any() -> None:
    positions = replace(rd("X", T, dtype=DType.INT64), dtype=DType.INT64)
    read = allocated("R", st("R", (0,), rd("P", positions)))
    write = st("P", (T,), con(1.0))
    assert [x.buffer for x in races(of(one_block(block(write, read))))] == ["P"]
    assert not list(races(of(one_block(block(write, Barrier(), read)))))
