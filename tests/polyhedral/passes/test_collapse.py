"""Collapsed loops: every iteration once, in parts, with the work of a part."""

from __future__ import annotations

import pytest

from tcsym.index_values import evaluate
from tcsym.loop_ir import Kernel, Loop, walk
from tcsym.loop_ir_verify import verify
from tcsym.polyhedral.passes.collapse import PART_WORK, PARTS, collapse_outermost
from tcsym.polyhedral.passes.common.names import Names
from tcsym.polyhedral.passes.parallelise import parallelise
from tests.polyhedral.passes.compare import assert_same
from tests.polyhedral.passes.naive import buf, con, kernel, op, par, rd, st, v
from tests.polyhedral.passes.targets import AVX2

A, B, C, D = v("a b c d")


def permutation() -> Kernel:
    value = op("add", rd("X", A, C, B, D), con(1.0))
    nest = par("a", "A", par("b", "B", par("c", "C", par("d", "D", st("O", (A, B, C, D), value)))))
    return kernel("perm", "A B C D", [buf("X", "A C B D"), buf("O", "A B C D")], nest)


@pytest.mark.parametrize(
    "sizes",
    [(0, 3, 2, 2), (1, 1, 1, 1), (3, 0, 2, 2), (5, 7, 11, 2), (5, 41, 11, 2), (3, 5, 2, 400)],
)
def test_every_iteration_runs_once(sizes: tuple[int, ...]) -> None:
    k = permutation()
    out = parallelise(collapse_outermost(k, AVX2, Names.of(k)), AVX2)
    verify(out)
    assert_same(k, out, dict(zip("ABCD", sizes)))


@pytest.mark.parametrize("rows", [1, PARTS - 1, PARTS, PARTS + 1, 5 * PARTS + 3])
def test_parts_are_many_enough_for_threads_and_carry_their_work(rows: int) -> None:
    k = permutation()
    out = parallelise(collapse_outermost(k, AVX2, Names.of(k)), AVX2)
    (parts,) = [x for x, _ in walk(out.body) if isinstance(x, Loop) and x.kind == "parallel"]
    sizes = {"A": 1, "B": 1, "C": rows, "D": PART_WORK}
    count = evaluate(parts.upper, sizes)
    assert min(rows, PARTS) <= count <= 2 * PARTS
    assert evaluate(parts.work, sizes) * count >= rows * PART_WORK


@pytest.mark.parametrize("rows", [1, 100, 5000, 1_000_000])
def test_a_part_of_short_rows_holds_many(rows: int) -> None:
    """The loops of a part are found by division, once for a few thousand operations."""
    k = permutation()
    out = parallelise(collapse_outermost(k, AVX2, Names.of(k)), AVX2)
    (parts,) = [x for x, _ in walk(out.body) if isinstance(x, Loop) and x.kind == "parallel"]
    sizes = {"A": 1, "B": 1, "C": rows, "D": 3}
    count, work = evaluate(parts.upper, sizes), evaluate(parts.work, sizes)
    assert count == 1 or work >= PART_WORK // 2
    assert count * work >= rows * 3
