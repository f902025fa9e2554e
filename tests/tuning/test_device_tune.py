# SPDX-License-Identifier: Apache-2.0
"""Tuning for a device: plans measured there, or ranked by what they are predicted to take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tcsym as tc
from tcsym.compiler import analyse
from tcsym.options import Options
from tcsym.runtime.cuda.device import Cuda
from tcsym.target.names import resolve_target
from tcsym.target.target import Target
from tcsym.tuning import rank
from tcsym.tuning.database import Database
from tcsym.tuning.device_space import device_space
from tcsym.tuning.executors import Here
from tcsym.tuning.space import value_of, with_values
from tests.emulated_driver import Driver, cuda, emulated
from tests.runtime.test_cuda import Memory

__all__ = ["cuda", "emulated"]

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
TWO = "def f(float(N,D) X, float(D,D) W) -> (Y, S) { Y(n,e) +=! X(n,d) * W(d,e) S(n) +=! X(n,d) }"
SQUARE = {"M": 512, "N": 512, "K": 512}


@pytest.fixture(autouse=True)
def no_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank, "assembler", lambda: None)


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where other tests of the process have an emulated one."""

    def refuse(self: Cuda, target: Target) -> None:
        raise tc.TargetError("no driver is here")

    monkeypatch.setattr(Cuda, "require", refuse)


