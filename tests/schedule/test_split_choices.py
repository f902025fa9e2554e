# SPDX-License-Identifier: Apache-2.0
"""Rows under minima and choices: a plain inside and short edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.index.expr import Choose, Max, Min, of_atom
from tcsym.index.values import map_atoms
from tcsym.ir.loops import Kernel, Loop
from tcsym.ir.traverse import map_node, walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.analysis.loops import is_leaf
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.split.choices import split_choices

BORDER = "def f(float(H,W) X) -> (float(H,W+3) O) "
REPEATED = BORDER + "{ O(y,x) = X(y,min(max(x-1,0),W-1)) }"
MIRRORED = BORDER + "{ O(y,x) = X(y,x < 1 ? min(1-x,W-1) : (x <= W ? x-1 : max(2*W-x,0))) }"
SLOPES = (
    "def f(float(H,W) X) -> (O) { O(y,x) = X(y,min(x+1,W-1)) - X(y,max(x-1,0)) where x in 0:W }"
)
ABSOLUTE = "def f(float(W) X) -> (float(W) O) { O(x) = X(min(max(x-1,1-x),W-1)) }"
SPLIT = [REPEATED, MIRRORED, SLOPES, ABSOLUTE]
NAMES = ["repeated", "mirrored", "slopes", "absolute"]


def naive(source: str) -> Kernel:
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


def split(source: str) -> Kernel:
    kernel = naive(source)
    return split_choices(kernel, Names.of(kernel))


def choices(k: Kernel) -> dict[str, int]:
    """Of each innermost loop, those that move with it."""
    found: dict[str, int] = {}
    for loop, _ in walk(k.body):
        if isinstance(loop, Loop) and is_leaf(loop):
            seen: list[Any] = []

            def see(atom: Any, variable: str = loop.variable, seen: list[Any] = seen) -> None:
                if isinstance(atom, Min | Max | Choose) and variable in of_atom(atom).variables():
                    seen.append(atom)

            map_node(loop.body, on_index=lambda e, see=see: map_atoms(e, see))  # type: ignore[misc]
            found[loop.variable] = len(seen)
    return found


@pytest.mark.parametrize("source", SPLIT, ids=NAMES)
def test_the_inside_chooses_nothing(source: str) -> None:
    (before,) = choices(naive(source)).items()
    assert before[1] > 0
    after = choices(split(source))
    assert after.pop(before[0]) == 0
    assert after  # edges


@pytest.mark.parametrize(
    "source",
    [
        "def f(float(N,N) X) -> (O) { O(i,j) = X(min(i,j),max(i,j)) where i in 0:N, j in 0:N }",
        "def f(float(W) X) -> (float(2*W) O) { O(x) = X(min(max(x/2,0),W-1)) }",
        "def f(float(W) X) -> (float(2*W) O) { O(x) = X(x < W ? x : x-W) }",  # neither is most
    ],
)
def test_what_stays(source: str) -> None:
    kernel = naive(source)
    assert split_choices(kernel, Names.of(kernel)) is kernel


@pytest.mark.thinned(3)
@pytest.mark.parametrize("source", SPLIT, ids=NAMES)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 15, 16, 17, 40])
def test_results(source: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_VERIFY", "1")
    m = tcsym.define(source)
    x = np.arange(5 * n, dtype="f").reshape(5, n)
    x = x if "H" in m.sizes else x[0]
    if n == 0 and source in (REPEATED, MIRRORED):
        with pytest.raises(tcsym.TCError, match="X"):
            m(x)
    else:
        np.testing.assert_array_equal(m(x), m.reference(x))
