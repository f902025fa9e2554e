# SPDX-License-Identifier: Apache-2.0
"""Many small products, one in each lane: for which nests and sizes, and that results stay."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from tcsym.compiler import analyse
from tcsym.index.values import holds
from tcsym.ir.loops import Branch, Kernel, Loop, TransposeBlock, Update
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.combine.accumulate import accumulate_privately
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tcsym.schedule.storage.place_allocations import place_allocations, without_allocations
from tcsym.schedule.storage.privatise import privatise
from tcsym.schedule.tile.interleave import schedule_interleaved
from tcsym.schedule.version.interleaving import (
    interleaving,
)
from tcsym.target.machine import Machine
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import AVX2, AVX512

BATCHED = "def f(float(B,N,M) X, float(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }"
GROUPED = """def f(float(N,G,C,W) I, float(G,F,C,3) V, float(G,F) B) -> (O) {
  O(n,g,o,w) +=! I(n,g,c,w+k) * V(g,o,c,k)
  O(n,g,o,w) = O(n,g,o,w) + B(g,o)
}"""
SOURCES = {
    "batched": BATCHED,
    "grouped": GROUPED,
    "double": BATCHED.replace("float", "double"),
    "distances": BATCHED.replace("X(b,n,m) * Y(b,k,m)", "fabs(X(b,n,m) - Y(b,k,m))"),
    "int32": BATCHED.replace("float", "int32"),
    "added": """def f(float(B,N,M) X, float(B,K,M) Y, float(B,N,K) A) -> (Z) {
  Z(b,n,k) = A(b,n,k)
  Z(b,n,k) += X(b,n,m) * Y(b,k,m)
}""",
}
REFUSED = {
    "shared": "def f(float(B,N,M) X, float(K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(k,m) }",
    "last": "def f(float(N,M,B) X, float(K,M,B) Y) -> (Z) { Z(n,k,b) +=! X(n,m,b) * Y(k,m,b) }",
    "around": "def f(float(B,N,M) X, float(M,B,K) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(m,b,k) }",
    "halves": BATCHED.replace("float", "half"),
    "mixed": "def f(double(B,N,M) X, float(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }",
    "diagonal": """def f(float(B,N,B) X, float(B,K,B) Y) -> (Z) {
  Z(b,n,k) +=! X(b,n,b) * X(b,n,m) * Y(b,k,m)
}""",
    "gathered": """def f(float(B,N,M) X, float(B,K,M) Y, int32(M) I) -> (Z) {
  Z(b,n,k) +=! X(b,n,I(m)) * Y(b,k,m)
}""",
}


def naive(source: str) -> Kernel:
    """With what map_cpu does before it schedules nests."""
    kernel = schedule_program(analyse(source)["f"], Options(), {}).kernel
    kernel = replace(kernel, body=without_allocations(kernel.body))
    return privatise(accumulate_privately(kernel, Names.of(kernel)))


def setting(k: Kernel, target: Machine) -> Setting:
    return Setting(target, Options(), Names.of(k), [])


def top(k: Kernel) -> str:
    return next(x.variable for x, _ in walk(k.body) if hasattr(x, "variable"))


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize("name", SOURCES)
def test_interleaved_products_keep_the_results(name: str, target: Machine) -> None:
    k = naive(SOURCES[name])
    found = interleaving(k, top(k), setting(k, target))
    assert found is not None and found.loop == ("g" if name == "grouped" else "b")
    lanes = setting(k, target).lanes(k, k.body)
    made = schedule_interleaved(k, top(k), found, lanes, Names.of(k))
    made = place_allocations(made)
    verify(made)
    batch = found.loop.upper()
    for many, few, terms in itertools.product((lanes, lanes + 3), (0, 1, 3), (0, 1, 9)):
        sizes = dict.fromkeys(k.sizes, few) | {batch: many, "M": terms}
        if name == "grouped":
            sizes = {"N": 2, "G": many, "C": terms, "W": few + 3, "F": few}
        assert_same(place_allocations(k), made, sizes)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_interleaved_is_not(name: str) -> None:
    k = naive(REFUSED[name])
    assert interleaving(k, top(k), setting(k, AVX2)) is None
    assert not any(": small products" in x for x in map_cpu(k, AVX2, Options()).notes)


def test_no_copy_goes_back_where_the_nest_leaves_elements_out() -> None:
    """Z[b,n,k] = sum over m of X[b,n,m] * Y[b,k,m] for n from `lower` on."""
    b, n, k, m = v("b n k m")
    buffers = [buf("X", "B N M"), buf("Y", "B K M"), buf("Z", "B N K")]
    buffers.append(buf("z", "B N K", private="b n k"))
    term = up("z", (b, n, k), "add", op("mul", rd("X", b, n, m), rd("Y", b, k, m)))
    inner = (
        st("z", (b, n, k), con(0.0)),
        red("m", "M", term),
        st("Z", (b, n, k), rd("z", b, n, k)),
    )
    for lower, expected in ((0, True), (1, False)):
        body = par("b", "B", par("n", "N", par("k", "K", *inner), lower=lower))
        made = kernel("part", "B N K M", buffers, body)
        made = replace(made, body=without_allocations(made.body))
        assert (interleaving(made, "b", setting(made, AVX2)) is not None) == expected


PERMUTED = """def f(float(D,G,A) X, float(G,F,B) Y) -> (Z) {
  Z(a,b,d,f) +=! X(d,g,a) * Y(g,f,b)
}"""


NEAREST = """def f(float(M,D) X, float(N,D) Y) -> (O) {
  P(m,n) +=! (X(m,d) - Y(n,d)) * (X(m,d) - Y(n,d))
  O(m) min=! P(m,n)
}"""


def test_rows_that_leave_few_elements_between_nests_run_in_lanes() -> None:
    """The shared operand and the results, neighbours in the lanes, stay where they are."""
    naive = schedule_program(analyse(NEAREST)["f"], Options(), {}).kernel
    out = map_cpu(naive, AVX2, Options()).kernel
    few = next(x for x, _ in walk(out.body) if isinstance(x, Branch))
    moved = [x.source for x, _ in walk(few.then) if isinstance(x, TransposeBlock)]
    assert moved == ["X"]
    assert holds(few.condition, {"M": 8, "N": 2, "D": 30})
    assert not holds(few.condition, {"M": 7, "N": 2, "D": 30})
    assert holds(few.condition, {"M": 8, "N": 4, "D": 300})  # as many sums as wait for none
    assert holds(few.condition, {"M": 8, "N": 10, "D": 32})
    assert not holds(few.condition, {"M": 8, "N": 10, "D": 33})
    assert not holds(few.condition, {"M": 8, "N": 2, "D": 30000})
    inside = [around for x, around in walk(few.then) if isinstance(x, Update) and x.op == "add"]
    unrolled = [x.upper.as_int() for x in inside[0] if isinstance(x, Loop) and x.kind == "unrolled"]
    assert unrolled == [4, 1]  # sums at once, vectors of each
    for m, n, d in itertools.product((1, 8, 11), (1, 2, 3, 4, 5, 9), (1, 9)):
        assert_same(naive, out, {"M": m, "N": n, "D": d})
