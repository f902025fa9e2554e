# SPDX-License-Identifier: Apache-2.0
"""Windows under minima, remainders and choices: through a copy, with plain subscripts."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.index.expr import Choose, Max, Min, Mod
from tcsym.index.values import map_atoms
from tcsym.ir.loops import Kernel, Update
from tcsym.ir.traverse import map_node, walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.map_cpu import nests
from tcsym.schedule.stage.copy_choices import copy_choices
from tests.guarded import guarded

X = "def f(float(H,W) X, float(K) F) -> (float(H,W) O) "
REPEATED = X + "{ O(y,x) +=! X(y,min(max(x+j-1,0),W-1)) * F(j) }"
WRAPPED = X + "{ O(y,x) +=! X(y,(x+j)%W) * F(j) }"
BACKWARDS = X + "{ O(y,x) +=! X(y,(x-j)%W) * F(j) }"
MIRRORED = X + "{ O(y,x) +=! X(y,x+j < W ? x+j : max(2*W-1-x-j, 0)) * F(j) }"
SQUARED = X + "{ O(y,x) +=! X(y,min(x+j,W-1)) * X(y,min(x+j,W-1)) * F(j) }"
TWO_COPIES = X + "{ O(y,x) +=! X(y,min(x+j,W-1)) * X(y,max(x-j,0)) * F(j) }"
ALONE = "def f(float(W) X, float(K) F) -> (float(W) O) { O(x) +=! X((x+j)%W) * F(j) }"
CONVOLUTION = """def f(float(N,C,H,W) X, float(O,C,K,L) F) -> (float(N,O,H,W) Y) {
  Y(n,o,y,x) +=! X(n,c,min(max(y+i-1,0),H-1),min(max(x+j-1,0),W-1)) * F(o,c,i,j)
}"""
DEPTHWISE = """def f(float(N,C,H,W) X, float(C,K,L) F) -> (float(N,C,H,W) Y) {
  Y(n,c,y,x) +=! X(n,c,min(y+i,H-1),(x+j)%W) * F(c,i,j)
}"""
PLANES = """def f(float(N,H,W) X, float(N,K,L) F) -> (float(N,H,W) Y) {
  Y(n,y,x) +=! X(n,min(max(y+i-1,0),H-1),min(x+j,W-1)) * F(n,i,j)
}"""
COPIED = [REPEATED, WRAPPED, BACKWARDS, MIRRORED, SQUARED, TWO_COPIES, ALONE]
COPIED += [CONVOLUTION, DEPTHWISE, PLANES]
NAMES = ["repeated", "wrapped", "backwards", "mirrored", "squared", "two", "alone"]
NAMES += ["convolution", "depthwise", "planes"]


def naive(source: str) -> Kernel:
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


def copied(source: str) -> Kernel:
    kernel = naive(source)
    names, nest = Names.of(kernel), nests(kernel.body)[0]
    while (found := copy_choices(kernel, nest, names)) is not None:
        kernel, nest = found.kernel, found.nest
    return kernel


def choices_in_sums(k: Kernel) -> int:
    found: list[Any] = []

    def see(atom: Any) -> None:
        if isinstance(atom, Min | Max | Choose | Mod):
            found.append(atom)

    for x, _ in walk(k.body):
        if isinstance(x, Update):
            map_node(x, on_index=lambda e: map_atoms(e, see))
    return len(found)


@pytest.mark.parametrize("source", COPIED, ids=NAMES)
def test_sums_read_plain_subscripts(source: str) -> None:
    assert choices_in_sums(naive(source)) > 0
    assert choices_in_sums(copied(source)) == 0


def test_planes_of_their_own_are_copied_inside_their_loops() -> None:
    private = [b.private for b in copied(DEPTHWISE).buffers if "chosen" in b.name]
    assert private == [{"n", "c"}]
    shared = [b.private for b in copied(CONVOLUTION).buffers if "chosen" in b.name]
    assert shared == [frozenset()]  # all sums of an image read all its channels


def test_equal_reads_share_a_copy() -> None:
    def count(source: str) -> int:
        return sum("chosen" in b.name for b in copied(source).buffers)

    assert (count(SQUARED), count(TWO_COPIES)) == (1, 2)


@pytest.mark.parametrize(
    "source",
    [
        X + "{ O(y,x) +=! (j < x ? X(y,min(x+j,W-1)) : 0.0) * F(j) }",  # read under a guard
        X + "{ O(y,x) +=! X(y,min(j,W-1)) * F(j) * X(y,x) }",  # no window
        X + "{ O(y,x) +=! X(y,min(x+j,max(2*j-x,0))) * F(j) }",  # two forms of the indices
        X + "{ O(y,x) = X(y,min(x+1,W-1)) * F(0) }",  # no sum
        X + "{ O(y,x) +=! X(y,min(2*x+j,W-1)) * F(j) }",  # every second place, if K is 1
    ],
)
def test_what_stays(source: str) -> None:
    kernel = naive(source)
    assert copy_choices(kernel, nests(kernel.body)[0], Names.of(kernel)) is None


@pytest.mark.parametrize("source", COPIED, ids=NAMES)
def test_results(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_VERIFY", "1")
    m = tcsym.define(source)
    shapes = [x.shape for x in m.signature.inputs.values()]
    random = np.random.default_rng(0)
    for n, k in product((0, 1, 2, 7, 19), (0, 1, 3)):
        sizes = {"N": 2, "C": 3, "H": 5, "W": n, "O": 2, "K": k, "L": 2}
        arrays = [random.integers(-3, 4, [sizes[str(e)] for e in s]).astype("f") for s in shapes]
        np.testing.assert_array_equal(m(*arrays), m.reference(*arrays), f"{n} {k}")


def test_an_access_outside_is_an_error_still() -> None:
    m = tcsym.define(X + "{ O(y,x) +=! X(y,(x+j)%5) * F(j) }")
    f = np.ones(2, "f")
    assert m(np.ones((2, 5), "f"), f).shape == (2, 5)
    with pytest.raises(tcsym.TCError, match="X"):
        m(np.ones((2, 4), "f"), f)


def test_places_that_no_iteration_has_are_not_read() -> None:
    """The choice has its peak, beyond the end, between them."""
    source = """def f(float(M) X, float(K) Z) -> (Y) {
  Y(y) +=! X(min(300*y+i,1600-300*y-i)) * Z(i) where y in 0:4
}"""
    x, z = guarded(np.ones(702, "f")), np.ones(102, "f")
    assert tcsym.define(source)(x, z).tolist() == [102.0] * 4
