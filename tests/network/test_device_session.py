# SPDX-License-Identifier: Apache-2.0
"""Sessions on a CUDA device, which is emulated: memory, states and constants are there."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import BoundsError, DeviceError
from tcsym.runtime.cuda.primary import primary
from tcsym.target.devices import driver
from tests.emulated_driver import Driver, captured, cuda, emulated
from tests.network.test_plan import LAYERS
from tests.network.test_session import STEP, _layers, _random
from tests.runtime.test_cuda import Exported, Memory, Passed, refuse

__all__ = ["cuda", "emulated"]
STREAM, OTHER = 0x7730, 0x8840
SIZES = (3, 5, 7, 2), (40, 20, 33, 9), (1, 1, 1, 1), (3, 5, 7, 2)
BOUNDS = {"B": 40, "K": 20, "N": 33, "M": 9}


def defined(text: str) -> Any:
    """With one plan for each nest, which compiles quickly."""
    return tcsym.define(text, target="cuda", options=tcsym.Options(plan="ThreadPoints"))


def on_device(arrays: Any, **settings: Any) -> tuple[Memory, ...]:
    return tuple(Memory(x, **settings) for x in arrays)


def alone(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that do not enter natively are refused from now on."""
    monkeypatch.setattr("tcsym.network.session.match_arguments", refuse)


def counts(cuda: Driver) -> tuple[int, ...]:
    return cuda.allocations, cuda.frees, cuda.waits, cuda.modules


@pytest.mark.parametrize("memory", ["planned", "exact"])
def test_results_are_those_of_the_reference_at_any_sizes(cuda: Driver, memory: Any) -> None:
    kernel = defined(LAYERS)
    plan = kernel.plan(bounds=BOUNDS)
    session, formula = plan.session(memory=memory), plan.memory()
    for sizes in SIZES:
        given = _layers(*sizes)
        got = session(*on_device(given)).copy_to_host()
        np.testing.assert_allclose(got, kernel.reference(*given), 1e-4, 1e-4)
        if memory == "exact":
            whole = formula.at(**dict(zip("BKNM", sizes)))
            assert session.bytes + sum(x.nbytes for x in given) == whole
    if memory == "planned":
        assert session.bytes >= plan.arena_bytes


def test_steps_of_a_loop_have_scratch_memory_and_a_graph(cuda: Driver) -> None:
    text = """def gated(float(T,B,H) X, float(H,H) U, float(H,H) V) -> (float(T+1,B,H) S) {
      S(0,n,h) = 0.0
      for t in T {
        A(n,h) +=! S(t,n,k) * U(h,k)
        G(n,h) +=! A(n,k) * V(k,h)
        S(t+1,n,h) = tanh(G(n,h) + X(t,n,h))
      }
    }"""
    kernel = tcsym.define(
        text,
        target="cuda",
        options=tcsym.Options(plan="ThreadPoints\nt: LaunchSteps"),
    )
    session, formula = kernel.plan().session(), kernel.memory()
    given = _random(6, 3, 8), _random(8, 8), _random(8, 8)
    arrays, want = on_device(given), kernel.reference(*given)
    for graphs in (0, 1, 1):
        before = cuda.graphs
        np.testing.assert_allclose(session(*arrays).copy_to_host(), want, 1e-4, 1e-4)
        assert cuda.graphs - before == graphs
    whole = formula.at(T=6, B=3, H=8)
    assert session._scratch.bytes and session.bytes + sum(x.nbytes for x in given) == whole


