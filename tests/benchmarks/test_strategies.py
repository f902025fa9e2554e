# SPDX-License-Identifier: Apache-2.0
"""Streams of calls for all strategies: their sizes, their figures, and one run for real."""

from __future__ import annotations

import pytest

from benchmarks.strategies import (
    MOST_FLOPS,
    STRATEGIES,
    STREAMS,
    lines_of,
    run,
    stream_of,
    summary_of,
)
from benchmarks.suite import BY_NAME


@pytest.mark.parametrize("stream", STREAMS)
def test_streams_are_repeatable_and_short(stream: str) -> None:
    case = BY_NAME["conv"]
    sizes = stream_of(case, stream, 60, 1)
    assert sizes == stream_of(case, stream, 60, 1) and len(sizes) == 60
    assert all(case.n_flops(s) <= MOST_FLOPS for s in sizes)
    different = {tuple(s.values()) for s in sizes}
    assert len(different) == {"hot": 1, "few": 4}.get(stream, len(different))
    if stream == "growing":
        assert [case.n_flops(s) for s in sizes] == sorted(case.n_flops(s) for s in sizes)
    if stream == "batch":
        assert len({tuple(list(s.values())[1:]) for s in sizes}) == 1 < len(different)


def test_figures_compare_with_symbolic() -> None:
    figures = {"first": [9.0, 1.0], "steady": [[1.0, 1.0], [2.0, 3.0]], "compilations": 1}
    fast = {"first": [5.0, 4.0], "steady": [[0.5, 0.5], [0.5, 0.4]], "compilations": 2}
    made = summary_of({"symbolic": figures, "auto": fast})
    assert made["auto"]["ratio"] == 0.45 and made["symbolic"]["ratio"] == 1.0
    assert (made["symbolic"]["longest"], made["symbolic"]["wait"]) == (3000.0, 1.0)
    row = {"kernel": "mm", "stream": "hot", "strategies": made}
    assert lines_of([row])[-1].startswith("- hot: auto / symbolic 0.450 in the mean, 0.450 at")


def test_a_stream_runs_under_all_strategies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.strategies.settle", lambda *_: None)
    request = {"case": "softmax", "stream": "few", "calls": 6, "seed": 0, "hot": 10.0, "rounds": 1}
    found = run(request)
    assert set(found) == set(STRATEGIES)
    assert all(len(f["steady"][0]) == 6 and not f["failures"] for f in found.values())
