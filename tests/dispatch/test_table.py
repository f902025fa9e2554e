# SPDX-License-Identifier: Apache-2.0
"""The table of versions: what serves, what calls enter, and what goes on when it is replaced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import tcsym as tc
from tcsym.dispatch.dispatcher import Dispatcher
from tcsym.dispatch.making import Making
from tcsym.dispatch.policy import Policy
from tcsym.dispatch.table import Point, Ranges, Table
from tcsym.dispatch.trial import Trial
from tcsym.dispatch.version import Version
from tcsym.index.expr import ge, lt, var
from tcsym.runtime.switch import NOTICED_FROM
from tcsym.sizes.region import Region

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SIZES = (3, 4, 5)
NAMES = ("M", "K", "N")


@pytest.fixture
def making() -> Making:
    return tc.define(MM, options=tc.Options(min_work_per_thread=2)).mm._dispatcher.making


@pytest.fixture
def versions(making: Making) -> list[Version]:
    """For few rows, for many, and for all sizes with other options."""
    few, many = Region(tc.Options(), lt(var("M"), 8)), Region(tc.Options(), ge(var("M"), 8))
    return [
        making.symbolic(few, few.context),
        making.symbolic(many, many.context),
        making.refined(tc.Options(min_work_per_thread=1)),
    ]


def test_the_first_layer_that_has_a_version_serves(making: Making, versions: list[Version]) -> None:
    few, many, measured = versions
    table = Table(Ranges.of((few, many), NAMES))
    assert table.serving(SIZES) is few and table.serving((8, 4, 5)) is many
    assert table.row(SIZES) is None and table.place(many) == 1

    table = replace(table, stand_ins={few: many}, noticed_after=2)
    assert table.serving(SIZES) is few and table.base(SIZES) is many
    assert table.row(SIZES) == Point(many, NOTICED_FROM) and table.row((8, 4, 5)) is None

    table = replace(table, measured={SIZES: measured})
    assert table.serving(SIZES) is table.base(SIZES) is measured

    (bound,) = making.partly_bound({"K": 4})
    table = replace(table, preferred=Ranges.of((bound,), NAMES, is_total=False))
    assert table.serving(SIZES) is measured  # until that has code
    table = replace(table, ready=frozenset([bound]))
    assert table.serving(SIZES) is bound and table.serving((3, 5, 5)) is few

    own = making.point(SIZES, "after")
    tried = table.with_point(SIZES, Point(own, is_adopted=False, decide=lambda *_: None))
    assert tried.serving(SIZES) is bound and tried.tried == (own,) and own not in tried.versions
    adopted = tried.with_point(SIZES, Point(own))
    assert adopted.serving(SIZES) is own and adopted.base(SIZES) is bound
    assert adopted.without_point(SIZES) == table


def test_what_is_bound_before_the_only_range_needs_no_rows(
    making: Making, versions: list[Version]
) -> None:
    (bound,) = making.partly_bound({"K": 4})
    ways = Ranges.of((bound,), NAMES, is_total=False)
    table = Table(Ranges.of(versions[2:], NAMES), preferred=ways, ready=frozenset([bound]))
    assert table.row(SIZES) == Point(bound) and table.leads
    table = replace(table, before=bound)
    assert table.row(SIZES) is None and not table.leads


def test_calls_enter_one_version_directly_if_they_need_not_be_told_apart(
    versions: list[Version],
) -> None:
    few, many, every = versions
    one = Table(Ranges.of((every,), NAMES))
    assert one.only is every
    assert replace(one, noticed_after=2).only is None  # its calls are counted
    assert one.with_point(SIZES, Point(few)).only is None
    assert Table(Ranges.of((few, many), NAMES)).only is None
    point = Table().with_point((4,), Point(every))
    assert point.only is None and replace(point, is_checked=True).only is every


def test_rows_of_which_two_tables_say_the_same_go_on(making: Making) -> None:
    """A trial keeps its clock when something else changes."""
    policy = Policy(making)
    entered: list[Any] = []
    dispatcher = Dispatcher(policy, lambda *_: "slow", entered.append)
    own, other = (making.point(sizes, "after") for sizes in (SIZES, (5, 4, 3)))
    for version in (dispatcher.versions[0], own, other):
        version.variants.made_for(version.variants.dense)
    dispatcher.propose(lambda now: replace(now, noticed_after=9), dispatcher.versions[0])
    switch = dispatcher.switch
    assert switch is not None and entered == [switch.function]
    put: dict[Any, Any] = {}
    switch.put = lambda sizes, function, again=0: put.update({sizes: (function, again)})  # type: ignore
    trial = Point(own, is_adopted=False, decide=lambda *_: None)
    dispatcher.propose(lambda now: now.with_point(SIZES, trial), own)
    assert isinstance(put.pop(SIZES)[0], Trial) and not put
    dispatcher.propose(lambda now: now.with_point((5, 4, 3), Point(other, 7)), other)
    assert put == {(5, 4, 3): (dispatcher.entry_of(other), 7)}
    dispatcher.propose(lambda now: now.without_point((5, 4, 3)))
    assert other.is_gone and dispatcher.entry_of(other) is None and not own.is_gone
