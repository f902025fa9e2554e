# SPDX-License-Identifier: Apache-2.0
"""Plans of contractions: what rows and columns are, lanes that are no columns, copies that turn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

import tcsym
from tcsym.index.values import evaluate
from tcsym.ir.loops import Loop
from tcsym.ir.traverse import walk
from tcsym.mapping.contraction import Contraction, contraction
from tcsym.mapping.map_cpu import in_kernel
from tests.mapping import drawn
from tests.mapping.proposals import proposed
from tests.schedule.targets import AVX2

PROGRAMS = {
    "batch": ("bmk,bnk->bmn", "Z(b,m,n) +=! X(b,m,k) * Y(b,n,k)"),
    "batch_inside": ("mbk,nbk->mbn", "Z(m,b,n) +=! X(m,b,k) * Y(n,b,k)"),
    "long_rows": ("dga,gfb->abdf", "Z(a,b,d,f) +=! X(d,g,a) * Y(g,f,b)"),
    "few_columns": ("bda,dc->abc", "Z(a,b,c) +=! X(b,d,a) * Y(d,c)"),
    "turned": ("km,kn->mn", "Z(m,n) +=! X(k,m) * Y(k,n)"),
    "joined": ("aebf,dfce->abcd", "Z(a,b,c,d) +=! X(a,e,b,f) * Y(d,f,c,e)"),
}
EXTENTS = [(3, 5, 4), (1, 1, 1), (17, 9, 2), (2, 8, 40), (33, 1, 7), (16, 3, 0)]


def source_of(subscripts: str, body: str) -> str:
    operands = subscripts.partition("->")[0].split(",")
    heads = (f"float({','.join(s.upper())}) {x}" for s, x in zip(operands, "XY"))
    return f"def f({', '.join(heads)}) -> (Z) {{ {body} }}"


def arrays(subscripts: str, extents: Sequence[int]) -> list[np.ndarray]:
    operands = subscripts.partition("->")[0].split(",")
    letters = sorted({*"".join(operands)})
    sizes = dict(zip(letters, itertools.cycle(extents)))
    numbers = np.random.default_rng(0)
    return [numbers.uniform(-1, 1, [sizes[v] for v in x]).astype(np.float32) for x in operands]


def found_in(source: str) -> Contraction:
    kernel = drawn.naive(source)
    (nest,) = drawn.nests(kernel)
    c = contraction(in_kernel(nest, kernel))
    assert c is not None
    return c


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_proposal(name: str, target: str) -> None:
    subscripts, body = PROGRAMS[name]
    source = source_of(subscripts, body)
    plans = list(proposed(source, target))
    assert len(plans) > 2
    for plan in plans:
        f = tcsym.define(source, target=target, plan=plan).f
        for extents in EXTENTS:
            given = arrays(subscripts, extents)
            wanted = np.einsum(subscripts, *given, dtype=np.float64)
            np.testing.assert_allclose(f(*given), wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("name", ["batch", "batch_inside", "long_rows", "few_columns", "turned"])
def test_another_loop_than_columns_in_lanes(name: str) -> None:
    """What lies across it is turned, and results are."""
    plans = proposed(source_of(*PROGRAMS[name]), "cpu:avx2")
    (lanes,) = [x for x in plans if "stage Z" in x and "as turned" in x]
    assert ("stage X" in lanes and "stage Y" in lanes) == name.startswith("batch")


def test_rows_are_the_loop_along_which_operands_lie() -> None:
    assert found_in(source_of(*PROGRAMS["few_columns"])).rows == "a"
    assert found_in(source_of(*PROGRAMS["batch"])).rows == "m"


def test_loops_that_follow_one_another_are_columns_together() -> None:
    """Temporaries of the nest do not hinder them."""
    c = found_in(source_of(*PROGRAMS["joined"]))
    assert (c.columns, c.joined, c.rows) == ("d", ("c", "d"), "b")


def test_short_rows_that_follow_one_another_are_turned_as_one() -> None:
    source = source_of(*PROGRAMS["batch"])
    (plan,) = [x for x in proposed(source, "cpu:avx2") if "stage Z" in x]
    text = tcsym.define(source, target="cpu:avx2", plan=plan).f.explain("mapped")
    shapes = [x.strip() for x in text.splitlines() if ".copy" in x and " float32[" in x]
    assert shapes and all(x.count(",") == 1 for x in shapes)  # [elements, lanes]


def test_rows_and_columns_of_one_tensor() -> None:
    source = "def f(float(M,K) X) -> (Z) { Z(m,n) +=! X(m,k) * X(n,k) }"
    plans = [x for x in proposed(source, "cpu:avx2") if "stage X at n.panel" in x]
    assert plans
    for plan in plans:
        f = tcsym.define(source, target="cpu:avx2", plan=plan).f
        for shape in [(37, 12), (1, 1), (8, 0), (6, 40)]:
            x = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
            np.testing.assert_allclose(f(x), x @ x.T, 1e-4, 1e-4)


def test_what_is_written_has_no_copy_beside_it() -> None:
    source = "def f(float(M,M) X) -> (Z) { Z(i,j) = X(i,j)  Z(i,j) = Z(i,j) + Z(j,i) }"
    with pytest.raises(tcsym.OptionError):
        tcsym.define(source, plan="i: stage Z at i order j").f(np.ones((4, 4), np.float32))


def test_proposals_that_are_not_legal_are_left_out() -> None:
    """Copies of halves are not turned in registers: the batch is no lane, the rest is."""
    source = """def f(half(B,M,K) X, half(B,N,K) Y) -> (float(B,M,N) Z) {
      Z(b,m,n) +=! float(X(b,m,k)) * float(Y(b,n,k)) }"""
    f = tcsym.define(source, target="cpu:avx2").f
    assert "stage" in f.explain("plan") and "b.lane" not in f.explain("plan")


def test_panels_are_filled_once_for_all_loops_inside() -> None:
    """Loops that threads share among them do not run copies in front of them more often."""
    source = (
        "def f(float(A,M,K) X, float(K,N) Y) -> (Z) { Z(a,m,n) +=! X(a,k,m) * Y(k,n) }".replace(
            "float(A,M,K)", "float(A,K,M)"
        )
    )
    plan = """a: split m tile reg:4; split n panel tile:4 lane:8; order n.panel a m.tile n.tile;
      stage Y at n.panel order n.tile k n.lane"""
    kernel = tcsym.define(source, target="cpu:avx2", plan=plan).f
    text = kernel.explain("mapped").splitlines()
    copies = [k for k, x in enumerate(text) if "Y.copy" in x and "allocate" in x]
    loops = [k for k, x in enumerate(text) if x.strip().startswith("serial a.")]
    assert copies and loops and max(copies) < min(loops)
    x, y = (np.ones(s, np.float32) for s in ((3, 5, 9), (5, 70)))
    np.testing.assert_array_equal(kernel(x, y), np.full((3, 9, 70), 5, np.float32))


def test_columns_that_read_neighbours_are_used_where_they_lie() -> None:
    source = """def f(float(C,T) X, float(D,C,2) W) -> (Z) {
      Z(d,t) +=! X(c,t) * W(d,c,1) + X(c,t+3) * W(d,c,0) where t in 0:T-3 }"""
    kernel = tcsym.define(source).f
    assert "in place" in kernel.explain("plan")
    x, w = (np.arange(n, dtype="f4").reshape(s) for n, s in ((60, (3, 20)), (30, (5, 3, 2))))
    expected = np.einsum("ct,dc->dt", x[:, :17], w[..., 1])
    expected += np.einsum("ct,dc->dt", x[:, 3:], w[..., 0])
    np.testing.assert_array_equal(kernel(x, w), expected)


@pytest.mark.parametrize("tiles", range(1, 30))
def test_parts_of_a_formula_are_even(tiles: int) -> None:
    """As few parts as there can be, all as large as the first; of a number, each is so large."""
    kernel = drawn.naive("def f(float(N,K) X) -> (S) { S(i) +=! X(i,k) }")
    (nest,) = drawn.nests(kernel)
    for size, most in (("max(K,1)", 4), ("4", 4)):
        plan = f"split i panel tile:{size} reg:8; order i.panel i.tile"
        mapped = drawn.applied(kernel, nest, plan, AVX2)
        (tile,) = (x for x, _ in walk(mapped.body) if isinstance(x, Loop) and ".tile" in x.variable)
        (panel,) = (x for x, _ in walk(mapped.body) if isinstance(x, Loop) and x.body == tile)
        at = {"N": 8 * tiles, "K": most}
        count, parts = evaluate(panel.upper, at), []
        for k in range(count):
            low, high = (evaluate(e, {**at, panel.variable: k}) for e in (tile.lower, tile.upper))
            parts.append(high - low)
        assert sum(parts) == tiles and count == -(-tiles // most)
        assert parts[0] == (-(-tiles // count) if size != "4" else min(4, tiles)) <= most
