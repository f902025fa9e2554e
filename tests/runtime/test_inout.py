# SPDX-License-Identifier: Apache-2.0
"""Calls that update arrays in place, through Python and native entries, under every strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym import Dim
from tcsym.errors import TCError
from tcsym.strategy import Bucket, Pad, Specialize, Symbolic

ADD = "def add(inout float(N,M) Y, float(N,M) X) -> () { Y(i,j) += X(i,j) }"
CALLS = 4  # the first through Python, then natively


@pytest.fixture(scope="module")
def add() -> Any:
    return tcsym.define(ADD, target="cpu:novector").add


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def unaligned() -> Any:
    return np.zeros(4 * 12 + 1, np.uint8)[1:].view(np.float32).reshape(3, 4)


ARRAYS: dict[str, Callable[[], Any]] = {
    "dense": lambda: zeros(3, 4),
    "transposed": lambda: zeros(4, 3).T,
    "reversed": lambda: zeros(3, 4)[::-1],
    "steps": lambda: zeros(6, 8)[::2, 1::2],
    "unaligned": unaligned,
    "empty": lambda: zeros(3, 0),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_callers_memory_changes(add: Any, name: str) -> None:
    Y = ARRAYS[name]()
    for k in range(CALLS):
        assert add(Y, np.full(Y.shape, 2, np.float32)) is None
        assert np.array_equal(Y, np.full(Y.shape, 2 * (k + 1)))
    assert add.reference(Y, np.full(Y.shape, 1, np.float32)) is None
    assert (Y == 2 * CALLS + 1).all()


def refusals() -> dict[str, tuple[tuple[Any, Any], str]]:
    whole, read_only, X = zeros(6, 4), zeros(3, 4), np.ones((3, 4), np.float32)
    read_only.flags.writeable = False
    twice = np.lib.stride_tricks.as_strided(whole, (3, 4), (0, 4))
    return {
        "read-only": ((read_only, X), "immutable"),
        "overlaps itself": ((twice, X), "immutable"),
        "is the other": ((whole[:3], whole[:3]), "immutable"),
        "overlaps the other": ((whole[:3], whole[2:5]), "immutable"),
        "number": ((1.0, X), "type"),
        "other type": ((whole[:3].astype(float), X), "type"),
        "other size": ((whole[:3], X[:2]), "size"),
    }


@pytest.mark.parametrize("name", refusals())
def test_nothing_is_written_by_a_call_that_is_refused(add: Any, name: str) -> None:
    add(zeros(3, 4), zeros(3, 4))
    (Y, X), kind = refusals()[name]
    before = np.array(Y)
    for call in (add, add.reference):
        with pytest.raises(TCError) as e:
            call(Y, X)
        assert e.value.kind == kind
        assert (np.array(Y) == before).all()


def test_out_must_be_apart_too() -> None:
    kernel = tcsym.define(
        "def f(inout float(N) Y) -> (Z) { Y(i) += 1.0  Z(i) = Y(i) }", target="cpu:novector"
    ).f
    Y, Z = zeros(5), zeros(5)
    for _ in range(CALLS):
        assert kernel(Y, out=Z) is Z
        with pytest.raises(TCError, match="`Y` overlaps `out` for `Z`") as e:
            kernel(Y, out=Y)
        assert (e.value.kind, e.value.column) == ("immutable", 22)
    assert (Y == CALLS).all() and (Z == CALLS).all()


def test_a_call_that_fails_inside_is_not_run_again() -> None:
    text = "def f(inout int32(N) I, float(M) X) -> () { I(i) = I(i) - 1  I(i) = int32(X(I(i))) }"
    kernel = tcsym.define(text, target="cpu:novector").f
    for _ in range(CALLS):
        with pytest.raises(TCError, match="out of range"):
            kernel(np.array([1, 5], np.int32), zeros(4))  # a second run would find 4, then 3
        good = np.array([1, 4], np.int32)
        kernel(good, zeros(4))
        assert (good == 0).all()


@pytest.mark.parametrize("strategy", [Symbolic(), Specialize(), Bucket(), Pad("max"), Pad(16)])
def test_every_strategy_writes_what_belongs_to_the_array(strategy: Any) -> None:
    text = "def f(inout float(N,M) Y, float(M) X) -> (s) { Y(i,j) += X(j)  s(j) +=! Y(i,j) }"
    bounds = {"N": Dim(1, 16), "M": Dim(1, 16)}
    kernel = tcsym.define(text, strategy=strategy, sizes=bounds, target="cpu:novector").f
    memory = np.full((20, 20), 7, np.float32)
    Y, X = memory[2:13, 3:8], np.arange(5, dtype=np.float32)
    for k in range(3):
        s = kernel(Y, X)
        assert np.array_equal(Y, np.broadcast_to(7 + (k + 1) * X, Y.shape))
        assert np.array_equal(s, Y.sum(0))
    memory[2:13, 3:8] = 7
    assert (memory == 7).all()
