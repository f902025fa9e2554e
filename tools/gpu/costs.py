# SPDX-License-Identifier: Apache-2.0
"""What launches cost: calls of the host, nodes of a graph, blocks that wait for each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import tcsym
from tcsym.target.names import resolve_target
from tools.gpu import launches
from tools.gpu.case import Case
from tools.gpu.library import Library, measured

CALLS, FEW_CALLS = 10_000, 4
STEPS, FEW_STEPS = 1000, 8
ONE = "def one(float(N) X) -> (Y) { Y(i) = X(i) + 1 }"


def cases(library: Library) -> Iterator[Case]:
    yield Case("calls", lambda: _calls(library))
    for way in ("LaunchSteps", "GridSteps"):
        yield Case(f"steps by {way}", lambda w=way: _steps(library, w))


def microseconds(run: Callable[[], Any], calls: int) -> float:
    """Of the host, for a call that is enqueued alone."""
    begun = time.perf_counter()
    for _ in range(calls):
        run()
    return 1e6 * (time.perf_counter() - begun) / calls


def _calls(library: Library) -> dict[str, Any]:
    """The host's time of a call, the device's, and those of a session and of a graph."""
    kernel, x = tcsym.define(ONE, target="cuda").one, library.random(32)
    n = FEW_CALLS if library.is_small else CALLS
    out = kernel(x)
    session = kernel.plan().session()
    found = dict[str, Any]()
    with library.stream():
        for name, run in (
            ("call", lambda: kernel(x)),
            ("into", lambda: kernel(x, out=out)),
            ("session", lambda: session(x)),
        ):
            for _ in range(3):
                run()
            tcsym.synchronize()
            found[f"{name}_host_us"] = microseconds(run, n)
            tcsym.synchronize()
            found[f"{name}_us"] = 1e3 * library.milliseconds(run, n)
        _, launch = library.captured(lambda: [kernel(x, out=out) for _ in range(100)])
        found["node_us"] = 1e3 * library.milliseconds(launch, max(1, n // 100)) / 100
    unit = resolve_target("cuda").machine.unit
    return found | {
        "model_launch_us": unit.launch / unit.mhz,
        "model_node_us": unit.node / unit.mhz,
    }


def _steps(library: Library, way: str) -> dict[str, Any]:
    """Steps of next to no work: what one takes is what its waits or launches take."""
    steps = FEW_STEPS if library.is_small else STEPS
    kernel = launches.kernel(launches.RNN, way)
    given = launches.arguments(library, (steps, 2, 16))
    for _ in range(2):
        kernel(*given)
    (ms,) = measured(library, lambda: kernel(*given))
    unit = resolve_target("cuda").machine.unit
    told = {"LaunchSteps": unit.node, "GridSteps": unit.barrier}[way] / unit.mhz
    return {"step_us": 1e3 * ms / steps, "model_wait_us": told}
