# SPDX-License-Identifier: Apache-2.0
"""Collapsed loops: every iteration once, in parts, with the work of a part."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.index.values import evaluate
from tcsym.ir.loops import THREADS, Kernel, Loop
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.order.coalesce import PART_WORK, PARTS, PARTS_EACH, coalesce_outermost
from tcsym.schedule.order.parallelise import parallelise
from tcsym.schedule.storage.place_allocations import place_allocations, without_allocations
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import AVX2

MIN_WORK = Options().min_work_per_thread
A, B, C, D, E = v("a b c d e")


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
    out = parallelise(coalesce_outermost(k, AVX2, Names.of(k), MIN_WORK, 3), AVX2)
    verify(out)
    assert_same(k, out, dict(zip("ABCD", sizes)))


@pytest.mark.parametrize("rows", [1, PARTS - 1, PARTS, PARTS + 1, 5 * PARTS + 3])
def test_parts_are_many_enough_for_threads_and_carry_their_work(rows: int) -> None:
    k = permutation()
    out = parallelise(coalesce_outermost(k, AVX2, Names.of(k), MIN_WORK, 3), AVX2)
    (parts,) = [x for x, _ in walk(out.body) if isinstance(x, Loop) and x.kind == "parallel"]
    for threads in (1, 2, 100):
        sizes = {"A": 1, "B": 1, "C": rows, "D": PART_WORK, THREADS: threads}
        count, most = evaluate(parts.upper, sizes), min(PARTS, PARTS_EACH * threads)
        assert min(rows, most) <= count <= 2 * most
        assert evaluate(parts.work, sizes) * count >= rows * PART_WORK


@pytest.mark.parametrize("rows", [1, 100, 5000, 1_000_000])
def test_a_part_of_short_rows_holds_many(rows: int) -> None:
    """The loops of a part are found by division, once for a few thousand operations."""
    k = permutation()
    out = parallelise(coalesce_outermost(k, AVX2, Names.of(k), MIN_WORK, 3), AVX2)
    (parts,) = [x for x, _ in walk(out.body) if isinstance(x, Loop) and x.kind == "parallel"]
    sizes = {"A": 1, "B": 1, "C": rows, "D": 3, THREADS: 2}
    count, work = evaluate(parts.upper, sizes), evaluate(parts.work, sizes)
    assert count == 1 or work >= PART_WORK // 2
    assert count * work >= rows * 3


def copies_first(private: bool) -> Kernel:
    """O(a,b,c) = sum over d of P(d) X(b,c,d), where P is a copy of Y(a,d), made before b."""
    total = up("O", (A, B, C), "add", op("mul", rd("P", D), rd("X", B, C, D)))
    sums = par("c", "C", st("O", (A, B, C), con(0.0)), red("d", "D", total))
    copy = par("e", "D", st("P", (E,), rd("Y", A, E)))
    body = par("a", "A", copy, par("b", "B", sums))
    buffers = [buf("X", "B C D"), buf("Y", "A D"), buf("O", "A B C")]
    return kernel("copies", "A B C D", [*buffers, buf("P", "D", private="a" * private)], body)


@pytest.mark.parametrize("min_work", [0, MIN_WORK])
@pytest.mark.parametrize(
    "sizes",
    [
        (0, 3, 2, 2),
        (1, 1, 1, 1),
        (3, 0, 2, 2),
        (3, 7, 11, 2),
        (1, 9, 3, 40),
        (1, 1, 50, 9),
        (2, 3, 5, 70),
    ],
)
def test_copies_are_made_again_in_each_part(sizes: tuple[int, ...], min_work: int) -> None:
    k = without(copies_first(True))
    out = parallelise(coalesce_outermost(k, AVX2, Names.of(k), min_work, 3), AVX2)
    whole = place_allocations(out)
    verify(whole)
    assert_same(copies_first(True), whole, dict(zip("ABCD", sizes)))


def test_a_part_with_copies_is_the_share_of_a_thread() -> None:
    k = without(copies_first(True))
    out = parallelise(coalesce_outermost(k, AVX2, Names.of(k), MIN_WORK, 3), AVX2)
    (parts,) = [x for x, _ in walk(out.body) if isinstance(x, Loop) and x.kind == "parallel"]
    sizes = {"A": 3, "B": 1000, "C": 100, "D": 100}
    for threads in (1, 2, 7):
        assert evaluate(parts.upper, sizes | {THREADS: threads}) == threads
        columns = {"A": 1, "B": 1, "C": 1000, "D": 1000, THREADS: threads}
        assert evaluate(parts.upper, columns) == threads
    few = {"A": 1, "B": 4, "C": 1, "D": 1, THREADS: 7}
    assert evaluate(parts.upper, few) == 1


def test_what_others_read_is_not_made_again() -> None:
    k = without(copies_first(False))
    assert coalesce_outermost(k, AVX2, Names.of(k), MIN_WORK, 3) == k


def without(k: Kernel) -> Kernel:
    return replace(k, body=without_allocations(k.body))