def test_calls_settle_and_are_captured(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python runs, nothing is allocated, results lie where they lay; a number is written."""
    text = LAYERS.replace("float(N,M) W)", "float(N,M) W, float s)").replace("W(n,m)", "s * W(n,m)")
    kernel = defined(text)
    session = kernel.plan(bounds=BOUNDS).session()
    calls = [_layers(3, 5, 7, 2), _layers(40, 20, 33, 9)]
    given = [on_device(x, stream=STREAM) for x in calls]
    first = [session(*x, 2.0) for x in given * 2]
    alone(session, monkeypatch)
    before = counts(cuda)
    for k in (0, 1, 0):
        out = session(*given[k], 0.5)
        assert out is first[k + 2] and counts(cuda)[:2] == before[:2]
        want = kernel.reference(*calls[k], np.float32(0.5))
        np.testing.assert_allclose(out.copy_to_host(), want, 1e-4, 1e-4)
        before = counts(cuda)
    with captured(STREAM) as graphs:
        session(*given[1], 3.0)
    session(*given[0], 2.0)
    graphs[0].launch(STREAM)
    want = kernel.reference(*calls[1], np.float32(3))
    np.testing.assert_allclose(first[1].copy_to_host(), want, 1e-4, 1e-4)
    for other in (on_device(calls[0], stream=OTHER), on_device(calls[0], number=1), calls[0]):
        with pytest.raises(Passed):
            session(*other, 1.0)
    with pytest.raises(Passed):
        session(Exported(first[0]), *given[0][1:], 1.0)


def test_calls_on_another_stream_follow(cuda: Driver) -> None:
    kernel = defined(LAYERS)
    session, given = kernel.plan().session(), _layers(3, 5, 7, 2)
    here, there = on_device(given, stream=STREAM), on_device(given, stream=OTHER)
    session(*here)
    for k, arrays in enumerate((here, there, there, here)):
        session(*arrays)
        assert (cuda.stream, cuda.orders) == ((STREAM, OTHER, OTHER, STREAM)[k], (0, 1, 1, 2)[k])
    with pytest.raises(DeviceError, match="is called on cuda:1, but has its memory on cuda:0"):
        session(*on_device(given, number=1))


def test_a_state_stays_on_the_device(
    cuda: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = defined(STEP)
    session = kernel.plan().session(state={"h": "n"})
    u, v, h = _random(3, 4), _random(4, 4), np.zeros((2, 4), np.float32)
    weights, steps = on_device((u, v)), [_random(2, 3) + k for k in range(5)]
    arrays = on_device(steps)
    for k, x in enumerate(steps):
        h = kernel.reference(x, h, u, v)
        if k == 3:
            session.save(tmp_path / "state.npz")
            alone(session, monkeypatch)
            before = counts(cuda), cuda.copies
        got = session(x=arrays[k], U=weights[0], V=weights[1])
        if k == 3:
            assert (counts(cuda), cuda.copies) == (before[0], before[1] + 1)
        np.testing.assert_allclose(got.copy_to_host(), h, 1e-5, 1e-5)
    np.testing.assert_array_equal(session.state["h"], got.copy_to_host())
    monkeypatch.undo()
    other = kernel.plan().session(state={"h": "n"})
    other.load(tmp_path / "state.npz")
    for k in (3, 4):
        again = other(x=arrays[k], U=weights[0], V=weights[1])
    np.testing.assert_array_equal(again.copy_to_host(), got.copy_to_host())
    other.state = {"h": Memory(np.zeros((2, 4), np.float32))}
    with pytest.raises(DeviceError, match="`x` is on device cpu"):
        other(x=steps[0], U=weights[0], V=weights[1])


def test_the_stream_is_that_of_what_is_given(cuda: Driver) -> None:
    """States and constants, which come first here, are ready; what is elsewhere is waited for."""
    text = "def f(float(N) h, float(N) w, float(N) x) -> (n) { n(i) = h(i) * w(i) + x(i) }"
    kernel, x = defined(text), _random(9)
    w = Memory(x, stream=OTHER)
    session = kernel.plan().session(state={"h": "n"}, constants={"w": w})
    here = Memory(x, stream=STREAM)
    for _ in range(3):
        session(x=here)
        assert (cuda.stream, cuda.orders) == (STREAM, 1)
    session(x=Memory(x, stream=OTHER))
    assert (cuda.stream, cuda.orders) == (OTHER, 2)


def test_updates_are_states_without_a_copy(cuda: Driver) -> None:
    text = "def count(inout float(N) S, float(N) X) -> () { S(i) = S(i) + X(i) }"
    session, x = defined(text).plan().session(), _random(9)
    for _ in range(4):
        session(X=Memory(x))
    assert not cuda.copies
    np.testing.assert_allclose(session.state["S"], 4 * x, 1e-5)


def test_constants_are_bound_on_the_device(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """def adapted(float(B,K) X, float(K,R) A, float(R,N) C, float s) -> (Y) {
        P(k,n) +=! A(k,r) * C(r,n)
        Y(i,n) +=! X(i,k) * P(k,n)
        Y(i,n) = s * Y(i,n)
    }"""
    kernel = defined(text)
    a, c = _random(6, 5), _random(5, 7)
    session = kernel.plan().session(constants={"A": Memory(a), "C": Memory(c), "s": 2.0})
    assert session.plan.held == ("P",)
    for b in (3, 4, 3, 4):
        x = _random(b, 6)
        want = kernel.reference(x, a, c, np.float32(2))
        np.testing.assert_allclose(session(Memory(x)).copy_to_host(), want, 1e-4, 1e-4)
    whole = session.plan.memory().at(B=4, K=6, R=5, N=7)
    given = 4 * (4 * 6 + 6 * 5 + 5 * 7 + 1)
    assert session.bytes + given == whole
    session.bind(C=Memory(2 * c), s=-1.0)
    np.testing.assert_allclose(session(Memory(x)).copy_to_host(), -want, 1e-4, 1e-4)
    alone(session, monkeypatch)
    session(Memory(x))


def test_what_a_step_finds_is_raised_later(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """def look(float(V,D) table, int32(N) at, float(D,M) W) -> (Y) {
        E(n,d) = table(at(n),d)
        Y(n,m) +=! E(n,d) * W(d,m)
    }"""
    kernel = defined(text)
    session = kernel.plan().session()
    table, good, bad, w = (
        _random(5, 3),
        *(np.array([1, k], np.int32) for k in (4, 7)),
        _random(3, 2),
    )
    given = on_device((table, good, w))
    session(*given)
    session(given[0], Memory(bad), given[2])
    with pytest.raises(BoundsError, match="table"):
        tcsym.synchronize()
    session(given[0], Memory(bad), given[2])
    session.state  # noqa: B018
    with primary(0):
        driver().Context.synchronize()
    with pytest.raises(BoundsError, match="table"):
        session(*given)
    monkeypatch.setenv("TCSYM_SYNC", "1")
    with pytest.raises(BoundsError, match="table"):
        kernel.plan().session()(given[0], Memory(bad), given[2])
    session = kernel.plan().session()
    session(*given)
    cuda.fail_launch = 1
    with pytest.raises(tcsym.TargetError, match="invalid argument"):
        session(*given)


def test_results_come_in_kind(cuda: Driver) -> None:
    gpuarray = pytest.importorskip("pycuda.gpuarray")
    kernel = defined(LAYERS)
    session, given = kernel.plan().session(), _layers(3, 5, 7, 2)
    with primary(0):
        arrays = [gpuarray.to_gpu(x) for x in given]
        for _ in range(3):
            out = session(*arrays)
            assert isinstance(out, gpuarray.GPUArray)
            np.testing.assert_allclose(out.get(), kernel.reference(*given), 1e-4, 1e-4)
        shown = session(*on_device(given))
        assert type(shown).__name__ == "DeviceArray"
        again = session(shown, *on_device(_layers(2, 2, 4, 3)[1:]))  # what a result is, is copied
        want = kernel.reference(kernel.reference(*given), *_layers(2, 2, 4, 3)[1:])
        np.testing.assert_allclose(again.copy_to_host(), want, 1e-3, 1e-3)


def test_memory_ends_with_the_session(cuda: Driver) -> None:
    kernel = defined(LAYERS)
    given = on_device(_layers(3, 5, 7, 2))
    kernel.plan().session()(*given)
    gc.collect()
    before = cuda.allocations - cuda.frees
    session = kernel.plan(bounds=BOUNDS).session()
    session(*given)
    assert cuda.allocations - cuda.frees > before
    del session
    gc.collect()
    assert cuda.allocations - cuda.frees == before
