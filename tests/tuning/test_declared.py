# SPDX-License-Identifier: Apache-2.0
"""Tuning a kernel whose sizes are declared: code is made for them, measured and checked inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.compiler import analyse
from tcsym.options import Options
from tcsym.sizes.context import Context, Known
from tcsym.target.names import resolve_target
from tcsym.tuning.declared import context_for, lies_in, moved_into
from tcsym.tuning.distribution import distribution_of
from tcsym.tuning.evaluate import Dense, Job, check_sizes, evaluate_job
from tcsym.tuning.side_by_side import FieldJob, evaluate_field
from tcsym.tuning.trials import Trials
from tests.tuning.faults import MM

TARGET = resolve_target("cpu")
PROGRAM = analyse(MM)["mm"]  # its sizes: M, K, N
DECLARED = {"M": tc.Dim(1, 40), "K": tc.Dim(16, multiple_of=16), "N": tc.Dim(8, 64, multiple_of=8)}
CONTEXT: Context = (Known("K", 16, None, 16), Known("M", 1, 40, 1), Known("N", 8, 64, 8))


@pytest.mark.parametrize(
    "sizes, expected",
    [
        (None, CONTEXT),
        ([{"M": 40, "K": 32, "N": 64}], CONTEXT),
        ([{"M": 41, "K": 32, "N": 64}], ()),
        ([{"M": 40, "K": 33, "N": 64}], ()),
        ({"M": tc.Dim(1, 64)}, ()),
        ({"M": range(1, 65)}, ()),
        ({"M": tc.Dim(2, 7), "K": tc.Dim(32, 64, multiple_of=32)}, CONTEXT),
        ({"K": tc.Dim(16, 64)}, ()),
    ],
)
def test_code_is_for_what_is_declared_unless_sizes_lie_beyond(sizes: Any, expected: Any) -> None:
    drawn = distribution_of(PROGRAM, sizes, DECLARED, None, 0)
    assert context_for(PROGRAM, DECLARED, drawn) == expected


def test_sizes_are_moved_into_the_context() -> None:
    names = ("M", "K", "N")
    for before, after in (
        ((1, 1, 1), (1, 16, 8)),
        ((0, 25, 12), (1, 32, 16)),
        ((99, 400, 99), (40, 400, 64)),
    ):
        assert moved_into(CONTEXT, names, before) == after
        assert lies_in(CONTEXT, names, after) and not lies_in(CONTEXT, names, before)
    small = check_sizes(PROGRAM, ((33, 256, 64),), CONTEXT)
    assert small and all(lies_in(CONTEXT, names, v) for v in small)


def test_candidates_are_compiled_for_the_context() -> None:
    """Such code has fewer masks and tails; both it and its rivals are measured and right."""
    dense = Dense(CONTEXT)
    one = Options(plan="m: split m tile reg:4; split n tile lane:8; order m.tile n.tile")
    code = [len(make(PROGRAM, TARGET, one).object_code) for make in (dense, Dense())]
    assert code[0] < code[1]
    sizes, options = (33, 64, 48), Options(chains=3)
    job = Job(PROGRAM, TARGET, options, Options(), (sizes,), 1, context=CONTEXT, compile=dense)
    found = evaluate_job(job)
    assert (found.state, found.reason) == ("measured", "")
    both = (Options(), options)
    field = FieldJob(PROGRAM, TARGET, both, sizes, 1, 0.01, context=CONTEXT, compile=dense)
    assert [e.reason for e in evaluate_field(field)] == ["", ""]


def test_trials_of_code_for_other_sizes_are_not_resumed() -> None:
    keys = {Trials(PROGRAM, TARGET, context).compiler for context in ((), CONTEXT, CONTEXT[:1])}
    assert len(keys) == 3


@pytest.mark.usefixtures("own_options")
def test_a_declared_kernel_is_tuned_and_served() -> None:
    kernel = tc.define(MM, sizes=DECLARED).mm
    report = kernel.tune(candidates=3, progress=False)
    assert report.is_kept and not report.failures
    regions = kernel._dispatcher.making.regions
    assert {r.origin for r in regions} == {"user"}
    assert all(v.variants.context == CONTEXT for v in kernel._dispatcher.versions)
    for m, k, n in ((1, 16, 8), (40, 160, 64), (7, 48, 24)):
        a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
        assert (kernel(a, b) == k).all()
    again = tc.define(MM, sizes=DECLARED).mm
    assert again._dispatcher.making.regions == regions
