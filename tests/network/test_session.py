# SPDX-License-Identifier: Apache-2.0
"""Sessions: results of the reference, in memory that is reused."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsym
from tcsym.errors import BoundsError, OptionError, SizeError, TargetError
from tcsym.runtime.native import HAS_ENTRIES
from tests.network.test_plan import CAT, LAYERS

STEP = """
def step(float(B,I) x, float(B,H) h, float(I,H) U, float(H,H) V) -> (n) {
    n(b,j) +=! x(b,i) * U(i,j)
    n(b,j) += h(b,i) * V(i,j)
    n(b,j) = tanh(n(b,j))
}
"""

BRANCHES = """
def branches(float(B,K) X, float(K,N) U, float(K,N) V) -> (Y) {
    F(b,n) +=! X(b,k) * U(k,n)
    G(b,n) +=! X(b,k) * V(k,n)
    Y(b,c) +=! F(b,n) * G(c,n)
}
"""


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _layers(b: int, k: int, n: int, m: int) -> tuple[Any, ...]:
    return _random(b, k), _random(k, n), _random(n, n), _random(n, m)


@pytest.mark.parametrize("memory", ["planned", "exact"])
def test_results_are_those_of_the_reference_at_any_sizes(memory: str) -> None:
    kernel = tcsym.define(LAYERS)
    session = kernel.plan(bounds={"B": 40, "K": 20, "N": 33, "M": 9}).session(memory=memory)
    for sizes in ((3, 5, 7, 2), (40, 20, 33, 9), (0, 1, 1, 1), (3, 5, 7, 2)):
        given = _layers(*sizes)
        np.testing.assert_allclose(session(*given), kernel.reference(*given), 1e-4, 1e-4)


def test_what_is_written_over_itself_stays_behind_what_reads_it_before() -> None:
    """Its old elements are kept in an earlier nest (`S2.old`), which is not where it runs."""
    text = """def f(int32(B) A, int32(B) C, size S) -> (U) {
      T(i,j) = A(i) + C(j)
      U(i,l) +=! T(S*i + k, l) where k in 0:1, i in 0:1/S+1
      T(i,j) = T(i,i)
    }"""
    kernel, x = tcsym.define(text).f, np.arange(3, dtype=np.int32)
    session = kernel.plan().session()
    np.testing.assert_array_equal(session(x, 10 * x, 1), kernel.reference(x, 10 * x, 1))


def test_a_call_allocates_nothing_and_reuses_its_memory() -> None:
    session = tcsym.define(LAYERS).plan(bounds={"B": 64, "K": 64, "N": 64, "M": 64}).session()
    given = _layers(64, 64, 64, 64)
    first = session(*given)
    session(*given)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(50):
        assert session(*given).ctypes.data == first.ctypes.data
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 4096  # less than the smallest tensor


def test_calls_after_the_first_of_some_sizes_run_no_python(monkeypatch: Any) -> None:
    kernel = tcsym.define(LAYERS)
    session = kernel.plan(bounds={"B": 8, "K": 8, "N": 8, "M": 8}).session()
    calls = [_layers(2, 3, 4, 5), _layers(8, 8, 8, 8)]
    wants = [session(*given).copy() for given in calls]
    monkeypatch.setattr(session, "_prepare", None)
    for given, want in [*zip(calls, wants)] * 2:
        np.testing.assert_array_equal(session(*given), want)
    x, *weights = calls[0]
    for other in (x.astype(np.float64), x.T.copy().T, _random(3, 3)):
        with pytest.raises((tcsym.TCError, TypeError)):  # of another kind: Python is asked
            session(other, *weights)


@pytest.mark.parametrize("threads", [1, 3])
def test_exact_memory_is_what_the_formula_says(threads: int) -> None:
    kernel = tcsym.define(BRANCHES)
    plan = kernel.plan(parallel=True)
    session, memory = plan.session(), plan.memory()
    for b, k, n in ((3, 5, 7), (70, 40, 90), (4, 2, 3)):
        given = _random(b, k), _random(k, n), _random(k, n)
        session(*given, threads=threads)
        whole = memory.at(threads=threads, B=b, K=k, N=n)
        assert session.bytes + sum(x.nbytes for x in given) == whole


@pytest.mark.parametrize("threads", [1, 2])
def test_steps_of_a_turn_run_at_once_with_the_results_of_the_reference(threads: int) -> None:
    kernel = tcsym.define(BRANCHES)
    plan = kernel.plan(bounds={"B": 80, "K": 80, "N": 80}, parallel=True)
    assert [len(turn) for turn in plan.turns] == [2, 1]
    session = plan.session()
    for b, k, n in ((80, 70, 80), (2, 3, 4), (80, 70, 80)):
        given = _random(b, k), _random(k, n), _random(k, n)
        want = kernel.reference(*given)
        got = session(*given, threads=threads)
        np.testing.assert_allclose(got, want, 1e-4, 1e-5 * np.abs(want).max())


def test_sizes_beyond_a_bound_are_refused_before_anything_is_written() -> None:
    session = tcsym.define(CAT)["all"].plan(bounds={"n1": 4, "n2": 4, "n3": 4}).session()
    given = [_random(n, 4, 2, 3) for n in (2, 3, 4, 27)]
    result = session(*given)
    kept = result.copy()
    with pytest.raises(SizeError, match="`n1` is 5, but memory is planned for at most 4"):
        session(_random(5, 4, 2, 3), *given[1:])
    np.testing.assert_array_equal(result, kept)
    np.testing.assert_array_equal(result, np.concatenate(given))


def test_memory_without_bounds_is_exact_or_an_error() -> None:
    plan = tcsym.define(LAYERS).plan(bounds={"B": 4})
    assert plan.arena_bytes is None
    assert plan.session()(*_layers(2, 3, 4, 5)).shape == (2, 5)
    with pytest.raises(OptionError, match="K, N, M have no bound"):
        plan.session(memory="planned")


def test_a_state_goes_from_call_to_call_and_to_a_file(tmp_path: Path) -> None:
    kernel = tcsym.define(STEP)
    session = kernel.plan().session(state={"h": "n"})
    u, v, h = _random(3, 4), _random(4, 4), np.zeros((2, 4), np.float32)
    for k in range(3):
        x = _random(2, 3) + k
        h = kernel.reference(x, h, u, v)
        np.testing.assert_allclose(session(x=x, U=u, V=v), h, 1e-5, 1e-5)
    session.save(tmp_path / "state.npz")
    assert session._enter != session._serve  # native code finds the state
    other = kernel.plan().session(state={"h": "n"})
    other.load(tmp_path / "state.npz")
    x = _random(2, 3)
    for _ in range(2):
        np.testing.assert_array_equal(other(x=x, U=u, V=v), session(x=x, U=u, V=v))
    session.state = {"h": h}
    np.testing.assert_array_equal(session(x=x, U=u, V=v), other(x=x, h=h, U=u, V=v))
    assert session.state["h"].tolist() == other.state["h"].tolist()
    with pytest.raises(OptionError, match="no output"):
        kernel.plan().session(state={"h": "q"})


STATES = """
def step(float(B,I) x, float(B,H) h, float(H) c, half(3) q, float a, float(I,H) U)
    -> (float(B,H) n, float(H) d, half(3) r, float b) {
  n(i,j) +=! x(i,k) * U(k,j)
  n(i,j) = tanh(n(i,j) + h(i,j) + a)
  d(j) = c(j) + 1
  r(k) = q(k) + q(k) where k in 0:3
  b = a + 1
}"""


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("h", np.zeros((2, 4)), "float64 of 2 dimensions, expected float32"),
        ("h", np.zeros(4, np.float32), "1 dimensions, expected float32"),
        ("h", np.zeros((2, 5), np.float32), "is 4"),  # beside `c`, which has 4
        ("h", [[0.0]], "float64"),
        ("q", np.zeros(4, np.float16), "`3` of"),
        ("q", np.zeros(3, np.int16), "int16"),
        ("a", np.zeros(1, np.float32), "1 dimension"),
        ("a", 1j, "complex"),
    ],
)
def test_a_state_of_another_session_is_refused(
    name: str, value: Any, message: str, tmp_path: Path
) -> None:
    feeds = {"h": "n", "c": "d", "q": "r", "a": "b"}
    session = tcsym.define(STATES).plan().session(state=feeds)
    good = {"c": np.ones(4, np.float32), "h": np.ones((2, 4), np.float32), "a": 2}
    session.state = good
    before = session.state
    with pytest.raises(OptionError, match=message):
        session.state = {"c": good["c"], name: value}
    np.savez(tmp_path / "state.npz", **{"c": good["c"], name: value})
    with pytest.raises(OptionError, match=message):
        session.load(tmp_path / "state.npz")
    for key, x in session.state.items():  # as it was
        np.testing.assert_array_equal(x, before[key])
    found = session(x=np.ones((2, 3), np.float32), q=np.ones(3, np.float16), U=_random(3, 4))
    assert found.b == 3 and found.d.tolist() == [2] * 4


def test_junk_is_no_state(tmp_path: Path) -> None:
    session = tcsym.define(STEP).plan().session(state={"h": "n"})
    whole = tmp_path / "whole.npz"
    np.savez(whole, h=np.zeros((2, 4), np.float32))
    content = whole.read_bytes()
    junk = {
        "empty": b"",
        "text": b"no state",
        "cut": content[: len(content) // 2],
        "damaged": content[:60] + bytes([content[60] ^ 255]) + content[61:],
        "pickle": pickle.dumps({"h": 3}),
    }
    for name, data in junk.items():
        (tmp_path / name).write_bytes(data)
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "objects.npz", h=np.array([None], object))
    for name in (*junk, "one.npy", "objects.npz", "nowhere", "."):
        with pytest.raises(OptionError, match="cannot read"):
            session.load(tmp_path / name)
    assert session.state == {}
    with pytest.raises(OptionError, match="`z` is no state"):
        np.savez(whole, z=np.zeros(3))
        session.load(whole)


def test_types_that_numpy_forgets_come_back(tmp_path: Path) -> None:
    text = "def f(bfloat16(N) h) -> (bfloat16(N) n) { n(i) = h(i) + h(i) }"
    session = tcsym.define(text).plan().session(state={"h": "n"})
    session.state = {"h": np.arange(3).astype(ml_dtypes.bfloat16)}
    session.save(tmp_path / "state.npz")
    other = tcsym.define(text).plan().session(state={"h": "n"})
    other.load(tmp_path / "state.npz")
    assert np.asarray(other(), np.float32).tolist() == [0, 2, 4]


def test_a_result_may_be_the_next_input() -> None:
    kernel = tcsym.define(LAYERS)
    session = kernel.plan().session()
    x, u, v, w = _layers(80, 80, 80, 80)
    y = session(x, u, v, w)
    want = kernel.reference(y.copy(), u, v, w)
    np.testing.assert_allclose(session(y, u, v, w), want, 1e-3, 1e-3 * abs(want).max())


@pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")
def test_steps_may_be_kernels_of_a_device_in_its_twin() -> None:
    kernel = tcsym.define(BRANCHES, target="cuda:twin")
    session = kernel.plan(bounds={"B": 8, "K": 8, "N": 9}).session()
    for b, k, n in ((3, 5, 7), (8, 8, 9)):
        given = _random(b, k), _random(k, n), _random(n, k).T
        np.testing.assert_allclose(session(*given), kernel.reference(*given), 1e-4, 1e-4)


def test_one_session_serves_calls_of_several_threads() -> None:
    kernel = tcsym.define(STEP)
    session = kernel.plan().session(state={"h": "n"})
    ones = {"U": np.zeros((1, 1), np.float32), "V": np.ones((1, 1), np.float32)}
    x, h = np.zeros((1, 1), np.float32), np.full((1, 1), 0.5, np.float32)
    session(x=x, h=h, **ones)

    def run() -> None:
        for _ in range(500):
            session(x=x, **ones)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    want = 0.5
    for _ in range(1501):
        want = np.tanh(want)
    np.testing.assert_allclose(session.state["h"], want, 1e-3)


def test_a_session_says_that_it_does_not_pickle() -> None:
    with pytest.raises(TypeError, match="pickle its kernel"):
        pickle.dumps(tcsym.define(BRANCHES).plan().session())


def test_memory_is_told_where_there_is_no_device() -> None:
    plan = tcsym.define(STEP, target="cuda:sm_90a").plan()
    assert plan.memory().at(B=2, I=3, H=4) == 4 * (2 * 3 + 2 * 2 * 4 + 3 * 4 + 4 * 4)
    with pytest.raises(TargetError):
        plan.session()


def test_a_failed_check_in_a_step_is_the_error_of_the_kernel() -> None:
    kernel = tcsym.define("""
        def look(float(V,D) table, int32(N) at, float(D,M) W) -> (Y) {
            E(n,d) = table(at(n),d)
            Y(n,m) +=! E(n,d) * W(d,m)
        }""")
    session = kernel.plan().session()
    given = _random(5, 3), np.array([1, 7], np.int32), _random(3, 2)
    with pytest.raises(BoundsError, match="table"):
        session(*given)


def test_sessions_of_several_threads_do_not_meet() -> None:
    kernel = tcsym.define(LAYERS)
    plan = kernel.plan(bounds={"B": 16, "K": 16, "N": 16, "M": 16})
    wrong: list[float] = []

    def run(n: int) -> None:
        session, given = plan.session(), _layers(n, n, n, n)
        want = kernel.reference(*given)
        for _ in range(20):
            wrong.append(float(np.abs(session(*given, threads=1) - want).max()))

    threads = [threading.Thread(target=run, args=(n,)) for n in (5, 9, 16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(wrong) == 60 and max(wrong) < 1e-3
