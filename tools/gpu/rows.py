# SPDX-License-Identifier: Apache-2.0
"""Rows: kernels that normalise or sum rows of 31 to 100,000 elements, by each of their plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import tcsym
from tcsym.compiler import analyse
from tcsym.index.expr import condition_variables
from tcsym.index.values import holds
from tcsym.options import Options
from tcsym.schedule.device.plan import Version
from tcsym.target.names import resolve_target
from tcsym.tuning.device_space import device_space
from tools.gpu.case import Case, equal, near
from tools.gpu.library import Library

LENGTHS = (1, 31, 32, 33, 100, 256, 1000, 1024, 2500, 4096, 10000, 20000, 50000, 100000)
SMALL = (1, 31, 33, 1000, 4100, 20000, 100000)
ROWS, FEW_ROWS = 67, 3  # of a device, of a rehearsal
MOST = 2e-5  # of the largest element
Expected = Callable[[Any, Any], Any]


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.amax(x, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


def log_softmax(xp: Any, x: Any) -> Any:
    apart = x - xp.amax(x, axis=1, keepdims=True)
    return apart - xp.log(xp.sum(xp.exp(apart), axis=1, keepdims=True))


def normalised(xp: Any, x: Any) -> Any:
    apart = x - xp.mean(x, axis=1, keepdims=True)
    return apart / xp.sqrt(xp.mean(apart * apart, axis=1, keepdims=True) + 1e-5)


def scaled(xp: Any, x: Any) -> Any:
    return x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-5)


def sums(xp: Any, x: Any) -> Any:
    return xp.sum(x, axis=1)


# Names of the library's kernels; weights that a row is scaled by are 1, and 0 is added.
EXPECTED: dict[str, Expected] = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "layer_norm": normalised,
    "rms_norm": scaled,
    "row_sum": sums,
}
WEIGHTS = {"layer_norm": (1.0, 0.0), "rms_norm": (1.0,)}


@lru_cache(None)
def kernel(name: str, plan: str = "") -> Any:
    options = Options(plan=plan) if plan else Options()
    return tcsym.define(tcsym.library.source(name), target="cuda", options=options)[name]


@lru_cache(None)
def plans(name: str) -> dict[str, tuple[Version, ...]]:
    """Those that differ in how rows are kept, of the nest that has rows."""
    (program,) = analyse(tcsym.library.source(name)).values()
    nests = device_space(program, resolve_target("cuda")).nests
    found = max((x.plans for x in nests.values()), key=len)
    return {p: versions for p, versions in found.items() if "Rows" in p}


def can_be(versions: Iterable[Version], d: int) -> bool:
    """Whether one of them is for rows of `d` elements."""
    names = frozenset[str]().union(*(condition_variables(v.when) for v in versions))
    return any(holds(v.when, dict.fromkeys(names, d)) for v in versions)


def cases(library: Library, name: str) -> Iterator[Case]:
    lengths = SMALL if library.is_small else LENGTHS
    for plan, versions in ({"": ()} | plans(name)).items():
        for d in lengths:
            if not plan or can_be(versions, d):
                yield Case(
                    f"{name} {d} {plan}".rstrip(), lambda d=d, p=plan: _row(library, name, d, p)
                )
    if name == "softmax":
        yield Case("softmax of infinities and NaN", lambda: _special(library))


def _row(library: Library, name: str, d: int, plan: str) -> dict[str, Any]:
    x = library.random(FEW_ROWS if library.is_small else ROWS, d)
    given = [library.filled(d, value=w) for w in WEIGHTS.get(name, ())]
    got = kernel(name, plan)(x, *given)
    tcsym.synchronize()
    return near(library, got, EXPECTED[name](library.xp, library.wide(x)), MOST)


def _special(library: Library) -> dict[str, Any]:
    """Rows with what has no order, and of what is far from 0."""
    import numpy as np

    x = np.zeros((4, 70), np.float32)
    x[0, 5], x[1, 7], x[2], x[3] = np.nan, -np.inf, 3e38, -3e38
    got = library.host(kernel("softmax")(library.of(x)))
    with np.errstate(all="ignore"):
        want = softmax(np, x.astype(np.float64))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    return {}


def maps(library: Library) -> Iterator[Case]:
    """Copies: points along memory, turned tiles, gathers; each as it lies, and one element on."""
    shapes = (
        ((5, 8), (33, 31), (130, 260)) if library.is_small else ((5, 8), (33, 31), (2050, 3076))
    )
    texts = {
        "twofold": "def twofold(float(N,M) X) -> (Y) { Y(i,j) = X(i,j) + X(i,j) }",
        "turned": "def turned(float(N,M) X) -> (Y) { Y(j,i) = X(i,j) }",
        "short": "def short(bfloat16(N,M) X) -> (Y) { Y(i,j) = X(i,j) + X(i,j) }",
    }
    for name, text in texts.items():
        for shape in shapes:
            for is_shifted in (False, True):

                def run(
                    name: str = name,
                    text: str = text,
                    shape: tuple[int, int] = shape,
                    is_shifted: bool = is_shifted,
                ) -> dict[str, Any]:
                    x = library.whole(*shape, dtype="bfloat16" if name == "short" else "float32")
                    x = library.shifted(x) if is_shifted else x
                    got = defined(text)(x)
                    tcsym.synchronize()
                    wide = library.wide(x)
                    return equal(library, got, wide.T if name == "turned" else 2 * wide)

                yield Case(f"{name} {shape}{' +1' * is_shifted}", run)
    yield Case("strides", lambda: _strided(library))


def _strided(library: Library) -> dict[str, Any]:
    x, y = library.whole(33, 65), library.whole(65, 33)
    text = "def add(float(N,M) X, float(N,M) Y) -> (Z) { Z(i,j) = X(i,j) + Y(i,j) }"
    got = defined(text)(x, library.turned(y))
    tcsym.synchronize()
    return equal(library, got, library.wide(x) + library.wide(y).T)


@lru_cache(None)
def defined(text: str) -> Any:
    return tcsym.define(text, target="cuda")
