# SPDX-License-Identifier: Apache-2.0
"""Default options where tuned ones would matter: told once for each kernel, without recording."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.options import Options
from tcsym.process.threads import get_num_threads
from tcsym.tuning import warn
from tcsym.tuning.machine import machine_key
from tcsym.tuning.rows import Tuned
from tcsym.tuning.select_regions import hull
from tcsym.tuning.stores import user_database
from tcsym.tuning.tree import Leaf, Split, Tree, kept_json
from tests.tuning.faults import MM

FAST = Options(min_work_per_thread=2)
TREE = Split(hull([(8, 8, 8)]), Leaf(FAST), Leaf(Options()))


@pytest.fixture(autouse=True)
def private_store(own_options: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warn, "untuned", set())
    monkeypatch.setattr("tcsym.tuning.stores.untuned", warn.untuned)


def keep(tree: Tree, measured: list[list[int]], machine: str = "") -> None:
    kernel = tc.define(MM).mm
    machine = machine or machine_key(kernel._dispatcher.making.target, get_num_threads())
    given = json.dumps(kept_json(tree, ())), json.dumps(measured)
    row = Tuned(kernel.program.canonical, machine, "", *given, 1.2, "2026", "mm", MM)
    database = user_database()
    assert database is not None and database.put([row])


def called(kernel: Any, *sizes: tuple[int, int, int]) -> None:
    for m, k, n in sizes:
        assert (kernel(np.ones((m, k), np.float32), np.ones((k, n), np.float32)) == k).all()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "tcsym.options"]


@pytest.mark.parametrize("strategy", ["auto", "symbolic"])
def test_sizes_beyond_those_tuned_for_are_told_once(
    strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    keep(TREE, [[8, 8, 8]])
    called(tc.define(MM, strategy=strategy).mm, (8, 8, 8))
    assert warnings(caplog) == []
    kernel = tc.define(MM, strategy=strategy).mm
    called(kernel, (8, 8, 8), (9, 8, 8), (9, 8, 8), (10, 8, 8))
    called(tc.define(MM, strategy=strategy).mm, (11, 8, 8))
    (told,) = warnings(caplog)
    assert told.startswith("`mm` runs with default options at M=9, K=8, N=8, beyond the sizes")


def test_where_the_default_was_chosen_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    keep(TREE, [[4, 4, 4], [8, 8, 8], [16, 16, 16]])
    called(tc.define(MM).mm, (4, 4, 4), (9, 8, 8), (16, 16, 16))
    assert warnings(caplog) == []
    keep(Leaf(Options()), [[8, 8, 8]])
    called(tc.define(MM).mm, (40, 4, 4))
    assert warnings(caplog) == []


def test_what_was_tuned_for_other_threads_is_told(caplog: pytest.LogCaptureFixture) -> None:
    target = tc.define(MM).mm._dispatcher.making.target
    tc.set_num_threads(2)
    try:
        keep(TREE, [[8, 8, 8]], machine_key(target, 1))
        for _ in range(2):
            called(tc.define(MM).mm, (8, 8, 8))
    finally:
        import tcsym.process.threads

        tcsym.process.threads._chosen.value = 0
    (told,) = warnings(caplog)
    assert "it was tuned for" in told and "threads=1`, which does not serve" in told


def test_a_tune_that_keeps_nothing_leaves_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Neither beyond its sizes, nor on other machines or with other numbers of threads."""
    target = tc.define(MM).mm._dispatcher.making.target
    nothing = Split(hull([(8, 8, 8)]), Leaf(Options()), Leaf(Options()))
    for tree in (Leaf(Options()), nothing):
        keep(tree, [[8, 8, 8]], machine_key(target, get_num_threads()) + "0")
        called(tc.define(MM).mm, (8, 8, 8), (9, 8, 8))
        assert warnings(caplog) == []
    for tree in (Leaf(Options()), nothing):
        keep(tree, [[8, 8, 8]])
        called(tc.define(MM).mm, (8, 8, 8), (9, 8, 8))
        assert warnings(caplog) == []


def test_programs_that_nobody_tuned_are_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        called(tc.define(MM).mm, (8, 8, 8), (9, 9, 9))
        called(tc.define(MM, options=FAST).mm, (8, 8, 8))
    assert warnings(caplog) == []
