# SPDX-License-Identifier: Apache-2.0
"""How kernels are called: on fenced memory, by threads, until versions swap, again and otherwise.

A kernel serves more than its first call: later ones enter native code, have other layouts, or
bring memory for results, which holds garbage.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcsym.dispatch.compile_queue import compilations
from tcsym.errors import TCError
from tcsym.runtime.background import settle
from tests.fuzz.layouts import GARBAGE, LAYOUTS, Laid, laid, relaid
from tests.fuzz.model import Sizes
from tests.guarded import guarded

Results = dict[str, NDArray[Any]]
Outcome = Results | TCError
THREADED = ("threads", "options", "thresholds")
SESSIONS = ("session", "constants")
RELAID = ("symbolic", "specialize", "auto", "swaps", "declared")


class Spoilt(Exception):
    """A call wrote where it must not, or gave back other arrays than it should."""


def outcome(call: Any, names: Sequence[str], inputs: Mapping[str, Any], sizes: Sizes) -> Outcome:
    """Named results of a kernel or of its reference, or the error it raised."""
    try:
        results = call(**inputs, **_told(sizes))
    except TCError as e:
        return e
    arrays = (results,) if len(names) == 1 else tuple(results)
    return {name: np.asarray(a) for name, a in zip(names, arrays)}


def _told(sizes: Sizes) -> dict[str, Any]:
    """Calls that say nothing of sizes enter native code. Size parameters are `G0`, `G1`: they are
    arguments or said with the others, in turns."""
    given = {n: v for n, v in sizes.items() if n[0] == "G" and n[1:].isdigit()}
    if sum(sizes.values()) % 3 == 0:
        given = {}
    said = {n: v for n, v in sizes.items() if n not in given}
    return {**given, **({"sizes": said} if said else {})}


def called(kernel: Any, mode: str, inputs: Mapping[str, Any], want: Outcome, n: int) -> Any:
    """The kernel, called as `mode` says; `n` counts calls."""
    if mode == "swaps":
        return partial(_swapped, kernel)
    if mode in SESSIONS:
        return partial(_copied, kernel)
    if mode in THREADED:
        return partial(kernel, threads=3)
    if mode != "guarded" or isinstance(want, TCError):
        return kernel
    edge: Any = "end" if n % 2 else "start"

    def fenced(**given: Any) -> Any:
        arrays = {k: guarded(x, edge) if k in inputs else x for k, x in given.items()}
        out = tuple(guarded(x, edge) for x in want.values())
        for x in out:
            x[...] = np.frombuffer(bytes((GARBAGE,)) * x.itemsize, x.dtype)[0]
        kernel(**arrays, out=out if len(out) > 1 else out[0])
        return out if len(out) > 1 else out[0]

    return fenced


class WithConstants:
    """A session that is given some inputs apart from calls, again where they are other arrays."""

    def __init__(self, plan: Any, names: Sequence[str]) -> None:
        self.plan, self.names = plan, names
        self.session: Any = None

    def __call__(self, **given: Any) -> Any:
        constants = {name: given.pop(name) for name in self.names}
        if self.session is None:
            self.session = self.plan.session(constants=constants)
        elif any(x is not self.bound[name] for name, x in constants.items()):
            self.session.bind(**constants)
        self.bound = constants
        return self.session(**given)


def _copied(session: Any, **given: Any) -> Any:
    """Results before the next call overwrites them."""
    results = session(**given)
    if isinstance(results, tuple):
        return tuple(np.array(x) for x in results)
    return np.array(results)


def _swapped(kernel: Any, **given: Any) -> Any:
    """Called until a version made beside the calls, entered natively, serves these sizes."""
    for _ in range(3):
        kernel(**given)
        compilations.settle()
        settle()
    return kernel(**given)


def called_again(
    kernel: Any,
    mode: str,
    inputs: Mapping[str, Any],
    want: Outcome,
    sizes: Sizes,
    rng: random.Random,
) -> Outcome | None:
    """A later call of the same sizes; None if this mode has none. Raises Spoilt."""
    if mode == "guarded" or isinstance(want, TCError):
        return None
    call = partial(kernel, threads=rng.choice((1, 2, 3))) if mode in THREADED else kernel
    call = partial(_copied, kernel) if mode in SESSIONS else call
    layouts = LAYOUTS if mode in RELAID and rng.random() < 0.4 else ("dense",)
    names, style = list(want), rng.choice(("again", "relaid", "given", "given"))
    arrays = dict(inputs)
    if style == "relaid":
        arrays = {name: relaid(x, rng.choice(layouts)) for name, x in inputs.items()}
    if style != "given" or mode in SESSIONS:
        settle()
        return outcome(call, names, arrays, sizes)
    out = {name: laid(x.shape, x.dtype, rng.choice(layouts)) for name, x in want.items()}
    return _into(call, arrays, out, sizes)


def _into(call: Any, arrays: Mapping[str, Any], out: Mapping[str, Laid], sizes: Sizes) -> Outcome:
    given = tuple(x.array for x in out.values())
    try:
        out_given = given if len(given) > 1 else given[0]
        results = call(**arrays, **_told(sizes), out=out_given)
    except TCError as e:
        return e
    back = (results,) if len(given) == 1 else tuple(results)
    if any(a is not b for a, b in zip(back, given, strict=True)):
        raise Spoilt("other arrays than those of out= came back")
    spoilt = [name for name, x in out.items() if not x.is_garbage_around()]
    if spoilt:
        raise Spoilt(f"memory around out= was written, {out[spoilt[0]].layout}")
    return {name: x.array for name, x in out.items()}
