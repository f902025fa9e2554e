# SPDX-License-Identifier: Apache-2.0
"""Iterations of parallel loops: what they may all write, and what each needs to itself."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.index.expr import ZERO, Index, floordiv, index, lt, maximum, minimum, var
from tcsym.ir.loops import Branch, Loop, Node, Space, TransposeBlock, block
from tcsym.ir.verify import InternalError, verify
from tests.ir.device_kernels import I, J, N, allocated, argument, made, rd, st, temporary
from tests.schedule.naive import con

ONE_ELEMENT = st("P", (ZERO,), con(1.0))


def parallel(*body: Node) -> Node:
    return Loop("i", ZERO, N, block(*body), "parallel", "parallel")


def serial(lower: int, upper: Index | int, *body: Node) -> Node:
    return Loop("j", index(lower), index(upper), block(*body), "serial", "sequential")


def check(body: Node, space: Space = "arena") -> None:
    buffers = [argument("X", "N"), argument("Y", "N"), temporary("P", space, 64)]
    verify(made("parallel", "N", buffers, body))


@pytest.mark.parametrize("space", ["arena", "stack"])
def test_one_element_of_a_shared_buffer_is_refused(space: Space) -> None:
    with pytest.raises(InternalError, match="write one element of P"):
        check(allocated("P", parallel(ONE_ELEMENT)), space)
    check(parallel(allocated("P", ONE_ELEMENT)), space)
    check(allocated("P", ONE_ELEMENT), space)


def test_what_varies_with_the_loop_tells_elements_apart() -> None:
    check(allocated("P", parallel(st("P", (I,), con(1.0)))))
    check(allocated("P", parallel(serial(0, I, st("P", (J,), con(1.0))))))
    check(allocated("P", parallel(Branch(lt(I, 1), ONE_ELEMENT))))
    with pytest.raises(InternalError, match="write one element of P"):
        check(allocated("P", parallel(serial(0, 4, st("P", (J,), con(1.0))))))
    with pytest.raises(InternalError, match="write one element of P"):
        check(allocated("P", parallel(Branch(lt(N, 1), ONE_ELEMENT))))


def test_a_block_is_written_like_an_element() -> None:
    moved = TransposeBlock("P", (ZERO, ZERO), "X", (ZERO, I), index(8), index(8), 8)
    buffers = [argument("X", "N N"), temporary("P", "stack", 8, 8)]
    with pytest.raises(InternalError, match="write one element of P"):
        verify(made("parallel", "N", buffers, allocated("P", parallel(moved))))
    verify(made("parallel", "N", buffers, parallel(allocated("P", moved))))


def test_arguments_are_shared() -> None:
    check(parallel(st("Y", (I,), rd("X", floordiv(I, 2)))))
    with pytest.raises(InternalError, match="write one element of Y"):
        check(parallel(st("Y", (ZERO,), rd("X", I))))


def test_nests_share_no_temporary_that_is_private_to_one_of_them() -> None:
    """A copy whose loop has another name, or none, has storage of its own."""

    def both(copy: Node) -> None:
        own = replace(temporary("P", "stack", 64), private=frozenset("j"))
        buffers = [argument("X", "N"), own, temporary("Q", "stack", 64)]
        choice = Branch(lt(N, 9), serial(0, 4, st("P", (J,), con(1.0))), copy)
        verify(made("both", "N", buffers, allocated("P", allocated("Q", choice))))

    def copied(buffer: str) -> Node:
        return Loop("l", ZERO, index(4), st(buffer, (var("l"),), con(1.0)))

    both(copied("Q"))
    for node in (copied("P"), ONE_ELEMENT):
        with pytest.raises(InternalError, match=r"P outside of \['j'\], which it is private to"):
            both(node)


def test_a_loop_of_one_iteration_may_write_one_element() -> None:
    """How long it is follows from the loop around it."""

    def nested(n: int) -> Node:
        parts = floordiv(minimum(4 - J, n) + maximum(1, N) - 1, maximum(1, N))
        return serial(0, 4, Loop("i", ZERO, parts, ONE_ELEMENT, "parallel", "parallel"))

    check(allocated("P", nested(1)))
    with pytest.raises(InternalError, match="write one element of P"):
        check(allocated("P", nested(2)))
