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

OTHERS = [("transposed", "broadcast"), ("sliced", "reversed")]


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


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:novector"])
@pytest.mark.parametrize("name", CORPUS)
def test_other_targets(name: str, target: str) -> None:
    kernel = module(CORPUS[name], strategy="symbolic", target=target)
    for sizes in CORPUS[name].sizes:
        check(name, kernel, sizes)
    assert kernel.stats.compilations <= 1


@pytest.mark.parametrize(("bind", "last"), [("before", 1), ("after", 2)])
@pytest.mark.parametrize("name", CORPUS)
def test_sizes_substituted(name: str, bind: str, last: int) -> None:
    options = tcsym.Options(bind=bind)
    sizes = CORPUS[name].sizes[-last:][0]
    check(name, module(CORPUS[name], sizes=sizes, options=options), sizes)


@pytest.mark.parametrize("name", CORPUS)
def test_this_target(name: str) -> None:
    """The reference's results, and none of memory beside the arrays is read or written.

    Each program with half of the layouts: code is made for each, of what does not lie as declared.
    """
    kernel = module(CORPUS[name], strategy="symbolic")
    for sizes in CORPUS[name].sizes:
        check(name, kernel, sizes)
    assert kernel.stats.compilations <= 1
    for layout in ("dense", *OTHERS[list(CORPUS).index(name) % len(OTHERS)]):
        if layout != "dense":
            check(name, kernel, CORPUS[name].sizes[-1], layout)
        if layout in ("dense", "transposed", "sliced"):
            for sizes in CORPUS[name].sizes:
                check_edges(kernel, arguments(kernel, sizes, CORPUS[name].gen, layout), sizes)


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
