# SPDX-License-Identifier: Apache-2.0
"""State of which later steps read a few takes the storage of as many steps."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.index.expr import Index, eq, index, mod, var
from tcsym.ir.loops import Branch, Kernel, Node, block
from tcsym.options import Options
from tcsym.schedule.analysis.access import differ
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.storage.place_allocations import without_allocations
from tcsym.schedule.storage.storage_folding import fold_storage
from tests.schedule.compare import assert_same
from tests.schedule.naive import (
    buf,
    con,
    kernel,
    op,
    par,
    rd,
    red,
    seq,
    st,
    up,
    v,
)
from tests.schedule.targets import AVX2

T, B = v("t b")
T_SIZE = var("T")
NOW = rd("C", T, B)
LAST = rd("C", T - 1, B)
X = rd("X", T, B)


def scan(step: tuple[Node, ...], first: Node | None = None) -> Kernel:
    """for t { for b { first or `step` } }, with X read, C kept, O the result."""
    begin = first or st("C", (T, B), X)
    body = Branch(eq(T, 0), begin, step[0])
    nest = seq("t", "T", par("b", "B", body, *step[1:]))
    return kernel(
        "scan", "T B", [buf("X", "T B"), buf("O", "T B"), buf("C", "T B", private="")], nest
    )


def rolled(k: Kernel) -> Kernel:
    return fold_storage(replace(k, body=without_allocations(k.body)))


def kept(k: Kernel) -> list[str]:
    return [str(x) for x in rolled(k).buffer("C").shape]


SUM = st("C", (T, B), op("add", LAST, X))
OUT = st("O", (T, B), op("mul", NOW, X))


def test_one_step_is_kept() -> None:
    k = scan((SUM, OUT))
    assert kept(k) == ["B"]
    for sizes in ((1, 1), (5, 3), (4, 33), (3, 70)):
        named = dict(zip("TB", sizes))
        assert_same(k, map_cpu(k, AVX2, Options()).kernel, named)


@pytest.mark.parametrize(
    ("k", "steps"),
    [
        (scan((SUM, st("O", (T, B), op("mul", LAST, X)))), 2),  # read after it is stored
        (scan((st("C", (T, B), op("add", rd("C", T - 2, B), X)), OUT)), 3),  # two steps back
        (scan((st("C", (T, B), op("add", rd("C", T - 1, B - 1), X)), OUT)), 2),  # another row's
    ],
    ids=["after", "two_back", "other_row"],
)
def test_as_many_steps_are_kept_as_are_read(k: Kernel, steps: int) -> None:
    assert kept(k) == [str(steps), "B"]


def test_each_point_must_store_an_element_of_its_own_to_replace_it() -> None:
    k = scan((st("C", (T, 0), op("add", rd("C", T - 1, 0), X)), st("O", (T, B), X)))
    assert kept(k) == ["2", "B"]


def test_a_nest_behind_the_one_that_stores_reads_no_old_step() -> None:
    t, i, k = v("t i k")
    old, total = rd("C", t, k), st("A", (i,), rd("X", t, i))
    sums = par("i", "N", total, red("k", "N", up("A", (i,), "add", old)))
    step = par("j", "N", st("C", (t + 1, var("j")), rd("A", var("j"))))
    buffers = [buf("X", "T N"), buf("C", (T_SIZE + 1, var("N")), private=""), buf("A", "N")]
    for body, shape in (((sums, step), ["N"]), ((step, sums), ["2", "N"])):
        assert kept(kernel("two", "T N", buffers, seq("t", "T", *body))) == shape


@pytest.mark.parametrize(
    ("before", "after", "shape"),
    [
        (0, T_SIZE, ["N"]),
        (0, T_SIZE - 1, ["2", "N"]),  # of the last step but one
        (1, T_SIZE, ["2", "N"]),  # its place is that of the first step's result
        (2, T_SIZE, ["T + 1", "N"]),
        (0, index(0), ["T + 1", "N"]),  # gone by then
    ],
)
def test_first_and_last_steps_are_used_outside(before: int, after: Index, shape: list[str]) -> None:
    t, n = v("t n")
    first = par("m", "N", st("C", (before, var("m")), con(1.0)))
    nest = seq("t", "T", par("n", "N", st("C", (t + 1, n), op("add", rd("C", t, n), con(1.0)))))
    last = par("l", "N", st("O", (var("l"),), rd("C", after, var("l"))))
    buffers = [buf("O", "N"), buf("C", (T_SIZE + 1, var("N")), private="")]
    k = kernel("ends", "T N", buffers, block(first, nest, last))
    assert kept(k) == shape


def test_steps_in_turns_are_known_to_differ() -> None:
    assert differ(mod(T, 2), mod(T + 1, 2)) and differ(mod(T, 3), mod(T + 2, 3))
    assert not differ(mod(T, 2), mod(T + 2, 2)) and not differ(mod(T, 2), mod(B, 2))


def test_positions_may_count_down() -> None:
    t, n = v("t n")
    at = T_SIZE - 1 - t
    step = st("C", (at, n), op("add", rd("C", at + 1, n), rd("X", at, n)))
    k = kernel(
        "back",
        "T N",
        [buf("X", "T N"), buf("C", (T_SIZE + 1, var("N")), private="")],
        seq("t", "T", par("n", "N", step)),
    )
    assert kept(k) == ["N"]


def test_all_steps_are_kept_where_another_loop_reads_them() -> None:
    k = scan((SUM, OUT))
    other = par("t2", "T", par("b2", "B", st("O", v("t2 b2"), rd("C", *v("t2 b2")))))
    k = kernel("two", "T B", list(k.buffers), block(without_allocations(k.body), other))
    assert kept(k) == ["T", "B"]
