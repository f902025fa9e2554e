# SPDX-License-Identifier: Apache-2.0
"""Kernels that no device could run are refused, with the place."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Const
from tcsym.index.expr import ONE, eq, floordiv, index, lt, mod, var
from tcsym.ir.device import (
    WARP,
    Barrier,
    BeginCopy,
    CommitCopies,
    GridBarrier,
    LoadMatrices,
    MatrixMultiply,
    WaitCopies,
    not_on_a_cpu,
)
from tcsym.ir.loops import (
    Allocate,
    Branch,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Shuffle,
    Store,
    TransposeBlock,
    block,
)
from tcsym.ir.verify import ADMITTED, InternalError, verify
from tcsym.types import DType
from tests.ir.device_kernels import (
    BF16,
    CASES,
    F32,
    I,
    J,
    M,
    N,
    T,
    allocated,
    argument,
    loop,
    made,
    temporary,
)
from tests.schedule.naive import con, rd, st

BUFFERS = [
    argument("X", "N"),
    argument("Y", "N"),
    replace(argument("Z", "N"), strides=(M,)),
    temporary("P", "shared", 64),
    temporary("Q", "arena", 64),
    temporary("R", "register", 8),
    temporary("L", "register", 8, dtype=BF16),
    temporary("C", "arena", dtype=DType.INT32),
    temporary("D", "arena"),
    temporary("S", "shared", 16, 24, dtype=BF16),
]


def kernel(body: Node) -> Kernel:
    return made("wrong", "M N", BUFFERS, body)


def grid(*body: Node, upper: object = N) -> Loop:
    return loop("block", "b", upper, allocated("P", *body))  # type: ignore[arg-type]


def threads(*body: Node, upper: int = WARP) -> Loop:
    return loop("thread", "t", upper, *body)


def store() -> Store:
    return st("P", (T,), con(0.0))


AGAIN = st("P", (var("u"),), con(1.0))


def another() -> Loop:
    """A second grid of one shape."""
    inner = loop("thread", "u", WARP, AGAIN)
    return loop("block", "c", N, allocated("P", inner))


def shuffled(lanes: int = 1) -> Node:
    return allocated(
        "R", st("R", (0,), con(0.0)), Store("R", (ONE,), Shuffle("up", lanes, rd("R", 0), F32))
    )


def copy(**changes: object) -> Node:
    begun = replace(BeginCopy("P", (T,), "X", (T,), 1, lt(T, N)), **changes)  # type: ignore[arg-type]
    return block(begun, CommitCopies(), WaitCopies())


def staying(*nodes: Node) -> Node:
    return allocated("C", loop("grid", "s", M, block(*nodes)))


MEET = GridBarrier("C")
ZERO = (index(0),)
PRODUCT = MatrixMultiply("R", ZERO, "L", ZERO, "L", ZERO, 16)
LOAD = LoadMatrices("L", ZERO, "S", ZERO * 2, ((8, 0), (0, 8)), mod(T, WARP))


def loaded(**changes: object) -> Loop:
    load = replace(LOAD, **changes)  # type: ignore[arg-type]
    return grid(Allocate(("S",), threads(allocated("R L", load))))


LANES = Loop("l", index(0), index(4), Barrier(), "vector")
GOOD = {
    "store": grid(threads(store())),
    "two nests": grid(threads(store()), Barrier(), loop("thread", "u", WARP, AGAIN)),
    "barrier under a size": grid(threads(Branch(lt(M, N), Barrier()))),
    "barrier under a block": grid(threads(Branch(eq(var("b"), 0), Barrier()))),
    "barrier in a loop": grid(threads(loop("serial", "k", M + var("b"), Barrier()))),
    "shuffle of a warp": grid(threads(Branch(eq(floordiv(T, WARP), 0), shuffled()), upper=64)),
    "copy": grid(threads(copy())),
    "product": grid(threads(allocated("R L", PRODUCT))),
    "matrices": loaded(),
    "transposed matrices": loaded(transposed=True, steps=((8, 0),)),
    "steps of the host": loop("serial", "s", M, Branch(lt(M, N), grid(threads(store())))),
    "steps of blocks that stay": staying(
        Branch(lt(M, N), block(grid(threads(store())), MEET)), another(), MEET
    ),
    "arena outside": allocated("Q", grid(threads(st("Q", (T,), con(0.0))))),
}
BAD = {
    "no thread does": allocated("C", grid(threads(store())), MEET),
    "a loop outside of a": staying(loop("grid", "k", 2, block(grid(threads(store())), MEET))),
    "do not wait for each other": staying(grid(threads(store())), another(), MEET),
    "blocks of several shapes": staying(grid(threads(store(), upper=64)), MEET, another(), MEET),
    "does not count blocks": allocated("D", staying(grid(threads(store())), GridBarrier("D"))),
    "what counts blocks is used": staying(
        grid(threads(Store("C", (), Const(0, DType.INT32)))), MEET
    ),
    "allocated by blocks that stay": allocated(
        "C", loop("grid", "s", M, Allocate(("Q",), block(grid(threads(store())), MEET)))
    ),
    "a barrier of the grid in a block": allocated("C", grid(threads(store()), MEET)),
    "no thread does this": Store("Y", ZERO, con(0.0)),
    "a loop outside of a grid": threads(Store("Y", (T,), con(0.0))),
    "allocated outside of a grid": Allocate(("R",), grid(threads(store()))),
    "a statement of no thread": grid(block(st("P", (0,), con(0.0)), threads(store()))),
    "a grid without threads": grid(Barrier()),
    "a grid of too many dimensions": loop(
        "block", "d", 2, loop("block", "e", 2, loop("block", "f", 2, grid(threads(store()))))
    ),
    "a block loop that does not run from 0": replace(grid(threads(store())), lower=index(1)),
    "a block loop that was not proved": replace(grid(threads(store())), order="reduction"),
    "a grid that is no box": loop("block", "c", N, grid(threads(store()), upper=var("c"))),
    "a block loop inside others": grid(loop("serial", "k", 2, loop("block", "c", 2, threads()))),
    "of another shape than": grid(threads(store()), Barrier(), loop("thread", "u", 16, Barrier())),
    "not part of a nest": grid(threads(store(), loop("thread", "u", 4, Barrier()))),
    "a thread loop inside a vector": grid(
        threads(Loop("l", index(0), index(4), loop("thread", "u", 4), "vector"))
    ),
    "bounds are not constant from 0": grid(Loop("t", index(0), N, store(), "thread")),
    "a mask on a loop": replace(grid(threads(store())), mask=N),
    "shared memory inside a block": loop("block", "b", N, threads(Allocate(("P",), store()))),
    "arena memory inside a block": grid(threads(Allocate(("Q",), store()))),
    "a barrier that not all threads": grid(threads(Branch(lt(T, 4), Barrier()))),
    "a barrier that not all": grid(replace(threads(Barrier()), mask=N)),
    "a barrier that not": grid(threads(loop("serial", "k", T, Barrier()))),
    "a barrier that": grid(threads(loop("serial", "k", T, Branch(lt(var("k"), 1), Barrier())))),
    "this is not done in lanes": grid(threads(LANES)),
    "not all threads count": grid(threads(Branch(lt(T, 4), CommitCopies()))),
    "fewer than no copies": grid(threads(WaitCopies(-1))),
    "not from global into shared": grid(threads(copy(target="Y", target_subscripts=(T,)))),
    "a copy of other than": grid(threads(copy(elements=3))),
    "a copy across rows": grid(threads(copy(source="Z"))),
    "a warp that is not together": grid(threads(Branch(lt(T, 4), shuffled()))),
    "a warp that is not": grid(threads(Branch(eq(mod(T, 2), 0), allocated("R L", PRODUCT)))),
    "a warp of fewer threads": grid(threads(shuffled(), upper=16)),
    "buffer R is not allocated": grid(
        threads(Allocate(("L",), Store("P", (T,), Shuffle("up", 1, rd("R", 0), F32))))
    ),
    "a shuffle from outside": grid(threads(shuffled(WARP))),
    "a shuffle inside another value": grid(
        threads(
            Allocate(
                ("R",),
                Store("R", ZERO, Binary("add", Shuffle("up", 1, rd("R", 1), F32), con(1.0), F32)),  # type: ignore[arg-type]
            )
        )
    ),
    "sums in another type": grid(threads(allocated("R L", replace(PRODUCT, target="L")))),
    "factors of another type": grid(threads(allocated("R L", replace(PRODUCT, left="R")))),
    "a depth that is none": grid(threads(allocated("R L", replace(PRODUCT, depth=4)))),
    "does not hold all": grid(
        threads(allocated("R L", replace(PRODUCT, left_subscripts=(index(1),))))
    ),
    "is not in registers": grid(threads(allocated("R L", replace(PRODUCT, target="P")))),
    "not loaded from shared memory": loaded(source="R", source_subscripts=ZERO),
    "the lane of another thread": loaded(lane=mod(T + 1, WARP)),
    "matrices that change their type": loaded(target="R"),
    "other than two or four matrices": loaded(steps=()),
    "not at multiples of 16 bytes": loaded(source_subscripts=(index(0), index(4))),
    "L does not hold all elements": loaded(target_subscripts=(index(1),)),
    "a race, P": grid(threads(st("P", (floordiv(T, 2),), con(0.0)))),
    "rank of P": grid(threads(st("P", (T, T), con(0.0)))),
    "a parallel loop on a device": Loop("b", index(0), N, store(), "parallel"),
    "a TransposeBlock on a device": grid(
        threads(TransposeBlock("P", (I, J), "X", (J, I), M, N, 8))
    ),
    "a HorizontalReduce on a device": grid(
        threads(Store("P", (T,), HorizontalReduce("add", "h", 4, rd("X", var("h")), F32)))
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_well_formed_kernels_pass(name: str) -> None:
    verify(kernel(GOOD[name]), "device")


@pytest.mark.parametrize("text", BAD)
def test_ill_formed_kernels_are_refused(text: str) -> None:
    with pytest.raises(InternalError, match=text):
        verify(kernel(BAD[text]), "device")


@pytest.mark.parametrize("name", CASES)
def test_no_kernel_for_a_device_is_one_for_a_cpu(name: str) -> None:
    with pytest.raises(InternalError, match="on a cpu"):
        verify(CASES[name].kernel)


def test_what_only_a_device_has_is_refused_on_a_cpu() -> None:
    nodes = (Barrier(), CommitCopies(), WaitCopies(), PRODUCT, shuffled())
    for node in nodes:
        with pytest.raises(InternalError, match="on a cpu"):
            verify(replace(kernel(node), buffers=tuple(b for b in BUFFERS if b.space != "shared")))
    assert "only a device" in str(not_on_a_cpu(Barrier()))


def test_every_kind_of_target_admits_what_all_have() -> None:
    for admitted in ADMITTED.values():
        assert {"serial", "vector", "unrolled"} <= admitted.loops
        assert {"argument", "register", "stack", "arena"} <= admitted.spaces
