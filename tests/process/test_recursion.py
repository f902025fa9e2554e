# SPDX-License-Identifier: Apache-2.0
"""What is too deep is an error of ours; nothing of the process changes for it."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import tcsym
from tcsym.errors import TCSyntaxError
from tcsym.process.recursion import depth_checked


def below(depth: int) -> int:
    return 0 if depth == 0 else 1 + below(depth - 1)


def test_what_is_deeper_is_an_error_of_ours() -> None:
    limit = sys.getrecursionlimit()
    with pytest.raises(TCSyntaxError, match=f"which is {limit} here"):
        depth_checked(below)(2 * limit)
    assert depth_checked(below)(10) == 10


def test_other_errors_remain_themselves() -> None:
    with pytest.raises(ZeroDivisionError):
        depth_checked(lambda: 1 // 0)()


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is changed for all threads of the process."""
    found: list[str] = []
    for module, name in (
        (sys, "setrecursionlimit"),
        (threading, "stack_size"),
        *((gc, name) for name in ("disable", "enable", "freeze", "unfreeze", "set_threshold")),
    ):
        monkeypatch.setattr(module, name, lambda *_, name=name: found.append(name))
    yield found


def test_first_calls_and_gradients_change_nothing_for_other_threads(
    changes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCSYM_CACHE", "0")
    kernel = tcsym.define(
        "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    ).mm
    a = np.ones((3, 3), np.float32)
    assert (kernel(a, a) == 3).all()
    assert (kernel.grad()(a, a, np.ones_like(a))[0] == 3).all()
    assert changes == []
