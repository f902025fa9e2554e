# SPDX-License-Identifier: Apache-2.0
"""A network of examples/network.py beside the same in torch, sizes changing: `./dev bench network`.

Every size is called in turn by a session with planned memory, by the kernel, by torch and by
`torch.compile` with free sizes, one process, one thread or more. What a call allocates in a
session is counted, and its peak compared with what the plan's formula says.
"""

from __future__ import annotations

import argparse
import os
import runpy
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.surroundings import cores_for, environment_for

SIZES = ((1, 10), (4, 20), (8, 50), (16, 33), (32, 100), (3, 64), (32, 7), (1, 100))
MODEL = {"V": 1000, "D": 64, "C": 96, "KW": 3, "H": 128, "K": 10}
BOUNDS = {"B": 32, "T": 100, **MODEL}
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "network.py"
TOLERANCE = 1e-4  # of scores of magnitude 1: sums are in another order


def weights_of(random: np.random.Generator) -> list[np.ndarray]:
    v, d, c, kw, h, k = MODEL.values()
    shapes = [(v, d), (c, d, kw), (c,), (h, c), (h, h), (h,), (k, h), (k,)]
    return [0.1 * random.standard_normal(s, dtype=np.float32) for s in shapes]


def in_torch(weights: Sequence[np.ndarray]) -> Callable[[Any], Any]:
    """The network as torch's users write it."""
    import torch
    from torch import nn
    from torch.nn import functional

    table, W, wb, U, R, rb, F, fb = (torch.from_numpy(w) for w in weights)
    rnn = nn.RNN(U.shape[1], U.shape[0], batch_first=True)
    with torch.no_grad():
        given = zip((rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0), (U, R, rb))
        for parameter, w in given:
            parameter.copy_(w)
        rnn.bias_hh_l0.zero_()

    @torch.no_grad()
    def net(words: Any) -> Any:
        E = functional.embedding(words, table).transpose(1, 2)
        Y = torch.relu(functional.conv1d(E, W, wb)).transpose(1, 2)
        _, h = rnn(Y)
        return functional.linear(h[0], F, fb)

    return net


def least(functions: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of each, by turns."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def allocated(call: Callable[[], Any], calls: int = 100) -> int:
    """Bytes that Python and numpy hold more after many calls than before, per call."""
    call()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(calls):
        call()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) // calls


def main(given: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="./dev bench network", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    arguments = parser.parse_args(given)
    os.sched_setaffinity(0, set(cores_for(arguments.threads)))
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= environment_for(arguments.threads, None, cache)
        _measure(arguments)


def _measure(arguments: argparse.Namespace) -> None:
    import torch

    import tcsym

    torch.set_num_threads(arguments.threads)
    net = tcsym.define(runpy.run_path(str(EXAMPLE))["TEXT"]).net
    plan = net.plan(bounds=BOUNDS)
    session = plan.session()
    random = np.random.default_rng(0)
    weights = weights_of(random)
    eager = in_torch(weights)
    compiled = None if arguments.no_compile else torch.compile(eager, dynamic=True)
    table = Table(title=f"least time over the session's, {arguments.threads} threads")
    columns = ("sentences", "words", "session, ms", "kernel", "torch", "compile", "grows by, bytes")
    for column in columns:
        table.add_column(column, justify="right")
    for batch, length in SIZES:
        words = random.integers(0, MODEL["V"], (batch, length))
        narrow, tensor = words.astype(np.int32), torch.from_numpy(words)
        functions: dict[str, Callable[[], Any]] = {
            "session": lambda x=narrow: session(x, *weights),
            "kernel": lambda x=narrow: net(x, *weights),
            "torch": lambda x=tensor: eager(x),
        }
        if compiled is not None:
            functions["compile"] = lambda x=tensor: compiled(x)
        expected = eager(tensor).numpy()
        for name, function in functions.items():
            error = np.abs(np.asarray(function()) - expected).max()
            if error > TOLERANCE:
                raise SystemExit(f"{name} at {batch}, {length}: off by {error}")
        best = least(functions, arguments.rounds)
        ratios = [f"{best[n] / best['session']:.2f}" for n in functions if n != "session"]
        ratios += [""] * (3 - len(ratios))
        grown = str(allocated(functions["session"]))
        table.add_row(str(batch), str(length), f"{1e3 * best['session']:.3f}", *ratios, grown)
    Console().print(table)
    say = f"{session.bytes} bytes, {plan.arena_bytes} of them storages; the rest is scratch memory"
    Console().print(say)
