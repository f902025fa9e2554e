"""State that only the next step reads takes the storage of one step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tcsym.index import eq
from tcsym.loop_ir import Branch, Kernel, Node, block
from tcsym.options import Options
from tcsym.polyhedral.map_cpu import map_cpu
from tcsym.polyhedral.passes.allocate import without_allocations
from tcsym.polyhedral.passes.roll_state import roll_state
from tests.polyhedral.passes.compare import assert_same
from tests.polyhedral.passes.naive import buf, kernel, op, par, rd, seq, st, v
from tests.polyhedral.passes.targets import AVX2

T, B = v("t b")
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
    return roll_state(replace(k, body=without_allocations(k.body)))


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
    "k",
    [
        scan((SUM, st("O", (T, B), op("mul", LAST, X)))),  # read after it is stored
        scan((st("C", (T, B), op("add", rd("C", T - 2, B), X)), OUT)),  # two steps back
        scan((st("C", (T, B), op("add", rd("C", T - 1, B - 1), X)), OUT)),  # another row's
        scan((st("O", (T, B), X), OUT)),  # not stored in every step
    ],
    ids=["after", "two_back", "other_row", "not_always"],
)
def test_all_steps_are_kept_where_they_are_needed(k: Kernel) -> None:
    assert kept(k) == ["T", "B"]


def test_all_steps_are_kept_where_another_loop_reads_them() -> None:
    k = scan((SUM, OUT))
    other = par("t2", "T", par("b2", "B", st("O", v("t2 b2"), rd("C", *v("t2 b2")))))
    k = kernel("two", "T B", list(k.buffers), block(without_allocations(k.body), other))
    assert kept(k) == ["T", "B"]