def test_candidates_are_ranked_and_nothing_is_kept(
    no_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = list[object]()
    monkeypatch.setattr(Database, "put", lambda _, rows: kept.append(rows))
    mm = tc.define(MM, target="cuda:sm_80").mm
    report = mm.tune([SQUARE, {"M": 64, "N": 8192, "K": 64}], budget="1s")
    assert (report.stopped, report.is_kept, report.gain, kept) == ("unmeasured", False, 1.0, [])
    assert "nothing was measured: " in str(report) and "predicted, and not kept" in str(report)
    gains = [x.gain for x in report.ranked]
    assert gains == sorted(gains, reverse=True) and gains[0] >= 1 > gains[-1]
    default = next(x for x in report.ranked if x.options == Options())
    assert default.gain == 1 and "registers" in default.facts
    assert 20e-6 < default.seconds[512, 512, 512] < 60e-6  # 19.5 TFLOP/s would be 14
    left_out = {str(a.options): a.reason for a in report.trials}
    assert "predicted" in left_out["plan=m: ThreadPoints:1"]
    assert mm.options_for(**SQUARE).origin == "analytic"
    # what is ranked first is a plan that can be asked for
    plan = value_of(report.ranked[0].options, "plan[m]")
    text = tc.define(MM, target="cuda:sm_80", options=Options(plan=plan)).explain("plan")
    assert f"plan={plan}" in text


def test_the_twin_is_ranked_as_its_device_is(no_device: None) -> None:
    by = [
        [x.options for x in tc.define(MM, target=t).mm.tune([SQUARE], candidates=1).ranked]
        for t in ("cuda:twin", "cuda:sm_80")
    ]
    assert by[0] == by[1]


def test_each_nest_is_an_axis() -> None:
    (program,) = analyse(TWO).values()
    target = resolve_target("cuda:sm_90a")
    space = device_space(program, target)
    names = [name for name, _ in space.axes]
    assert names == ["plan[n]", "plan[n_1]"]
    assert all(values[0] == "" and "ThreadPoints:1" in values for _, values in space.axes)
    options = with_values(Options(), {"plan[n_1]": "BlockRows:128x1"})
    assert options.plan == "n_1:\n    BlockRows:128x1"
    assert with_values(options, {"plan[n_1]": ""}) == Options()
    sizes = (4096,) * len(program.sizes)
    assert space.cycles(Options(), sizes) <= space.cycles(options, sizes)
    slow = with_values(Options(), {"plan[n]": "ThreadPoints:1"})
    assert space.predicted(slow, Options(), (sizes,)) > 2


def test_nests_of_steps_count_in_the_way_that_is_taken() -> None:
    text = """def f(float(T,B,H) X, float(H,H) U) -> (float(T+1,B,H) S) {
      S(0,n,h) = X(0,n,h)
      for t in T { A(n,h) +=! S(t,n,k) * U(h,k)  S(t+1,n,h) = tanh(A(n,h) + X(t,n,h)) }
    }"""
    (p,) = analyse(text).values()
    space = device_space(p, resolve_target("cuda:sm_80"))
    (steps,) = (k for k, x in enumerate(space.nests.values()) if not x.plans)
    counted = [
        {k for k, c in enumerate(space.costs(Options(), v)) if c is not None and k > steps}
        for v in ((64, 64, 8), (64, 64, 128))
    ]
    assert all(counted) and not counted[0] & counted[1]


def test_what_does_not_fit_or_conflicts_is_left_out(
    no_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = analyse(MM).values()
    target = resolve_target("cuda:sm_86")  # of 99 KiB
    names = dict(device_space(program, target).axes)["plan[m]"]
    assert "SharedTiles:128x128x32x2x8x8" in names
    monkeypatch.setattr(rank, "MOST_CONFLICTS", 1)
    report = tc.define(MM, target="cuda:sm_86").mm.tune([SQUARE], candidates=1)
    assert any("conflict" in a.reason for a in report.trials)


def test_what_spills_is_behind_what_does_not(
    no_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tcsym.codegen.device.ptxas import Assembled, Used

    told = iter((Used(40, 8, 0), Used(50, 0, 0), Used(60, 0, 0), Used(70, 0, 0)))
    monkeypatch.setattr(rank, "assembler", lambda: "ptxas")
    monkeypatch.setattr(rank, "assembled", lambda *_: Assembled(b"", {"f": next(told)}))
    text = "def f(float(N,M) X) -> (Y) { Y(i,j) = X(i,j) + 1 }"
    report = tc.define(text, target="cuda:sm_80").f.tune([{"N": 999, "M": 64}], budget="60s")
    assert "50 registers, 0 bytes spilled" in report.ranked[0].facts
    assert "40 registers, 8 bytes spilled" in report.ranked[3].facts


def test_candidates_are_measured_where_a_device_is(cuda: Driver, tmp_path: Path) -> None:
    """On the emulated driver, in this process; what is found is kept and served."""
    text = "def rows(float(N,D) X, float a) -> (S) { S(n) +=! a * X(n,d) }"
    rows = tc.define(text, target="cuda").rows
    sizes = [{"N": 5, "D": 70}]
    report = rows.tune(sizes, candidates=5, executor=Here(), progress=False)
    assert report.stopped in ("budget", "exhausted") and not report.ranked
    states = {str(a.options): a.state for a in report.trials}
    assert states.pop("defaults") == "measured" and len(states) >= 3
    assert all(name.startswith("plan=n: ") for name in states)
    assert not report.failures, report.failures[0]
    assert all(r.seconds > 0 for r in report.confirmed.values())
    assert report.is_kept
    again = rows.tune(sizes, candidates=5, executor=Here(), progress=False)
    assert again.n_resumed == len(states)
    x = np.random.default_rng(0).standard_normal((5, 70)).astype(np.float32)
    np.testing.assert_allclose(rows(Memory(x), 2.0).copy_to_host(), 2 * x.sum(1), rtol=1e-4)


def test_a_wrong_candidate_is_a_failure_on_a_device(
    cuda: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def twice(float(N,D) X) -> (Y) { Y(n,d) = 2 * X(n,d) }"
    kernel, fetched = tc.define(text, target="cuda").twice, Cuda.fetched
    calls = iter(range(10**6))
    # from the fourth result on, as those of the default come first
    monkeypatch.setattr(
        Cuda, "fetched", lambda self, v: fetched(self, v) + (1 if next(calls) > 3 else 0)
    )
    report = kernel.tune([{"N": 3, "D": 8}], candidates=3, executor=Here(), progress=False)
    assert report.failures and "wrong `Y`" in report.failures[0].reason
