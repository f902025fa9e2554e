# SPDX-License-Identifier: Apache-2.0
"""Every program of the corpus, in every way of compiling it, against the reference interpreter."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

import tcsym
from tests.differential.corpus import CORPUS, Case
from tests.differential.inputs import arguments
from tests.fuzz.compare import difference, outcome, tolerances
from tests.guarded import guarded

LAYOUTS = ("transposed", "broadcast", "sliced", "reversed")
WAYS = ("cpu:avx2", "before", "cpu:novector", "after")


@lru_cache(maxsize=2)
def reference(name: str) -> Any:
    return module(CORPUS[name])


def module(case: Case, **how: Any) -> Any:
    made = tcsym.define(case.source, **how)
    return made[case.extra["entry"]] if "entry" in case.extra else made[next(iter(made))]


def check(name: str, kernel: Any, sizes: dict[str, int], layout: str = "dense") -> None:
    oracle, gen = reference(name), CORPUS[name].gen
    inputs = arguments(oracle, sizes, gen, layout)
    outputs = list(oracle.signature.outputs)
    want = outcome(oracle.reference, outputs, inputs, sizes)
    assert not isinstance(want, tcsym.TCError), want
    allowed = tolerances(oracle.reference, want, inputs, sizes, 0)
    kind, details = difference(outcome(kernel, outputs, inputs, sizes), want, allowed)
    assert not kind, f"{sizes} {layout}: {details}"


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", CORPUS)
def test_this_target(name: str) -> None:
    """The reference's results, and none of memory beside the arrays is read or written.

    Each third program in another layout as well: code is made for what does not lie as declared.
    """
    kernel, place = module(CORPUS[name], strategy="symbolic"), list(CORPUS).index(name)
    for sizes in CORPUS[name].sizes:
        check(name, kernel, sizes)
    assert kernel.stats.compilations <= 1
    other = LAYOUTS[place // 3 % len(LAYOUTS)] if place % 3 == 0 else "dense"
    for layout in dict.fromkeys(("dense", other)):
        if layout != "dense":
            check(name, kernel, CORPUS[name].sizes[-1], layout)
        if layout in ("dense", "transposed", "sliced"):
            for sizes in CORPUS[name].sizes:
                check_edges(kernel, arguments(kernel, sizes, CORPUS[name].gen, layout), sizes)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", [*CORPUS][1:] + [*CORPUS][:1])  # others than those above
def test_another_way(name: str) -> None:
    """On another target, or of substituted sizes, in turn: each kind of program meets all."""
    case, way = CORPUS[name], WAYS[list(CORPUS).index(name) // 2 % len(WAYS)]
    if way.startswith("cpu"):
        kernel = module(case, strategy="symbolic", target=way)
        for sizes in case.sizes:
            check(name, kernel, sizes)
        assert kernel.stats.compilations <= 1
    else:
        last = case.sizes[-1 if way == "before" else -2 :][0]
        check(name, module(case, sizes=last, options=tcsym.Options(bind=way)), last)


def check_edges(kernel: Any, inputs: dict[str, Any], sizes: dict[str, int]) -> None:
    outputs = list(kernel.signature.outputs)
    want = outcome(kernel, outputs, inputs, sizes)
    for edge in ("end", "start"):
        fenced = {n: guarded(x, edge) for n, x in inputs.items()}
        out = tuple(guarded(want[n], edge) for n in outputs)
        for x in out:
            x.fill(7)
        kernel(**fenced, sizes=sizes, out=out if len(out) > 1 else out[0])
        for n, x in zip(outputs, out, strict=True):
            assert x.tobytes() == want[n].tobytes(), (n, sizes)
