# SPDX-License-Identifier: Apache-2.0
"""Work beside the calls that fails is logged, and calls go on without it."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.dispatch.dispatcher import Dispatcher
from tcsym.runtime.background import beside, settle


def test_what_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tcsym"):
        beside(lambda: 1 // 0)
        settle()
    (record,) = caplog.records
    assert record.name == "tcsym.runtime" and record.levelname == "WARNING"
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError


def test_an_entry_that_cannot_be_made_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no entry")

    monkeypatch.setattr(Dispatcher, "_make", fails)
    kernel = tcsym.define("def f(float(N) X) -> (Y) { Y(i) = 2 * X(i) }").f
    x = np.ones(3, np.float32)
    with caplog.at_level(logging.WARNING, "tcsym"):
        for _ in range(2):
            assert (kernel(x) == 2).all()
        settle()
    assert "no entry" in caplog.text
