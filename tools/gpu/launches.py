# SPDX-License-Identifier: Apache-2.0
"""Ways to launch: blocks that wait for each other, graphs of ours and of the caller, streams."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

import tcsym
from tcsym.options import Options
from tools.gpu.case import Case, Wrong, near
from tools.gpu.library import Library

RNN = """def rnn(float(T,B,H) X, float(B,H) h0, float(H,H) U) -> (float(T+1,B,H) S) {
  S(0,n,h) = h0(n,h)
  for t in T { A(n,h) +=! S(t,n,k) * U(h,k)  S(t+1,n,h) = tanh(A(n,h) + X(t,n,h)) }
}"""
WAYS = ("", "GridSteps", "LaunchSteps", "BlockSteps")
SHORT, LONG = ((1, 3, 8), (6, 3, 40)), ((6, 3, 40), (50, 64, 256), (200, 16, 512))
TWICE = "def twice(float(N,M) A) -> (O) { B(i) +=! A(i,j)  S +=! B(i) O(i,j) = A(i,j) * B(i) + S }"
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
MOST = 1e-4


@lru_cache(None)
def kernel(text: str, plan: str = "") -> Any:
    """A module of one def, which is called as that is."""
    return tcsym.define(text, target="cuda", options=Options(plan=plan) if plan else Options())


def cases(library: Library) -> Iterator[Case]:
    for way in WAYS:
        for sizes in SHORT if library.is_small else LONG:
            name = f"steps {'x'.join(map(str, sizes))} {way}".rstrip()
            yield Case(name, lambda w=way, s=sizes: _steps(library, w, s))
    yield Case("a captured call", lambda: _captured(library, is_first=False))
    yield Case("a captured first call", lambda: _captured(library, is_first=True))
    yield Case("captured steps", lambda: _captured_steps(library))
    yield Case("a stream beside", lambda: _beside(library))
    yield Case("a session", lambda: _session(library))
    yield Case("numbers and strides", lambda: _numbers(library))
    if find_spec("cupy"):
        yield Case("arrays of cupy", _cupy)


def _steps(library: Library, way: str, sizes: tuple[int, int, int]) -> dict[str, Any]:
    """Four calls: the second is recorded as a graph, which further ones launch; a last one in other
    memory."""
    rnn = kernel(RNN, way)
    given, found = arguments(library, sizes), dict[str, Any]()
    want = _expected(library, given)
    for _ in range(4):
        found = near(library, rnn(*given), want, MOST)
    others = arguments(library, sizes)
    return found | near(library, rnn(*others), _expected(library, others), MOST)


def arguments(library: Library, sizes: tuple[int, int, int]) -> Any:
    t, b, h = sizes
    u = library.host(library.random(h, h)) / np.float32(h**0.5)
    return library.random(t, b, h), library.random(b, h), library.of(u)


def _expected(library: Library, given: Any) -> Any:
    x, state, u = map(library.wide, given)
    states = [state]
    for step in x:
        states.append(library.xp.tanh(states[-1] @ u.T + step))
    return library.xp.stack(states)


def twice(library: Library, a: Any) -> Any:
    x = library.wide(a)
    sums = library.xp.sum(x, axis=1, keepdims=True)
    return x * sums + library.xp.sum(x)


def _captured(library: Library, is_first: bool) -> dict[str, Any]:
    """Arguments change between launches of the graph; a call beside disturbs nothing."""
    # new, so that its code is not loaded
    call = tcsym.define(TWICE, target="cuda").twice if is_first else kernel(TWICE)
    a, other = library.random(90, 70), library.random(90, 70)
    with library.stream():
        if not is_first:
            call(a)
        tcsym.synchronize()
        out, launch = library.captured(lambda: call(a))
        found = dict[str, Any]()
        for _ in range(2):
            library.assign(a, library.random(90, 70))
            launch()
            tcsym.synchronize()
            found = near(library, out, twice(library, a), MOST)
            near(library, call(other), twice(library, other), MOST)
            near(library, out, twice(library, a), MOST)
    return found


def _captured_steps(library: Library) -> dict[str, Any]:
    rnn = kernel(RNN, "GridSteps")
    with library.stream():
        given = arguments(library, (5, 3, 40))
        rnn(*given)
        tcsym.synchronize()
        out, launch = library.captured(lambda: rnn(*given))
        launch()
        tcsym.synchronize()
        return near(library, out, _expected(library, given), MOST)


def _beside(library: Library) -> dict[str, Any]:
    """What the stream has yet to do comes before the call."""
    mm = kernel(MM)
    a = library.random(64, 64)
    mm(a, a)
    tcsym.synchronize()
    with library.stream():
        b = library.random(64, 64)
        c = mm(mm(b, b), a)
    library.synchronize()
    x = library.wide(b)
    return near(library, c, x @ x @ library.wide(a), MOST)


def _session(library: Library) -> dict[str, Any]:
    session = kernel(TWICE).plan().session()
    found = dict[str, Any]()
    for n, m in ((9, 70), (33, 5), (9, 70)):
        a = library.random(n, m)
        for _ in range(3):
            found = near(library, session(a), twice(library, a), MOST)
    return found


def _cupy() -> dict[str, Any]:
    """On its stream, and the result is its own."""
    import cupy

    a = cupy.ones((40, 40), "f")
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        out = kernel(MM)(2 * a, a)
        stream.synchronize()
    if type(out) is not cupy.ndarray or not bool((out == 80).all()):
        raise Wrong(f"it gives {type(out)}", {})
    return {}


def _numbers(library: Library) -> dict[str, Any]:
    text = "def add(float(N,M) A, float(N,M) B, float s) -> (C) { C(i,j) = A(i,j) + s * B(i,j) }"
    add = kernel(text)
    a, b = library.random(40, 30), library.random(30, 40)
    for s in (2.5, -1.0, 0.0):
        got = add(a, library.turned(b), s)
        near(library, got, library.wide(a) + s * library.wide(b).T, MOST)
    if not np.isfinite(library.host(got)).all():
        raise Wrong("it is not finite", {})
    return {}
