# SPDX-License-Identifier: Apache-2.0
"""The plans of a few programs as text, for a processor of no machine in particular."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tcsym.index.expr import TRUE, ge, var
from tcsym.options import Options
from tcsym.schedule.chosen import Choice, Note, Taken, notes_of
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.order_plans import RowsInOrder
from tcsym.schedule.plan import AsItIs
from tcsym.schedule.plan_text import choices_lines
from tests.polyhedral.programs import scheduled
from tests.polyhedral.test_golden import AVX2

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("matmul_bias_relu", "softmax", "conv_bias_relu", "attention", "rnn", "cholesky")


def choices_text(record: Iterable[Choice | Note], sizes: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text, _ in choices_lines(record, sizes, {}))


@pytest.mark.parametrize("name", NAMES)
def test_plans(name: str, update_golden: bool) -> None:
    mapped = map_cpu(scheduled(name).kernel, AVX2.machine, Options())
    text = choices_text(mapped.choices, mapped.kernel.sizes)
    path = GOLDEN / f"{name}.txt"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


MANY = ge(var("N"), 8)
OWN = RowsInOrder()
INSIDE = Choice("k.1", (Taken(TRUE, AsItIs(), (Note("k.1", "not along k.1"),)),))
VERSIONS = (
    Taken(ge(var("N"), 4096), OWN, is_left_out=True),
    Taken(MANY, OWN, (Note("m", "rows along n"), INSIDE)),
    Note("m", "no copies: several nests share the rows"),
    Taken(TRUE, AsItIs()),
)


def test_versions_are_told_in_order_with_what_is_inside_them() -> None:
    assert choices_text([Note("m", "something else"), Choice("m", VERSIONS)], ["N"]) == (
        "m:\n"
        "  if N >= 4096: left to another kernel: each row finds its operands by itself\n"
        "  else if N >= 8: each row finds its operands by itself\n"
        "    k.1: one element at a time\n"
        "  (no copies: several nests share the rows)\n"
        "  else: one element at a time\n"
    )


def test_a_nest_that_was_planned_in_two_steps_is_told_once() -> None:
    first, second = Choice("m", VERSIONS[1:2]), Choice("m", VERSIONS[3:])
    text = choices_text([first, INSIDE, second], ["N"])
    assert text == choices_text([Choice("m", (VERSIONS[1], VERSIONS[3])), INSIDE], ["N"])


def test_sizes_are_not_negative() -> None:
    always = Taken(ge(var("N"), 0), AsItIs())
    assert choices_text([Choice("m", (always,))], ["N"]) == "m: one element at a time\n"


def test_notes_are_in_the_order_in_which_they_were_made() -> None:
    texts = [str(x) for x in notes_of([Note("a", "first"), Choice("m", VERSIONS)])]
    assert texts == [
        "a: first",
        "m: rows along n",
        "k.1: not along k.1",
        "m: no copies: several nests share the rows",
    ]
