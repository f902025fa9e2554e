# SPDX-License-Identifier: Apache-2.0
"""`Options(plan=...)` that means nothing: what no plan is called is refused, the rest is told."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import tcsym as tc
from tcsym.dispatch.making import Making
from tcsym.options import Options
from tcsym.runtime.stats import Counters
from tcsym.tuning.tree import Leaf, tree_from_json

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
HALF = MM.replace("float(", "bfloat16(")
X = np.ones((5, 5), np.float32)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80"])
def test_a_name_that_no_plan_has_is_refused_where_it_is_given(target: str) -> None:
    for options in (
        tc.Options(plan="WarpTile:128x128x32x3x64x32"),
        tc.Options(nests=((0, "plan", "WarpTile"),)),
    ):
        with pytest.raises(tc.OptionError, match="there is no plan `WarpTile`") as error:
            tc.define(MM, target=target, options=options)
        assert "`WarpTiles`" in error.value.hint
    with pytest.raises(tc.OptionError) as error:
        tc.define(MM, options=tc.Options(plan="Zzz"))
    assert "Panels, " in error.value.hint and "GridSteps" in error.value.hint


def test_a_plan_that_no_nest_is_offered_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When code is made, and when it comes from the cache; and how the nests can be had."""
    monkeypatch.setenv("TCSYM_CACHE", "1")
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    for plan, told in (("Panels:7", "did you mean `Panels`?"), ("WarpTiles", "offered are m: ")):
        for _ in range(2):
            mm = tc.define(MM, options=tc.Options(plan=plan)).mm
            with pytest.warns(tc.TCWarning, match=f"no nest is offered the plan '{plan}'") as found:
                got = mm(X, X)
            (warning,) = [x.message for x in found]
            assert isinstance(warning, tc.TCWarning) and warning.kind == "plan"
            assert told in str(warning) and "InPlace" in str(warning)
            np.testing.assert_array_equal(got, X @ X)
            assert f"warning: {warning}" in mm.explain()


def test_numbers_that_no_plan_has_are_told_on_a_device() -> None:
    options = tc.Options(plan="WarpTiles:128x128x64x3x64x64")
    text = tc.define(HALF, target="cuda:sm_80", options=options).mm.explain("plan").splitlines()[1]
    assert text.startswith(f"# no nest is offered the plan '{options.plan}'")
    assert "did you mean `WarpTiles:128x128x64x2x64x32`?" in text


@pytest.mark.parametrize(
    ("text", "plan", "target"),
    [
        (MM, "Panels", "cpu"),
        (MM, "SplitK", "cpu"),
        (HALF, "WarpTiles", "cuda:sm_80"),
        (HALF, "WarpTiles:128x128x64x2x64x32", "cuda:sm_80"),
        (HALF, "SplitSum:128x128x64x2x64x32", "cuda:sm_80"),
        (MM, "ThreadPoints", "cuda:twin"),
        (tc.library.source("softmax"), "OnlineRows", "cuda:twin"),
    ],
)
def test_what_some_nest_is_offered_is_taken_in_silence(text: str, plan: str, target: str) -> None:
    module = tc.define(text, target=target, options=tc.Options(plan=plan))
    mm = module["softmax" if "softmax" in text else "mm"]
    assert "no nest" not in mm.explain("plan")
    if target == "cpu":
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mm(X, X)


def test_plans_that_a_search_found_are_not_asked_for() -> None:
    """Where sizes are numbers, nests may be offered others: nobody has to be told."""
    plan = tc.define(MM).mm._plan
    found = Options(plan="Panels:7")
    tuned = Making(plan, "cpu", None, Counters()).variants(found, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned.made_for(tuned.dense)
    asked = Making(plan, "cpu", found, Counters()).variants(found, {})
    with pytest.warns(tc.TCWarning, match="no nest is offered the plan 'Panels:7'"):
        asked.made_for(asked.dense)


def test_kept_plans_that_there_are_no_more_are_not_used() -> None:
    assert tree_from_json({"options": {"plan": "Panels:2"}}, 3) == Leaf(Options(plan="Panels:2"))
    with pytest.raises(tc.OptionError, match="there is no plan `Gone`"):
        tree_from_json({"options": {"plan": "Gone"}}, 3)
