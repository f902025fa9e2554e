# SPDX-License-Identifier: Apache-2.0
"""Every plan prints in one line, in terms of its loops, and follows them to a copy of the nest."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from tcsym.schedule.order_plans import (
    GroupedRows,
    RowsInOrder,
    ScatterColumns,
    ScatterCopies,
    ScatterOrder,
    Waves,
)
from tcsym.schedule.plan import AnyPlan, AsItIs, Staged, renamed

PLANS: tuple[AnyPlan, ...] = (
    AsItIs(),
    Staged("a padded copy of guarded reads"),
    GroupedRows(("m", "n"), ("W",)),
    RowsInOrder(),
    ScatterCopies(16),
    ScatterColumns("n", 64),
    ScatterOrder(),
    Waves(("m", "t"), True),
)
TILED = {"n": "n.1", "m": "m.1"}


def test_all_plans_are_here() -> None:
    assert {type(x) for x in PLANS} == {*get_args(AnyPlan)}


@pytest.mark.parametrize("plan", PLANS, ids=lambda x: type(x).__name__)
def test_plans_print_in_one_line_with_their_loops(plan: AnyPlan) -> None:
    text = str(plan)
    assert "\n" not in text and len(text) < 100 and "(" not in text
    assert str(renamed(plan, TILED)) == re.sub(r"\b([mn])\b", r"\1.1", text)


@pytest.mark.parametrize("plan", PLANS, ids=lambda x: type(x).__name__)
def test_plans_of_a_copy_are_of_its_loops(plan: AnyPlan) -> None:
    back = {new: old for old, new in TILED.items()}
    assert renamed(renamed(plan, TILED), back) == plan
