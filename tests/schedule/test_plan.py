# SPDX-License-Identifier: Apache-2.0
"""Every plan prints in one line, in terms of its loops, and follows them to a copy of the nest."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from tcsym.schedule.plan import (
    InnerLeaves,
    Plan,
    Rows,
    Scan,
    Staged,
    Strips,
    Terms,
    renamed,
)

PLANS: tuple[Plan, ...] = (
    Rows(),
    Terms(),
    Strips("n"),
    InnerLeaves(),
    Scan(),
    Staged("converted images"),
)
TILED = {"n": "n.1", "m": "m.1"}


def test_all_plans_are_here() -> None:
    assert {type(x) for x in PLANS} == {
        p for kind in get_args(Plan) for p in get_args(kind) or [kind]
    }


@pytest.mark.parametrize("plan", PLANS, ids=lambda x: type(x).__name__)
def test_plans_print_in_one_line_with_their_loops(plan: Plan) -> None:
    text = str(plan)
    assert "\n" not in text and len(text) < 100 and "(" not in text
    assert str(renamed(plan, TILED)) == re.sub(r"\b([mn])\b", r"\1.1", text)


@pytest.mark.parametrize("plan", PLANS, ids=lambda x: type(x).__name__)
def test_plans_of_a_copy_are_of_its_loops(plan: Plan) -> None:
    back = {new: old for old, new in TILED.items()}
    assert renamed(renamed(plan, TILED), back) == plan
