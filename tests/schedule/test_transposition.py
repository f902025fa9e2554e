# SPDX-License-Identifier: Apache-2.0
"""Permutations whose last dimensions differ move block by block through registers."""

from __future__ import annotations

from itertools import permutations
from typing import TypeGuard

import pytest
from msgspec.structs import replace

from tcsym.codegen import emit
from tcsym.index.expr import All, eq, var
from tcsym.index.values import evaluate
from tcsym.ir.loops import Branch, Kernel, Node, TransposeBlock
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.target.machine import Machine
from tcsym.types import DType
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, kernel, par, rd, st, v
from tests.schedule.targets import AVX2, AVX512
from tests.targets import target_of


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


@pytest.mark.parametrize("dtype, apart", [(DType.FLOAT32, 512), (DType.FLOAT64, 256)], ids=str)
def test_rows_of_the_target_that_share_cache_sets_are_finished_first(
    dtype: DType, apart: int
) -> None:
    """Their lines would be evicted half-written; else the source is read as it lies."""
    nest = par("r", "R", par("c", "C", st("O", v("c r"), rd("X", *v("r c"), dtype=dtype))))
    buffers = [buf("X", "R C", dtype=dtype), buf("O", "C R", dtype=dtype)]
    k = kernel("t", "R C", buffers, nest)
    out = map_cpu(k, AVX2, replace(Options(), parallelize=False)).kernel
    ((subscripts, around),) = [
        (x.source_subscripts, loops) for x, loops in walk(out.body) if is_direct(x)
    ]
    *_, outer, inner, half = around
    here = dict.fromkeys((x.variable for x in around), 0)
    line = 64 // dtype.bytes
    for rows, down in ((3 * apart, True), (3 * apart + 8, False)):
        sizes = {"R": rows, "C": 3 * apart, **here}
        for loop, moves_down in ((inner, down), (outer, not down)):
            at = tuple(evaluate(s, {**sizes, loop.variable: 1}) for s in subscripts)
            assert at == ((line, 0) if moves_down else (0, line))
        assert evaluate(half.upper, sizes) == 2  # blocks that share the source's lines


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [DType.BOOL, DType.UINT8, DType.INT16, DType.FLOAT16], ids=str)
def test_short_elements_move_in_blocks_of_sixteen_that_fill_a_line(
    dtype: DType, target: Machine
) -> None:
    nest = par("r", "R", par("c", "C", st("O", v("c r"), rd("X", *v("r c"), dtype=dtype))))
    buffers = [buf("X", "R C", dtype=dtype), buf("O", "C R", dtype=dtype)]
    k = kernel("t", "R C", buffers, nest)
    out = map_cpu(k, target, Options()).kernel
    found = {(x.block, x.height * dtype.bytes) for x, _ in walk(out.body) if is_direct(x)}
    assert found == {(16, 64)}
    for rows, columns in ((1, 1), (3, 40), (16, 17), (64, 16), (70, 33)):
        assert_same(k, out, {"R": rows, "C": columns})


@pytest.mark.parametrize("single", ["R", "C"])
def test_one_row_or_column_is_copied(single: str) -> None:
    k = permutation_of_rows()
    out = map_cpu(k, AVX512, Options()).kernel
    copies = [x for x, _ in walk(out.body) if isinstance(x, Branch) and knows(x, single)]
    (only,) = copies
    code = emit(replace(out, body=replace(only, orelse=None)), target_of("avx512"), 1).ir_text
    assert "load <16 x float>" in code and "store <16 x float>" in code
    assert "gather" not in code and "scatter" not in code and "element <" not in code
    for rows in (15, 16, 40):
        sizes = {"R": rows, "C": rows} | {single: 1}
        assert_same(k, out, sizes)


def permutation_of_rows() -> Kernel:
    nest = par("r", "R", par("c", "C", st("O", v("c r"), rd("X", *v("r c")))))
    return kernel("t", "R C", [buf("X", "R C"), buf("O", "C R")], nest)


def knows(x: Branch, size: str) -> bool:
    parts = x.condition.conditions if isinstance(x.condition, All) else (x.condition,)
    return eq(var(size), 1) in parts
