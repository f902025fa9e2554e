# SPDX-License-Identifier: Apache-2.0
"""Results that take the storage of what they are made from, and arrays that a program updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import ImmutableError, SizeError
from tcsym.runtime.native import HAS_ENTRIES
from tests.network.test_plan import LAYERS

SHARED = """
def shared(float(B,K) X, float(K,N) U, float(N,M) W) -> (Y) {
    F(b,n) +=! X(b,k) * U(k,n)
    S(n) +=! F(b,n)
    E(b,m) = F(b,m) / S(m)
    Y(b,m) +=! E(b,n) * W(n,m)
}
"""
CELL = """
def cell(float(B,I) x, inout float(B,H) h, inout int32 n, float(I,H) U, float(H,H) V) -> (y) {
    z(b,j) +=! x(b,i) * U(i,j)
    z(b,j) += h(b,i) * V(i,j)
    h(b,j) = tanh(z(b,j))
    n += 1
    y(b) +=! h(b,j)
}
"""


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / 4


def _cell() -> tuple[Any, dict[str, Any], list[Any]]:
    given = {"U": _random(3, 8), "V": _random(8, 8)}
    return tcsym.define(CELL, target="cpu:novector").cell, given, list(_random(4, 2, 3))


def test_a_result_is_written_over_what_only_its_points_read() -> None:
    kernel = tcsym.define(SHARED, target="cpu:novector").shared
    plan = kernel.plan(bounds={"B": 8, "K": 5, "N": 9, "M": 7})
    assert (plan.tensor("E").over, plan.tensor("E").storage) == ("F", plan.tensor("F").storage)
    assert "in storage 0, over F" in str(plan)
    given = _random(6, 5), np.abs(_random(5, 9)), _random(9, 7)
    np.testing.assert_allclose(plan.session()(*given), kernel.reference(*given), 1e-3, 1e-3)


@pytest.mark.parametrize("read", ["F(B-1-b,m) / S(m)", "F(b,m) * F(0,m) / S(m)", "float(1) / S(m)"])
def test_nothing_is_written_over_what_is_read_elsewhere(read: str) -> None:
    where = " where b in 0:B" if read.startswith("float") else ""
    text = SHARED.replace("F(b,m) / S(m)", read + where)
    plan = tcsym.define(text, target="cpu:novector").shared.plan()
    assert not any(t.over for t in plan.tensors)


def test_nothing_is_written_over_what_another_statement_reads() -> None:
    text = SHARED.replace("F(b,m) / S(m)", "F(b,m) / S(m)\n    D(b,m) = F(b,m) * E(b,m)").replace(
        "E(b,n) * W", "(E(b,n) + D(b,n)) * W"
    )
    plan = tcsym.define(text, target="cpu:novector").shared.plan()
    assert any({"E", "D"} <= {t.name for t in s.program.tensors} for s in plan.steps)
    assert not any(t.over for t in plan.tensors)


def test_a_product_is_not_written_over_its_operand() -> None:
    assert not any(t.over for t in tcsym.define(LAYERS).plan().tensors)


def test_states_stay_in_place_between_calls(tmp_path: Path) -> None:
    kernel, given, inputs = _cell()
    session = kernel.plan().session()
    h, n = np.zeros((2, 8), np.float32), np.zeros((), np.int32)
    for x in inputs:
        np.testing.assert_allclose(session(x=x, **given), kernel.reference(x, h, n, **given), 1e-4)
    np.testing.assert_allclose(session.state["h"], h, 1e-4, 1e-5)
    assert session.state["n"] == 4
    session.save(tmp_path / "state.npz")
    other = kernel.plan().session()
    other.load(tmp_path / "state.npz")
    assert (other(x=inputs[0], **given) == session(x=inputs[0], **given)).all()


def test_arrays_of_the_caller_are_updated() -> None:
    kernel, given, inputs = _cell()
    session = kernel.plan().session()
    h, n = np.zeros((8, 2), np.float32).T, np.zeros((), np.int32)
    other, m = np.zeros((2, 8), np.float32), np.zeros((), np.int32)
    for x in inputs:
        session(x, h, n, **given)
        kernel.reference(x, other, m, **given)
    np.testing.assert_allclose(h, other, 1e-4, 1e-5)
    assert n == 4 and not session.state


@pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")
def test_updates_run_no_python(monkeypatch: Any) -> None:
    kernel, given, inputs = _cell()
    kept, bound = kernel.plan().session(), kernel.plan().session(constants=given)
    h, n = np.zeros((2, 8), np.float32), np.zeros((), np.int32)
    mine = [(h.copy(), n.copy()) for _ in range(2)]
    for session in (kept, bound):
        for x in inputs[:2]:  # states that the session has, and the caller's arrays in another one
            session(x=x, **(given if session is kept else {}))
    given_once = kernel.plan().session()
    given_once(inputs[0], *mine[0], **given)
    for session in (kept, bound, given_once):
        monkeypatch.setattr(session, "_prepare", None)
    for x in inputs[:2]:
        kernel.reference(x, h, n, **given)
    given_once(inputs[1], *mine[0], **given)
    np.testing.assert_allclose(mine[0][0], h, 1e-4, 1e-5)
    for x in inputs[2:]:
        want = kernel.reference(x, h, n, **given)
        np.testing.assert_allclose(kept(x=x, **given), want, 1e-4)
        np.testing.assert_allclose(bound(x), want, 1e-4)
    for session in (kept, bound):
        np.testing.assert_allclose(session.state["h"], h, 1e-4, 1e-5)
        assert session.state["n"] == n
    with pytest.raises(ImmutableError, match="overlaps `U`"):
        given_once(inputs[0], given["U"][:2], mine[0][1], given["U"], given["V"])


def test_what_is_updated_is_apart_from_constants() -> None:
    kernel, given, inputs = _cell()
    session, n = kernel.plan().session(constants=given), np.zeros((), np.int32)
    session(inputs[0], np.zeros((2, 8), np.float32), n)
    for _ in range(2):
        with pytest.raises(ImmutableError, match="overlaps `V`"):
            session(inputs[0], given["V"][:2], n)


def test_what_cannot_be_updated_is_refused() -> None:
    text = "def f(inout float(N) h, float(N,N) A) -> (y) { y(i) +=! A(i,j) * h(j)  h(i) = y(i) }"
    session = tcsym.define(text, target="cpu:novector").f.plan().session()
    h, A = np.ones(3, np.float32), np.eye(3, dtype=np.float32)
    y = session(h, A)
    with pytest.raises(ImmutableError, match="result of this session"):
        session(y, A)
    with pytest.raises(ImmutableError, match="overlaps `A`"):
        session(A[0], A)
    with pytest.raises(SizeError, match="`h` is missing"):
        tcsym.define("def g(inout float(N) h) -> () { h(i) += 1.0 }").g.plan().session()()


def test_what_reads_before_a_write_runs_before_it() -> None:
    text = """def f(inout float(N) h, float(N,N) A, float(N) x) -> (before, after) {
        before(i) +=! A(i,j) * h(j)
        z(i) +=! A(i,j) * x(j)
        h(i) = z(i)
        after(i) +=! A(i,j) * h(j)
    }"""
    kernel = tcsym.define(text, target="cpu:novector").f
    given = np.arange(4, dtype=np.float32), _random(4, 4), _random(4)
    want = kernel.reference(given[0].copy(), *given[1:])
    for found, wanted in zip(kernel.plan().session()(*given), want):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
