# SPDX-License-Identifier: Apache-2.0
"""Constants of sessions: what follows from them is computed when they are bound, not in calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import BoundsError, CallError, OptionError, SizeError
from tcsym.runtime.native import HAS_ENTRIES
from tests.network.test_plan import LAYERS
from tests.network.test_session import STEP

ADAPTED = """
def adapted(float(B,K) X, float(K,R) A, float(R,N) C, float(N) b) -> (Y) {
    P(k,n) +=! A(k,r) * C(r,n)
    Q(k,n) = 2 * P(k,n)
    Y(i,n) +=! X(i,k) * Q(k,n)
    Y(i,n) = Y(i,n) + exp(b(n))
}
"""
RNN = """
def rnn(float(T,B,I) X, float(H,I) U, float(H,H) V) -> (float(T+1,B,H) S) {
    S(0,n,h) = 0.0
    for t in 0:T {
        P(n,h) +=! X(t,n,i) * U(h,i)
        R(n,h) +=! S(t,n,i) * V(h,i)
        S(t+1,n,h) = tanh(P(n,h) + R(n,h))
    }
}
"""


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / 4


def _weights() -> dict[str, Any]:
    return {"U": _random(20, 33), "V": _random(33, 33), "W": _random(33, 9)}


@pytest.mark.parametrize("memory", ["planned", "exact"])
def test_calls_give_the_rest_at_any_sizes(memory: Any) -> None:
    kernel, weights = tcsym.define(LAYERS), _weights()
    plan = kernel.plan(bounds={"B": 40, "K": 20, "N": 33, "M": 9})
    session = plan.session(memory=memory, constants=weights)
    for b in (3, 40, 1, 0, 16, 3):
        x = _random(b, 20)
        for _ in range(2):
            want = kernel.reference(x, **weights)
            np.testing.assert_allclose(session(x), want, 1e-4, 1e-4)


def test_what_follows_from_constants_is_no_step_of_calls() -> None:
    kernel = tcsym.define(ADAPTED)
    given = {"A": _random(20, 5), "C": _random(5, 30), "b": _random(30)}
    session = kernel.plan().session(constants=given)
    assert session.plan.held == ("Q",) and session.plan.binding is not None
    read = {n for s in session.plan.steps for n in s.reads}
    assert read == {"X", "Q", "b"}
    assert "at binding, adapted.binding: A, C -> Q" in str(session.plan)
    x = _random(7, 20)
    np.testing.assert_allclose(session(X=x), kernel.reference(x, **given), 1e-4, 1e-4)


@pytest.mark.parametrize("b", [1, 2, 16])
def test_bytes_are_those_of_the_formula(b: int) -> None:
    given = {"A": _random(20, 5), "C": _random(5, 30), "b": _random(30)}
    session, x = tcsym.define(ADAPTED).plan().session(constants=given), _random(b, 20)
    session(x, threads=1)
    memory = session.plan.memory()
    known = sum(a.nbytes for a in (x, *given.values()))
    assert session.bytes + known == memory.at(threads=1, B=b, K=20, R=5, N=30)
    assert "held: " in str(memory)


def test_panels_are_filled_at_binding_only() -> None:
    kernel, weights = tcsym.define(STEP), {"U": _random(8, 40), "V": _random(40, 40)}
    session = kernel.plan().session(constants=weights)
    x, h = _random(6, 8), _random(6, 40)
    before = session(x, h).copy()
    held = [view.owner for view in session._preparation._held.values()]
    assert sum(a.nbytes for a in held) >= 4 * 40 * (8 + 40)  # whole tiles of columns
    for array in held:
        array[:] = 0
    assert (session(x, h) == 0).all() and before.any()  # they are what calls read
    session.bind()
    np.testing.assert_array_equal(session(x, h), before)


def test_what_changes_is_bound_again() -> None:
    kernel, weights = tcsym.define(LAYERS), _weights()
    session, x = kernel.plan().session(constants=weights), _random(5, 20)
    session(x)
    weights["V"] *= 2
    session.bind(V=weights["V"])
    np.testing.assert_allclose(session(x), kernel.reference(x, **weights), 1e-4, 1e-4)
    weights = {"U": _random(6, 12), "V": _random(12, 12), "W": _random(12, 40)}
    session.bind(**weights)
    x = _random(4, 6)
    np.testing.assert_allclose(session(x), kernel.reference(x, **weights), 1e-4, 1e-4)


def test_weights_of_a_loop_in_order_are_packed_before_it() -> None:
    kernel, weights = tcsym.define(RNN), {"U": _random(40, 8), "V": _random(40, 40)}
    session = kernel.plan().session(constants=weights)
    for steps, b in ((5, 3), (1, 1), (4, 16)):
        x = _random(steps, b, 8)
        np.testing.assert_allclose(session(x), kernel.reference(x, **weights), 1e-4, 1e-4)
    assert session._preparation.held_bytes >= 4 * 64 * 48


def test_each_matrix_of_a_batch_of_weights_is_packed() -> None:
    text = "def f(float(B,E,K) X, float(E,N,K) W) -> (Y) { Y(b,e,n) +=! X(b,e,k) * W(e,n,k) }"
    kernel, w = tcsym.define(text).f, _random(3, 70, 20)
    session = kernel.plan().session(constants={"W": w})
    for b in (1, 5, 16):
        x = _random(b, 3, 20)
        np.testing.assert_allclose(session(x), kernel.reference(x, w), 1e-4, 1e-4)
    assert session._preparation.held_bytes >= w.nbytes
    session.bind(W=np.asfortranarray(2 * w))
    np.testing.assert_allclose(session(x), 2 * kernel.reference(x, w), 1e-4, 1e-4)


def test_columns_of_several_loops_are_packed_for_each_of_two_sums() -> None:
    """Rows of 16 lanes are found by division in one operand, and blocks turned in the other."""
    kernel = tcsym.define("""
    def f(float(M,2) A, float(2,H,W) X, float(M,2) B, float(W,H,2) Y) -> (Z) {
      Z(m,h,w) +=! A(m,k) * X(k,h,w) + B(m,k) * Y(w,h,k) }""")
    weights = {"X": _random(2, 100, 15), "Y": _random(15, 100, 2)}
    a, b = _random(25, 2), _random(2, 25).T.copy()
    got = kernel.plan().session(constants=weights)(A=a, B=b)
    np.testing.assert_allclose(got, kernel.reference(a, weights["X"], b, weights["Y"]), 1e-4, 1e-5)


@pytest.mark.parametrize("rows", [5, 700])
def test_weights_that_an_index_finds_are_constants(rows: int) -> None:
    """The index of grouped rows is a loop around their contraction, which moves its operand."""
    kernel = tcsym.define("""def f(int32(N) I, float(E,K,M) W, float(N,K) X) -> (Y) {
      Y(n,m) +=! X(n,k) * W(I(n),k,m) }""")
    index, w, x = np.arange(rows, dtype=np.int32) % 4, _random(4, 8, 100), _random(rows, 8)
    got = kernel.plan().session(constants={"W": w})(I=index, X=x)
    np.testing.assert_allclose(got, kernel.reference(index, w, x), 1e-4, 1e-5)


@pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")
def test_calls_run_no_python_with_constants_and_states(monkeypatch: Any) -> None:
    kernel, weights = tcsym.define(STEP), {"U": _random(3, 4), "V": _random(4, 4)}
    session = kernel.plan().session(state={"h": "n"}, constants=weights)
    h = np.zeros((2, 4), np.float32)
    for k in range(3):
        x = _random(2, 3) + k
        h = kernel.reference(x, h, **weights)
        np.testing.assert_allclose(session(x), h, 1e-5, 1e-5)
    monkeypatch.setattr(session, "_prepare", None)
    np.testing.assert_allclose(session(x), kernel.reference(x, h, **weights), 1e-5, 1e-5)


def test_a_result_of_the_session_may_become_a_constant() -> None:
    kernel = tcsym.define(LAYERS)
    x, u, v, w = _random(7, 7), _random(7, 7), _random(7, 7), _random(7, 7)
    session = kernel.plan().session(constants={"U": u, "V": v, "W": w})
    y = session(x)
    want = kernel.reference(x, y.copy(), v, w)
    session.bind(U=y)
    for _ in range(2):
        np.testing.assert_allclose(session(x), want, 1e-4, 1e-4)


def test_wrong_constants_are_refused() -> None:
    plan, weights = tcsym.define(LAYERS).plan(bounds={"N": 33}), _weights()
    with pytest.raises(OptionError, match="`Q`, which is no input"):
        plan.session(constants={"Q": weights["U"]})
    with pytest.raises(OptionError, match="is a list, expected arrays by name"):
        plan.session(constants=["U"])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="`X`, which is no input"):
        plan.session(constants={"X": _random(3, 20)}, state={"X": "Y"})
    session = plan.session(constants=weights)
    with pytest.raises(OptionError, match="`X` is no constant"):
        session.bind(X=_random(3, 20))
    with pytest.raises(CallError, match="no parameter `U`"):
        session(_random(3, 20), U=weights["U"])
    with pytest.raises(SizeError, match="told by constants"):
        session(_random(3, 21))
    with pytest.raises(SizeError, match="planned for at most 33"):
        session.bind(U=_random(20, 34), V=_random(34, 34), W=_random(34, 9))
    np.testing.assert_allclose(session(_random(3, 20)).shape, (3, 9))


def test_what_follows_from_constants_may_have_the_shape_of_a_formula() -> None:
    text = """def f(float(B) X, float(B,3) D) -> (Y) {
      T(i) +=! D(2*i + k, 0) where k in 0:3
      Y(j) = T(0) * X(j)
    }"""
    kernel, x, d = tcsym.define(text).f, _random(7), _random(7, 3)
    session = kernel.plan().session(constants={"D": d})
    np.testing.assert_allclose(session(x), kernel.reference(x, d), 1e-4)


UNCHECKED = """def f(uint32(B) C, uint8(M) D, float(N) X) -> (Y) {
  T(i) = float((-D(min(i, M - 1))) * (C(i) + C(i))) where i in 0:B
  S +=! T(i)
  Y(n) = X(n) * S
}"""


def test_what_is_bound_is_checked_as_calls_are() -> None:
    """A constant without elements was read in front of its memory."""
    kernel, x = tcsym.define(UNCHECKED).f, np.ones(2, np.float32)
    given = {"C": np.ones(31, np.uint32), "D": np.ones(0, np.uint8)}
    with pytest.raises(BoundsError) as wanted:
        kernel(*given.values(), x)
    plan = kernel.plan()
    session = plan.session(constants={**given, "D": np.ones(3, np.uint8)})
    assert session(X=x).shape == x.shape
    with pytest.raises(BoundsError) as found:
        session.bind(**given)
    assert (found.value.line, found.value.column) == (wanted.value.line, wanted.value.column)
