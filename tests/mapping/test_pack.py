# SPDX-License-Identifier: Apache-2.0
"""Short numbers that plans pack, and copies that are made once: results, counts, refusals."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsym
from tcsym.errors import OptionError
from tcsym.target.host import runs_here
from tcsym.target.names import resolve_target
from tests.mapping.proposals import proposed

TARGETS = [t for t in ("cpu:avx2", "cpu:avx512bf16") if runs_here(resolve_target(t))]
SUM = "def f({a}({x}) A, {b}({y}) B) -> (C) {{ C(m,n) +=! {w}(A({i})) * {w}(B({j})) }}"
ROWS, COLUMNS = {"M,K": "m,k", "K,M": "k,m"}, {"K,N": "k,n", "N,K": "n,k"}
NUMPY = {"float": "f4"}
SIZES = [(0, 3, 5), (1, 1, 1), (2, 9, 17), (5, 4, 8), (25, 37, 50), (3, 66, 300), (12, 0, 4)]


def source(a: str, b: str, w: str, x: str = "M,K", y: str = "K,N") -> str:
    return SUM.format(a=a, b=b, w=w, x=x, y=y, i=ROWS[x], j=COLUMNS[y])


def values(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    numbers = np.random.default_rng(seed)
    if dtype == "bfloat16":
        return numbers.uniform(-1, 1, shape).astype(ml_dtypes.bfloat16)
    info = np.iinfo(dtype)
    found = numbers.integers(info.min, info.max + 1, shape)
    return np.where(numbers.random(shape) < 0.2, info.min, found).astype(dtype)


def assert_right(f: Any, a: str, b: str, x: str = "M,K", y: str = "K,N") -> None:
    for m, k, n in SIZES:
        sizes = {"M": m, "K": k, "N": n}
        p, q = (
            values(t, tuple(sizes[s] for s in e.split(",")), z)
            for z, (t, e) in enumerate(((a, x), (b, y)))
        )
        left, right = (p if x == "M,K" else p.T), (q if y == "K,N" else q.T)
        if a == "bfloat16":
            want: Any = left.astype(np.float32) @ right.astype(np.float32)
            np.testing.assert_allclose(f(p, q), want, atol=1e-4)
        else:
            wide = (left.astype(np.int64) @ right.astype(np.int64)) % (1 << 32)
            np.testing.assert_array_equal(f(p, q), wide.astype(np.uint32).view(np.int32))


KINDS = [
    ("int8", "int8", "int32", "cpu:avx512bf16", 4),
    ("uint8", "uint8", "int32", "cpu:avx512bf16", 4),
    ("int8", "uint8", "int32", "cpu:avx512bf16", 4),
    ("int16", "int8", "int32", "cpu:avx512bf16", 2),
    ("bfloat16", "bfloat16", "float", "cpu:avx512bf16", 2),
    ("int8", "int8", "int32", "cpu:avx2", 2),
    ("int16", "int16", "int32", "cpu:avx2", 2),
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("kind", KINDS, ids=lambda x: "-".join(map(str, x)))
@pytest.mark.parametrize("x", ROWS)
@pytest.mark.parametrize("y", COLUMNS)
def test_every_proposal_packs_terms(kind: tuple[str, str, str, str, int], x: str, y: str) -> None:
    a, b, w, target, steps = kind
    if target not in TARGETS:
        pytest.skip("no such processor")
    text = source(a, b, w, x, y)
    for plans in proposed(text, target):
        plan = next(x for x in plans.splitlines() if x.startswith("m:"))
        f = tcsym.define(text, target=target, plan=plan).f
        if "in lanes" not in plan and "split k" in plan:
            assert f"pack:{steps}" in plan
            assert "dot_" in f.explain("mapped"), plan
        assert_right(f, a, b, x, y)


@pytest.mark.parametrize("seed", range(8))
def test_drawn_tiles_of_packs(seed: int) -> None:
    r = random.Random(seed)
    target = r.choice(TARGETS)
    a, b, w, steps = r.choice([x[:3] + x[4:] for x in KINDS if x[3] == target])
    ends = [r.choice(("end=half", "end=peel", "")) for _ in range(2)]
    ends[0] = ends[0].replace("end=peel", "")
    plan = f"""split m tile reg:{r.choice((1, 2, 3, 5))} {ends[0]}
        split n panel tile:{r.choice((1, 2, 3))} reg:{r.choice((1, 2))} lane:8 {ends[1]}
        split k tile pack:{steps}; split k.tile unroll:{r.choice((1, 2, 4))}
        order n.panel m.tile n.tile
        stage B {r.choice(("at n.panel order", "once order n.panel"))} n.tile k.tile n.reg n.lane"""
    if r.random() < 0.5:
        plan += f"\nstage A {r.choice(('at n.panel', 'once'))} order m.tile m.reg k.tile"
    assert_right(tcsym.define(source(a, b, w), target=target, plan=plan).f, a, b)


@pytest.mark.parametrize(
    ("kind", "plan", "reason"),
    [
        (("float", "float", "float"), "split k tile pack:2", "no instruction of the target"),
        (("int16", "int16", "int32"), "split k tile pack:4", "2 terms of k are added at once"),
        (("int16", "int16", "int32"), "split m tile pack:2", "m is no loop of one sum"),
        (("int16", "int16", "int32"), "stage C once order m n", "C is written"),
    ],
)
def test_refusals(kind: tuple[str, str, str], plan: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        tcsym.define(source(*kind), target="cpu:avx2", plan=plan).f(
            *np.ones((2, 3, 3), NUMPY.get(kind[0], kind[0]))
        )


@pytest.mark.parametrize("y", COLUMNS)
@pytest.mark.parametrize(("a", "w"), [("float", "float"), ("int8", "int32")])
def test_panels_of_constants_are_made_when_they_are_bound(a: str, w: str, y: str) -> None:
    options = tcsym.Options()
    kernel = tcsym.define(source(a, a, w, y=y), options=options, target=TARGETS[-1]).f
    k, n = 70, 90
    dtype = "int8" if a == "int8" else np.float32
    weights = np.random.default_rng(0).integers(-99, 99, (k, n)).astype(dtype)
    if y == "N,K":
        weights = weights.T.copy()
    session = kernel.plan().session(constants={"B": weights})
    assert session.bytes == 0
    for m in (1, 2, 7, 40):
        x = np.random.default_rng(m).integers(-99, 99, (m, k)).astype(dtype)
        np.testing.assert_array_equal(session(x), kernel.reference(x, weights))
    held = session.plan.memory()
    assert "held" in str(held) or session._preparation.held_bytes >= weights.nbytes


def test_factors_that_move_otherwise_are_not_copied_together() -> None:
    source = """def f(int8(M,K) A, uint8(K) s, int8(K,N) B) -> (C) {
      C(m,n) +=! int32(A(m,k)) * int32(B(k,n)) * int32(s(k)) }"""
    f = tcsym.define(source, target="cpu:avx512").f
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (5, 70), np.int8), rng.integers(-9, 9, (70, 20), np.int8)
    s = rng.integers(0, 9, 70, np.uint8)
    np.testing.assert_array_equal(f(a, s, b), (a.astype("i4") * s) @ b.astype("i4"))
