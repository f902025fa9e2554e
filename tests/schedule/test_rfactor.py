# SPDX-License-Identifier: Apache-2.0
"""Reductions of whole tensors run in parallel parts; others stay as they are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.index.expr import ZERO, ge, var
from tcsym.index.values import evaluate
from tcsym.ir.loops import Block, Branch, Kernel, Loop
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.combine.accumulate import accumulate_privately
from tcsym.schedule.combine.rfactor import MOST_PARTS, PART_WORK, rfactor
from tcsym.schedule.order.parallelise import parallelise
from tcsym.schedule.storage.contract_storage import contract_storage
from tcsym.schedule.storage.place_allocations import place_allocations, without_allocations
from tcsym.schedule.storage.privatise import privatise
from tests.schedule import naive
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, seq, st, up, v
from tests.schedule.targets import AVX2, some_sizes

T, M, N = v("t m n")


def split(k: Kernel) -> Kernel:
    bare = replace(k, body=without_allocations(k.body))
    names = Names.of(bare)
    out = rfactor(privatise(accumulate_privately(bare, names)), AVX2, names)
    out = place_allocations(parallelise(contract_storage(out), AVX2))
    verify(out)
    return out


def parallel(k: Kernel) -> list[Loop]:
    return [x for x, _ in walk(k.body) if isinstance(x, Loop) and x.kind == "parallel"]


def total_and_most() -> Kernel:
    x = rd("X", M, N)
    sums = red("m", "M", red("n", "N", up("S", (), "add", x), up("B", (), "max", x)))
    body = Block((st("S", (), con(0.0)), st("B", (), con(-9.0)), sums))
    return kernel("total", "M N", [buf("X", "M N"), buf("S", ()), buf("B", ())], body)


@pytest.mark.parametrize("name", naive.ALL)
def test_results_are_kept(name: str) -> None:
    k = naive.ALL[name]()
    out = split(k)
    for sizes in some_sizes(k)[-2:]:
        if all(sizes.values()):
            assert_same(k, out, sizes)


@pytest.mark.parametrize("rows", [0, 1, 7, 33])
def test_several_accumulators_of_one_pass(rows: int) -> None:
    k = total_and_most()
    out = split(k)
    assert len(parallel(out)) == 1
    assert_same(k, out, {"M": rows, "N": 1024})


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_sum_that_some_sizes_never_begin(rows: int) -> None:
    """Its parts were added to an element that nobody had set."""
    some, (s, x) = ge(var("N"), 2), (("S", ()), rd("X", M))
    sums = red("m", "M", up("B", (), "max", x), Branch(some, up(*s, "add", x)))
    kept = Branch(some, st("O", (ZERO,), rd("S")))
    body = Block((st("B", (), con(-9.0)), Branch(some, st(*s, con(0.0))), sums, kept))
    buffers = [buf("X", "M"), buf("O", "N"), buf("S", ()), buf("B", ())]
    buffers = [replace(b, space="arena") if b.name in "SB" else b for b in buffers]
    k = replace(kernel("some", "M N", buffers, body), arguments=("X", "O"))
    out = rfactor(k, AVX2, Names.of(k))
    assert out != k
    for n in (1, 2):
        assert_same(place_allocations(k), place_allocations(out), {"M": rows, "N": n})


def test_parts_follow_from_the_work() -> None:
    (parts,) = parallel(split(total_and_most()))
    counts = [evaluate(parts.upper, {"M": m, "N": 1024}) for m in (0, 1, 100, 1 << 20)]
    assert counts[:2] == [0, 1] and 1 < counts[2] < counts[3] == MOST_PARTS


def test_rows_of_a_parallel_loop_are_not_split() -> None:
    row = Block((st("S", (M,), con(0.0)), red("n", "N", up("S", (M,), "add", rd("X", M, N)))))
    k = kernel("rows", "M N", [buf("X", "M N"), buf("S", "M")], par("m", "M", row))
    assert [x.variable for x in parallel(split(k))] == ["m"]


def test_steps_of_a_recurrence_are_not_split() -> None:
    step = Block((st("S", (T,), con(0.0)), red("n", "N", up("S", (T,), "add", rd("X", T, N)))))
    k = kernel("steps", "T N", [buf("X", "T N"), buf("S", "T")], seq("t", "T", step))
    assert not parallel(split(k))


def test_a_loop_that_also_leaves_other_results_is_not_split() -> None:
    both = red("n", "N", up("S", (), "add", rd("X", N)), up("C", (N,), "add", rd("X", N)))
    body = Block((st("S", (), con(0.0)), par("m", "N", st("C", (M,), con(1.0))), both))
    k = kernel("both", "N", [buf("X", "N"), buf("S", ()), buf("C", "N")], body)
    assert [x.variable for x in parallel(split(k))] == ["m"]
    assert_same(k, split(k), {"N": 5})


def test_temporaries_of_an_iteration_belong_to_the_part() -> None:
    square = op("mul", rd("X", N), rd("X", N))
    loop = red("n", "N", st("Q", (N,), square), up("S", (), "add", rd("Q", N)))
    buffers = [buf("X", "N"), buf("S", ()), buf("Q", "N", private="n")]
    k = kernel("squares", "N", buffers, Block((st("S", (), con(0.0)), loop)))
    out = split(k)
    assert len(parallel(out)) == 1
    assert_same(k, out, {"N": PART_WORK // 32})
