# SPDX-License-Identifier: Apache-2.0
"""Kernels in the interpreter of PTX, three ways; and that faults planted in their PTX are found.

`./dev ptx-run` has all programs. Here are those that have everything that threads do together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime.native import HAS_ENTRIES
from tests.ptx.cases import (
    ALIGNED,
    DEVICE,
    GRID_STEPS,
    TF32_TILES,
    TILES,
    cases,
    normal,
    product_text,
    unlike,
    whole_numbers,
)
from tests.ptx.device import PtxKernel, interpreted
from tests.ptx.machine import Program
from tests.ptx.memory import Fault
from tests.ptx.mutants import mutants
from tests.ptx.text import Refused

pytestmark = pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")


@pytest.fixture(autouse=True)
def compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_CACHE", "0")
    monkeypatch.setattr("tests.ptx.machine.MOST_BLOCKS", 3000)


@pytest.mark.parametrize(
    "name",
    [
        f"product float16 {TILES} {ALIGNED} k,m n,k",
        "library softmax",
        "counts",
    ],
)
def test_three_ways(name: str) -> None:
    assert cases()[name]() == ""


M, K, N = 67, 104, 72
MATRICES = whole_numbers("bfloat16", (M, K), (K, N))
STEPS = normal((3, 37, 19), (37, 19), (19, 19))
# Of each kind of fault, how many of them are planted, and of these, how many need not be found: a
# barrier behind another one orders nothing.
PRODUCT = {
    "no barrier": (9, 0),
    "no wait": (9, 0),
    "a short wait": (9, 0),
    "no commit": (9, 0),
    "no copy": (2, 0),
    "left swapped": (2, 0),
    "right swapped": (2, 0),
    "sums swapped": (2, 0),
    "matrices swapped": (2, 0),
    "not transposed": (2, 0),
    "a predicate dropped": (3, 0),
}
GRID = {"no fence": (9, 0), "no arrival": (9, 0), "no barrier": (9, 3)}
ROWS = {"another lane": (9, 0), "no barrier": (9, 0)}
TF32 = {"left swapped": (2, 0), "right swapped": (2, 0), "sums swapped": (2, 0)}
NUMBERS = whole_numbers("float32", (M, 52), (52, N))
PLANTED: list[tuple[str, Sequence[Any], tc.Options | None, Mapping[str, tuple[int, int]]]] = [
    (product_text("bfloat16"), MATRICES, tc.Options(plan=TILES), PRODUCT),
    (product_text("tf32"), NUMBERS, tc.Options(plan=TF32_TILES, tf32=True), TF32),
    (GRID_STEPS, STEPS, tc.Options(plan="GridSteps"), GRID),
    (tc.library.source("row_sum"), normal((5, 300)), None, ROWS),
]


@pytest.mark.parametrize(
    "text, arrays, options, kinds", PLANTED, ids=["mma", "tf32", "grid", "rows"]
)
def test_planted_faults_are_found(
    text: str,
    arrays: Sequence[np.ndarray[Any, Any]],
    options: tc.Options | None,
    kinds: Mapping[str, tuple[int, int]],
) -> None:
    with interpreted() as device:
        module = tc.define(text, target=DEVICE, strategy="symbolic", options=options)
        kernel = module[next(iter(module))]
        wanted = kernel(*arrays)
        assert unlike(wanted, kernel.reference(*arrays)) == ""
        (loaded,) = device.loaded
        ran = list(loaded.program.ran())
        for kind, (most, few) in kinds.items():
            planted = list(mutants(loaded.text, ran, (kind,)))
            assert planted, kind
            step = -(-len(planted) // most)
            missed = []
            for mutant in planted[::step]:
                loaded.program = Program(mutant.text(loaded.text))
                if not found(kernel, arrays, wanted):
                    missed.append(mutant)
            assert len(missed) <= few < len(planted), missed


def found(kernel: Any, arrays: Sequence[Any], wanted: Any) -> bool:
    try:
        return unlike(kernel(*arrays), wanted) != ""
    except (Fault, Refused):
        return True


def test_constants_stay_where_they_are() -> None:
    """Code that was made for one call serves calls of other sizes."""
    text = "def f(float64(N) X, float64(M) Z) -> (Y) { Y(i) = cos(X(i)) }"
    with interpreted():
        kernel = tc.define(text, target=DEVICE, strategy="symbolic").f
        for n in (3, 4000, 5):
            x = np.linspace(1e9, 1e15, n)
            assert unlike(kernel(x, x), kernel.reference(x, x)) == ""


def test_kernels_are_run_by_what_is_loaded() -> None:
    """Not by the twin."""
    with interpreted() as device:
        kernel = tc.define(tc.library.source("row_sum"), target=DEVICE).row_sum
        kernel(*normal((5, 7)))
        (loaded,) = device.loaded
        assert isinstance(loaded, PtxKernel) and list(loaded.program.ran())
        loaded.program = Program(loaded.text.replace("add.rn.f32", "sub.rn.f32"))
        x = np.ones((5, 7), np.float32)
        assert (kernel(x) != 7).any()
