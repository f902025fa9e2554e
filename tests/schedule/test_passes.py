# SPDX-License-Identifier: Apache-2.0
"""Each pass by itself: results kept, and the promised shape of the loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tcsym.index.expr import ge, index, minimum, var
from tcsym.ir.bounds import eliminate, relax, trip_bound
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
)
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.analysis.band import band_of, contraction_roles
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.combine.accumulate import accumulate_privately
from tcsym.schedule.map_cpu import map_cpu, nests
from tcsym.schedule.order.coalesce import coalesce_outermost
from tcsym.schedule.order.parallelise import parallelise
from tcsym.schedule.split.unswitch import unswitch
from tcsym.schedule.storage.contract_storage import contract_storage
from tcsym.schedule.storage.place_allocations import place_allocations, without_allocations
from tcsym.schedule.storage.privatise import privatise
from tcsym.schedule.version.versioning import duplicate
from tests.schedule import naive
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, seq, st, up, v
from tests.schedule.targets import AVX2, some_sizes

Pass = Callable[[Kernel], Kernel]


def with_body(k: Kernel, body: Node) -> Kernel:
    return replace(k, body=body)


def bare(k: Kernel) -> Kernel:
    return with_body(k, without_allocations(k.body))


def copied(k: Kernel) -> Kernel:
    """The copy of everything, in place of what it is of."""
    kernel, body, _ = duplicate(k, k.body, Names.of(k))
    return with_body(kernel, body)


PASSES: dict[str, Pass] = {
    "unswitch": lambda k: unswitch(k, Names.of(k)),
    "accumulate": lambda k: accumulate_privately(k, Names.of(k)),
    "privatise": lambda k: privatise(accumulate_privately(k, Names.of(k))),
    "contract_storage": lambda k: contract_storage(privatise(accumulate_privately(k, Names.of(k)))),
    "parallelise": lambda k: parallelise(k, AVX2),
    "collapse": lambda k: parallelise(coalesce_outermost(k, AVX2, Names.of(k), 0, 3), AVX2),
    "copied": copied,
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", naive.ALL)
@pytest.mark.parametrize("step", PASSES)
def test_a_pass_keeps_the_results(step: str, name: str) -> None:
    before = naive.ALL[name]()
    after = place_allocations(PASSES[step](bare(before)))
    verify(after)
    sizes = [s for s in some_sizes(before) if all(x > 0 for x in s.values())]
    for s in sizes[-2:]:
        assert_same(before, after, s)


def test_accumulators_start_with_the_store_before_the_loop() -> None:
    k = accumulate_privately(bare(naive.column_sum()), Names.of(naive.column_sum()))
    stores = [x for x, _ in walk(k.body) if isinstance(x, Store)]
    assert [x.buffer for x in stores] == ["O_acc.1", "O"]


def test_accumulators_load_an_old_value() -> None:
    i, j = v("i j")
    body = par("i", "M", red("j", "N", up("O", (i,), "add", rd("X", i, j))))
    k = kernel("add", "M N", [buf("X", "M N"), buf("O", "M")], body)
    out = accumulate_privately(k, Names.of(k))
    stores = [x for x, _ in walk(out.body) if isinstance(x, Store)]
    assert [x.buffer for x in stores] == ["O_acc.1", "O"]
    assert_same(k, place_allocations(privatise(out)), {"M": 3, "N": 4})


def test_one_accumulator_for_both_arms_beside_the_step_before() -> None:
    k = bare(naive.state_in_output())
    k = unswitch(k, Names.of(k))
    out = accumulate_privately(k, Names.of(k))
    written = [x.buffer for x, _ in walk(out.body) if isinstance(x, Store | Update)]
    assert written == ["S_acc.1", "S_acc.1", "S_acc.1", "S_acc.1", "S"]


def test_no_accumulator_for_an_element_that_only_a_branch_writes() -> None:
    t, b = v("t b")
    sum_ = red("b", "B", up("S", (t - 1,), "add", rd("X", b)))
    k = kernel("k", "T B", [buf("X", "B"), buf("S", "T")], seq("t", "T", Branch(ge(t, 1), sum_)))
    inner = find_loop(accumulate_privately(k, Names.of(k)).body, "t").body
    assert isinstance(inner, Branch)


def test_temporaries_shrink_to_what_an_iteration_needs() -> None:
    k = contract_storage(privatise(bare(naive.softmax())))
    assert k.buffer("Mx").shape == () and k.buffer("Mx").space == "register"
    assert k.buffer("E").shape == (var("N"),) and k.buffer("E").space == "arena"


def test_a_temporary_that_is_not_private_stays_whole() -> None:
    i, j = v("i j")
    nest = Block(
        (
            par("i", "N", st("T", (i,), rd("X", i))),
            par("j", "N", st("O", (j,), rd("T", var("N") - 1 - j))),
        )
    )
    k = kernel("reversed", "N", [buf("X", "N"), buf("O", "N"), buf("T", "N", private="")], nest)
    assert contract_storage(privatise(bare(k))).buffer("T").shape == (var("N"),)


def test_shifted_accesses_keep_their_hull() -> None:
    i, j = v("i j")
    body = par(
        "i",
        "N",
        par("j", 3, st("T", (i + j,), rd("X", i + j))),
        st("O", (i,), op("add", rd("T", i), rd("T", i + 2))),
    )
    extent = var("N") + 2
    buffers = [buf("X", (extent,)), buf("O", "N"), buf("T", (extent,), private="i")]
    k = kernel("window", "N", buffers, body)
    out = contract_storage(privatise(bare(k)))
    assert out.buffer("T").shape == (index(3),)
    assert_same(k, place_allocations(out), {"N": 5})


def test_dimensions_that_blocks_run_on_into_stay() -> None:
    """No subscript says that a block goes through all elements of the dimension between."""
    zero, eight = index(0), index(8)
    buffers = [buf("A", (8, 8)), buf("O", (8, 8)), buf("T", (8, 2, 4), private="")]
    there = TransposeBlock("T", (zero,) * 3, "A", (zero,) * 2, eight, eight, 8, -2, -3)
    back = TransposeBlock("O", (zero,) * 2, "T", (zero,) * 3, eight, eight, 8, -3, -2)
    k = kernel("transposed", "", buffers, Block((there, back)))
    out = contract_storage(privatise(bare(k)))
    assert out.buffer("T").shape == buffers[2].shape
    assert_same(k, place_allocations(out), {})


def test_a_scalar_private_to_a_loop_gets_one_copy_for_each_thread() -> None:
    (i,) = v("i")
    body = par("i", "N", st("T", (), rd("X", i)), st("O", (i,), op("add", rd("T"), rd("T"))))
    k = kernel("scalar", "N", [buf("X", "N"), buf("O", "N"), buf("T", (), private="i")], body)
    out = place_allocations(parallelise(contract_storage(privatise(bare(k))), AVX2))
    loop = find_loop(out.body, "i")
    assert loop.kind == "parallel" and isinstance(loop.body, Allocate)


def test_conditions_leave_loops_they_do_not_use() -> None:
    t, i = v("t i")
    x = naive.seq("t", "T", par("i", "N", Branch(ge(t, 1), st("O", (t, i), con(1.0)))))
    k = kernel("c", "T N", [buf("O", "T N")], x)
    hoisted = find_loop(unswitch(k, Names.of(k)).body, "t").body
    assert isinstance(hoisted, Branch) and isinstance(hoisted.then, Loop)


def test_loops_of_the_other_choice_have_their_temporaries_too() -> None:
    """Threads shared `T` in the other choice, whose loops it knew nothing of."""
    a, b = v("a b")

    def row(z: float) -> Node:
        return par("b", "N", st("T", (), rd("X", b)), st("O", (a, b), op("add", rd("T"), con(z))))

    choice = Branch(ge(var("N"), 3), row(1.0), row(2.0))
    buffers = [buf("X", "N"), buf("O", "M N"), buf("T", (), private="b")]
    k = bare(kernel("choice", "M N", buffers, par("a", "M", choice)))
    out = unswitch(k, Names.of(k))
    assert [b.private for b in out.buffers if b.space == "arena"] == [{"b"}, {"b.1"}]
    verify(place_allocations(parallelise(out, AVX2)))


@pytest.mark.parametrize("stride", [1, 2])
def test_roles_of_a_convolution(stride: int) -> None:
    k = naive.convolution(stride, 3)
    roles = contraction_roles(k, band_of(find_loop(k.body, "n")))
    assert roles is not None
    assert (roles.columns, roles.rows) == ("w", "o")
    assert [r.tensor for r in roles.streamed] == ["X"]


def test_rows_are_neighbours_in_memory() -> None:
    k = naive.far_rows()
    roles = contraction_roles(k, band_of(find_loop(k.body, "a")))
    assert roles is not None
    assert (roles.columns, roles.rows) == ("c", "a")


def test_no_roles_without_reuse() -> None:
    k = naive.matvec()
    assert contraction_roles(k, band_of(find_loop(k.body, "i"))) is None


def test_parallel_loops_never_nest() -> None:
    for make in naive.ALL.values():
        k = map_cpu(make(), AVX2, Options()).kernel
        for x, around in walk(k.body):
            if isinstance(x, Loop) and x.kind == "parallel":
                assert not any(y.kind == "parallel" for y in around)


def test_nests_below_sequential_loops() -> None:
    assert nests(without_allocations(naive.rnn().body)) == ("b",)


def test_bounds() -> None:
    i = Loop("i", index(0), var("N"), Block(()))
    j = Loop("j", index(0), var("i") + 1, Block(()))
    assert eliminate(var("i") + var("j"), (i, j), True) == 2 * var("N") - 2
    assert eliminate(var("i") - var("j"), (i, j), False) == index(0)
    assert eliminate(var("i") * var("j"), (i, j), True) is None
    sizes = frozenset("N")
    assert relax(minimum(var("N"), var("t") + 3), sizes, True) == var("N")
    assert relax(minimum(var("N"), var("t") + 3), sizes, False) is None
    panel = Loop("t", var("p") * 8, minimum(var("p") * 8 + 8, var("N")), Block(()))
    assert relax(trip_bound(panel), sizes, True) == index(8)


def test_full_tiles_store_without_masks() -> None:
    """Masks remain only under a branch that a full tile does not take."""
    k = map_cpu(naive.matmul_bias_relu(), AVX2, Options()).kernel
    stored = [
        (x, a)
        for x, a in walk(k.body)
        if isinstance(x, Store) and k.buffer(x.buffer).space == "argument"
    ]
    plain = [x for x, a in stored if all(y.mask is None for y in a)]
    assert plain and len(plain) < len(stored)
