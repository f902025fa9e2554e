# SPDX-License-Identifier: Apache-2.0
"""Plans of directives: texts that come back, results that stay, refusals with a reason."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tcsym
from tcsym.errors import OptionError
from tcsym.frontend.program import Binary, Cast, Const, IndexValue, Read, Select
from tcsym.index.expr import ge, var
from tcsym.index.formula import index_of
from tcsym.ir.loops import Holds
from tcsym.mapping.plan import Refused, plan_text
from tcsym.mapping.stage import largest_part
from tcsym.mapping.text import parse
from tcsym.types import DType
from tests.mapping import drawn
from tests.schedule.targets import AVX2

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
TURNED = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
PANELS = """split m block tile:2 reg:6 end=half
    split n panel tile:max(2,4096/K) reg:2 lane:8 end=half; split k unroll:4
    order m.block n.panel m.tile n.tile
    stage B at n.panel order n.tile k n.reg n.lane"""


ONES = np.ones((5, 5), np.float32)


def defined(source: str, plan: str, target: str = "cpu:avx2") -> object:
    text = " ".join(plan.split())
    return tcsym.define(source, target=target, options=tcsym.Options(plan=f"m: {text}")).f


def test_text() -> None:
    plan = parse(PANELS)
    assert parse(plan_text(plan)) == plan
    assert str(index_of("max(8,4096/(64*K))")) == "max(4096/(64*K), 8)"
    with pytest.raises(OptionError, match="no directive"):
        parse("jam n 4")


def random_plan(r: random.Random, is_turned: bool) -> str:
    rows, vectors = r.choice((1, 2, 3, 4, 6)), r.choice((1, 2, 3))
    ends = [r.choice(("", "end=half")) for _ in range(2)]
    if r.random() < 0.3:
        along = (
            f"split k tile {r.choice(('', 'reg:2', 'reg:4'))} lane:8 {r.choice(('', 'end=peel'))}"
        )
        columns = f"split n tile reg:{vectors}"
        return (
            f"split m tile reg:{rows} {ends[0]}; {columns}; {along}; combine k; order n.tile m.tile"
        )
    order = ["m.block", "n.panel", "m.tile", "n.tile"]
    while order.index("m.block") > order.index("m.tile") or order.index("n.panel") > order.index(
        "n.tile"
    ):
        r.shuffle(order)
    r.shuffle(order)
    if order.index("m.block") > order.index("m.tile") or order.index("n.panel") > order.index(
        "n.tile"
    ):
        order = ["m.block", "n.panel", "m.tile", "n.tile"]
    stage = f"stage B at n.panel order {r.choice(('n.tile k', 'k n.tile'))} n.reg n.lane"
    inside = order.index("n.panel") < order.index("n.tile")
    text = f"""split m block tile:{r.choice((1, 2, 3))} reg:{rows} {ends[0]}
        split n panel tile:{r.choice(("1", "2", "max(1,M/2)"))} reg:{vectors} lane:8 {ends[1]}
        split k unroll:{r.choice((1, 2, 4))}
        order {" ".join(order)}"""
    if inside and r.random() < 0.7:
        text += "\n" + stage + (" as turned" if is_turned and r.random() < 0.7 else "")
    return "; ".join(text.splitlines())


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_random_plans(seed: int, target: str) -> None:
    r, numbers = random.Random(seed), np.random.default_rng(seed)
    is_turned = seed % 2 == 1
    plan = random_plan(r, is_turned)
    f = defined(TURNED if is_turned else MATMUL, plan, target)
    for m, k, n in (
        (0, 3, 5),
        (1, 1, 1),
        (7, 9, 17),
        (13, 0, 8),
        (25, 37, 50),
        (6, 4, 16),
        (12, 33, 49),
    ):
        a = numbers.uniform(-1, 1, (m, k)).astype(np.float32)
        b = numbers.uniform(-1, 1, (n, k) if is_turned else (k, n)).astype(np.float32)
        got = f(a, b)  # type: ignore[operator]
        np.testing.assert_allclose(got, a @ (b.T if is_turned else b), atol=1e-4, err_msg=plan)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("split q tile reg:4", "there is no loop q"),
        ("split m tile reg:4; order m.tile", "an order names all loops of a band"),
        ("split n tile lane:8; order m n.tile; stage B at m order n.tile n.lane", "k moves B"),
        ("split n tile lane:8; order m n.tile; stage D at m order n.tile", "D is not used"),
        ("split k tile lane:8; order m n", "combine them"),
        ("merge n m", "not right inside"),
    ],
)
def test_refusals(plan: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        defined(MATMUL, plan)(ONES, ONES)  # type: ignore[operator]


def test_unknown_nest() -> None:
    options = tcsym.Options(plan="q: split m tile reg:4")
    with pytest.raises(OptionError, match="no nest q"):
        tcsym.define(MATMUL, options=options).f(ONES, ONES)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "conv2d", "matmul_nt"])
def test_library(name: str) -> None:
    """Programs that are served are so in all versions, and give what the reference gives."""
    source = tcsym.library.source(name)
    kernel = tcsym.define(source)[name]
    assert "not mapped by" not in kernel.explain("mapped")


def test_copies_have_a_place() -> None:
    """A copy is made where the plan says, not again for each iteration of a loop that leaves it."""
    source = "def f(float(B,M,K) X, float(B,N,K) Y) -> (Z) { Z(m,b,n) +=! X(b,m,k) * Y(b,n,k) }"
    f = tcsym.define(source).f
    numbers = np.random.default_rng(0)
    x, y = (numbers.uniform(-1, 1, s).astype(np.float32) for s in ((64, 256, 3), (64, 4, 3)))
    np.testing.assert_allclose(f(x, y), np.einsum("bmk,bnk->mbn", x, y), atol=1e-5)


def test_rows_of_shared_temporaries_do_not_run_on() -> None:
    """They are laid out once all nests are mapped, with rows of their own."""
    source = """def f(float(M,M) X) -> (R) {
      P(i,j) = X(i,j) * 2
      R(i,j) +=! P(i,k) * P(k,j) }"""
    kernel = drawn.naive(source)
    first, _ = drawn.nests(kernel)
    i, j = first.names
    with pytest.raises(Refused, match=f"P does not run on from {j} to {i}"):
        drawn.applied(kernel, first, f"merge {i} {j}", AVX2)


def test_indices_move_what_is_computed_of_an_operand() -> None:
    """A copy of B for all of i cannot have what each of them makes of it."""
    i, k, f4 = var("i"), var("k"), DType.FLOAT32
    read, zero = Read("B", (k,), f4), Const(0, f4)
    of_k = Select(Holds(ge(k, 2)), read, zero, f4)
    of_both = Binary("add", of_k, Select(Holds(ge(i, k)), read, zero, f4), f4)
    counted = Binary("mul", of_k, Cast(IndexValue(i, DType.INT64), f4), f4)
    loops = {"i", "k"}
    assert largest_part(of_k, "B", loops) == of_k
    assert largest_part(counted, "B", loops) == of_k
    assert largest_part(of_both, "B", {"k"}) == of_both
    assert largest_part(of_both, "B", loops) == read
