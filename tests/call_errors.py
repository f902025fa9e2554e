# SPDX-License-Identifier: Apache-2.0
"""Checks of call-time errors, shared by the tests of arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym as tc

F32 = np.float32
ADD = "def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"


def ones(*shape: int, dtype: Any = F32) -> Any:
    return np.ones(shape, dtype)


def failing(
    source: str, place: str, *args: Any, kind: str, define_with: Any = None, **kwargs: Any
) -> tc.TCError:
    """The error of a call; it must stand at the first `place` of `source`, marked by `|`."""
    before, _, after = place.partition("|")
    position = source.index(before + after) + len(before)
    line = source.count("\n", 0, position) + 1
    column = position - (source.rfind("\n", 0, position) + 1) + 1
    module = tc.define(source, **(define_with or {}))
    with pytest.raises(tc.TCError) as caught:
        next(iter(module[name] for name in module)).reference(*args, **kwargs)
    error = caught.value
    assert (error.kind, error.line, error.column) == (kind, line, column), str(error)
    return error
