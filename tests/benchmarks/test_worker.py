# SPDX-License-Identifier: Apache-2.0
"""A worker's estimate of a call: it decides on repeats and rounds."""

from __future__ import annotations

import time

import pytest

from benchmarks import worker


def test_one_slow_call_among_quick_ones_is_no_estimate() -> None:
    waits = [0.02, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert worker._least_seconds(lambda: time.sleep(waits.pop(0))) < 0.01


def test_a_long_call_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_ESTIMATING", 0.001)
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        time.sleep(0.002)

    assert worker._least_seconds(call) >= 0.002
    assert len(calls) == 1
