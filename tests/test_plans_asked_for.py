# SPDX-License-Identifier: Apache-2.0
"""`Options(plan=...)` that means nothing: what no plan is called is refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import tcsym as tc
from tcsym.dispatch.making import Making
from tcsym.frontend.sample import random_inputs
from tcsym.options import Options
from tcsym.runtime.stats import Counters
from tcsym.tuning.tree import Leaf, tree_from_json

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
ROWS = """def f(float(N,K) X, float(V,M,K) W, int32(N) C) -> (Y) {
  Y(n,m) +=! X(n,k) * W(C(n),m,k) }"""
HISTOGRAM = "def f(float(N,D) W, int32(N) I) -> (float(17,D) H) { H(I(n),d) +=! W(n,d) }"
HALF = MM.replace("float(", "bfloat16(")
X = np.ones((5, 5), np.float32)
SIZES = dict(zip("NKVMD", (5, 4, 3, 2, 6)))


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80"])
def test_a_name_that_no_plan_has_is_refused_where_it_is_given(target: str) -> None:
    for options in (
        tc.Options(plan="WarpTile:128x128x32x3x64x32"),
        tc.Options(plan="m: WarpTile"),
    ):
        with pytest.raises(tc.OptionError, match="there is no plan `WarpTile`") as error:
            tc.define(MM, target=target, options=options)
        assert "`WarpTiles`" in error.value.hint
    with pytest.raises(tc.OptionError) as error:
        tc.define(MM, options=tc.Options(plan="Zzz"))
    assert "GroupedRows, " in error.value.hint and "GridSteps" in error.value.hint


REFUSED: dict[str, tuple[tc.Options, str]] = {
    "no such proposal": (tc.Options(plan="Waves:7"), "no nest is offered the plan 'Waves:7'"),
    "of a device": (tc.Options(plan="WarpTiles"), "no nest is offered the plan 'WarpTiles'"),
    "not by this nest": (
        tc.Options(plan="m_1: GroupedRows"),
        "<plan>:1:1: nest m_1 is not offered the plan 'GroupedRows'",
    ),
    "no such nest": (
        tc.Options(plan="k: GroupedRows"),
        "<plan>:1:1: there is no nest k",
    ),
}
TWO = """def mm(float(M,K) A, float(K,N) B) -> (C, D) {
  C(m,n) +=! A(m,k) * B(k,n)
  D(m) +=! A(m,k)
}"""


@pytest.mark.parametrize("kind", REFUSED)
def test_a_plan_that_forces_nothing_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When code is made, and when it comes from the cache."""
    monkeypatch.setenv("TCSYM_CACHE", "1")
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    options, told = REFUSED[kind]
    for _ in range(2):
        mm = tc.define(TWO, target="cpu:avx2", options=options).mm
        with pytest.raises(tc.OptionError, match=told):
            mm(X, X)
        assert all(f"# {x}" in mm.explain("plan") for x in told.split("; "))
        with pytest.raises(tc.OptionError, match=told):
            mm.export(tmp_path / "artifact")


def test_it_is_told_what_nests_are_offered() -> None:
    f = tc.define(ROWS, options=tc.Options(plan="GroupedRows:7")).f
    with pytest.raises(tc.OptionError) as error:
        f(X, np.ones((2, 3, 5), np.float32), np.zeros(5, np.int32))
    assert "did you mean `GroupedRows`?; offered are n: GroupedRows, RowsInOrder" in str(
        error.value
    )


def test_where_a_call_says_more_it_is_told() -> None:
    """Sizes that are numbers, arguments that are not dense, and steps of a network may leave a nest
    fewer plans than the text has."""
    options = tc.Options(plan="GroupedRows", bind={"K": "before"})
    f = tc.define(ROWS, target="cpu:avx2", options=options).f
    w, c = np.ones((2, 3, 5), np.float32), np.zeros(5, np.int32)
    np.testing.assert_array_equal(f(X, w, c), X @ w[0].T)
    with pytest.warns(tc.TCWarning, match="no nest is offered the plan 'GroupedRows'") as found:
        f(X[:, :0], w[:, :, :0], c)
    (warning,) = [x.message for x in found]
    assert isinstance(warning, tc.TCWarning) and warning.kind == "plan"
    assert f"warning: {warning}" in f.explain()


def test_numbers_that_no_plan_has_are_told_on_a_device() -> None:
    options = tc.Options(plan="WarpTiles:128x128x64x3x64x64")
    text = tc.define(HALF, target="cuda:sm_80", options=options).mm.explain("plan").splitlines()[1]
    assert text.startswith(f"# no nest is offered the plan '{options.plan}'")
    assert "did you mean `WarpTiles:128x128x64x2x64x32`?" in text


@pytest.mark.parametrize(
    ("text", "plan", "target"),
    [
        (ROWS, "GroupedRows", "cpu"),
        (HISTOGRAM, "ScatterCopies", "cpu"),
        (HALF, "WarpTiles", "cuda:sm_80"),
        (HALF, "WarpTiles:128x128x64x2x64x32", "cuda:sm_80"),
        (HALF, "SplitSum:128x128x64x2x64x32", "cuda:sm_80"),
        (MM, "ThreadPoints", "cuda:twin"),
        (tc.library.source("softmax"), "OnlineRows", "cuda:twin"),
    ],
)
def test_what_some_nest_is_offered_is_taken_in_silence(text: str, plan: str, target: str) -> None:
    module = tc.define(text, target=target, options=tc.Options(plan=plan))
    (kernel,) = (module[name] for name in module)
    assert "no nest" not in kernel.explain("plan")
    if target == "cpu":
        given = random_inputs([(t.dtype, t.shape) for t in kernel.program.inputs], SIZES, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kernel(*given)


def test_plans_that_a_search_found_are_not_asked_for() -> None:
    """Where sizes are numbers, nests may be offered others: nobody has to be told."""
    plan = tc.define(MM).mm._plan
    found = Options(plan="GroupedRows:7")
    tuned = Making(plan, "cpu", None, Counters()).variants(found, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned.made_for(tuned.dense)
    asked = Making(plan, "cpu", found, Counters()).variants(found, {})
    with pytest.raises(tc.OptionError, match="no nest is offered the plan 'GroupedRows:7'"):
        asked.made_for(asked.dense)


def test_kept_plans_that_there_are_no_more_are_not_used() -> None:
    assert tree_from_json({"options": {"plan": "GroupedRows:2"}}, 3) == Leaf(
        Options(plan="GroupedRows:2")
    )
    with pytest.raises(tc.OptionError, match="there is no plan `Gone`"):
        tree_from_json({"options": {"plan": "Gone"}}, 3)
