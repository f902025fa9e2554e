"""Permutations whose last dimensions differ move block by block through registers."""

from __future__ import annotations

from itertools import permutations
from typing import TypeGuard

import pytest

from tcsym.loop_ir import Kernel, Node, TransposeBlock, walk
from tcsym.options import Options
from tcsym.polyhedral.map_cpu import map_cpu
from tests.polyhedral.passes.compare import assert_same
from tests.polyhedral.passes.naive import buf, kernel, par, rd, st, v
from tests.polyhedral.passes.targets import AVX2


def permutation(order: str) -> Kernel:
    """O(order) = X(abc)"""
    place = v(" ".join(order))
    nest = st("O", place, rd("X", *v("a b c")))
    for name in reversed(order):
        nest = par(name, name.upper(), nest)
    shape = " ".join(order.upper())
    return kernel(f"perm_{order}", "A B C", [buf("X", "A B C"), buf("O", shape)], nest)


def is_direct(x: Node) -> TypeGuard[TransposeBlock]:
    """From one tensor to the other, not by way of interleaved copies."""
    return isinstance(x, TransposeBlock) and (x.source, x.target) == ("X", "O")


@pytest.mark.parametrize("order", ["".join(p) for p in permutations("abc")])
def test_permutations_of_three_dimensions(order: str) -> None:
    k = permutation(order)
    out = map_cpu(k, AVX2, Options()).kernel
    blocks = [x for x, _ in walk(out.body) if is_direct(x)]
    assert bool(blocks) == (order[-1] != "c")
    for sizes in ((1, 1, 1), (3, 2, 17), (9, 8, 7), (20, 3, 5)):
        assert_same(k, out, dict(zip("ABC", sizes)))


def test_a_permutation_whose_slow_dimensions_are_not_last_is_one_block_copy() -> None:
    out = map_cpu(permutation("cba"), AVX2, Options()).kernel
    blocks = [x for x, _ in walk(out.body) if is_direct(x)]
    assert {(x.source_row, x.target_column) for x in blocks} == {(-3, -3)}
