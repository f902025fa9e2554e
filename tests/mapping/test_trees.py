# SPDX-License-Identifier: Apache-2.0
"""Trees that plans made, kept from passes that copy, drop and rename what is around them."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tcsym.index.expr import TRUE, Index, ge, var
from tcsym.ir.loops import Allocate, Block, Branch, Kernel, Loop, Node, Store
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.mapping.map_cpu import map_nest
from tcsym.mapping.nest import analyse
from tcsym.mapping.plan import Version
from tcsym.mapping.text import parse
from tcsym.mapping.trees import apart, unmarked
from tcsym.schedule.analysis.access import Access, accesses, rename_buffers, value_variables
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.names import Names, rename_loops
from tcsym.schedule.order.coalesce import coalesce_outermost
from tcsym.schedule.order.parallelise import parallelise
from tcsym.schedule.storage.place_allocations import place_allocations
from tests.mapping import drawn
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, kernel, par, rd, st, v
from tests.schedule.targets import AVX2

STEPS = """def f(float(T,M,K) P, float(K,N) Q) -> (R) {
  for t in 0:T { R(t,m,n) +=! P(t,m,k) * Q(k,n) }
}"""
PLAN = """split m tile reg:2; split n panel tile:2 reg:2 lane:4; order n.panel m.tile n.tile
stage Q at n.panel order n.tile k n.reg n.lane"""


@pytest.fixture
def mapped() -> tuple[Kernel, Kernel, Names]:
    """A nest in a loop that runs in order, and the same by a plan."""
    naive = drawn.naive(STEPS)
    naive = replace(naive, body=_in_order(naive.body))
    top, buffers = find_loop(naive.body, "m"), {b.name: b for b in naive.buffers}
    nest = analyse(top, buffers, frozenset(naive.sizes), frozenset("t"))
    names = Names.of(naive)
    return naive, map_nest(naive, nest, [Version("", TRUE, parse(PLAN))], AVX2, names), names


def _in_order(node: Node) -> Node:
    assert isinstance(node, Loop) and node.variable == "t"
    return replace(node, order="sequential")


def done(kernel: Kernel) -> Kernel:
    kernel = place_allocations(unmarked(kernel))
    verify(kernel)
    return kernel


def check(naive: Kernel, kernel: Kernel) -> None:
    r = random.Random(1)
    for _ in range(4):
        assert_same(naive, kernel, drawn.sizes(r, naive.sizes))


def test_a_pass_does_not_see_them(mapped: tuple[Kernel, Kernel, Names]) -> None:
    naive, kernel, names = mapped
    seen = list[Kernel]()

    def look(x: Kernel) -> Kernel:
        seen.append(x)
        return x

    assert apart(kernel, names, look).body == kernel.body
    (x,) = seen
    assert [y.variable for y, _ in walk(x.body) if isinstance(y, Loop)] == ["t"]
    assert not any(b.name.startswith(("Q.copy", "R.acc")) for b in x.buffers)
    check(naive, done(kernel))


def test_it_sees_what_they_access(mapped: tuple[Kernel, Kernel, Names]) -> None:
    """At its place where only loops around move it, else anywhere; not what is theirs."""
    _, kernel, names = mapped
    seen = list[Access]()

    def look(x: Kernel) -> Kernel:
        seen.extend(a for a in accesses(x.body) if not a.buffer.startswith("$"))
        return x

    apart(kernel, names, look)
    assert {(a.buffer, a.written) for a in seen} == {("R", True), ("P", False), ("Q", False)}
    for a in seen:
        t, *places = a.subscripts if a.buffer != "Q" else (var("t"), *a.subscripts)
        assert t == var("t")
        assert all(not isinstance(s, Index) and "t" in value_variables(s) for s in places)


def test_their_buffers_may_be_renamed(mapped: tuple[Kernel, Kernel, Names]) -> None:
    naive, kernel, names = mapped

    def renamed(x: Kernel) -> Kernel:
        other = replace(x.buffer("P"), name="P.2")
        body = rename_buffers(x.body, {"P": "P.2"})
        return replace(x, body=Block((x.body, body)), buffers=(*x.buffers, other))

    both = apart(kernel, names, renamed)
    first, second = both.body.body  # type: ignore[union-attr]
    assert {"P", "P.2"} & {a.buffer for a in accesses(first)} == {"P"}
    assert {"P", "P.2"} & {a.buffer for a in accesses(second)} == {"P.2"}
    buffers = tuple(b for b in both.buffers if b.name != "P.2")
    check(naive, done(replace(both, body=first, buffers=buffers)))


def test_copies_get_names_of_their_own(mapped: tuple[Kernel, Kernel, Names]) -> None:
    """And what they stand in may have other names."""
    naive, kernel, names = mapped

    def twice(x: Kernel) -> Kernel:
        other = rename_loops(x.body, {"t": "u"})
        return replace(x, body=Branch(ge(var("M"), 5), x.body, other))

    both = done(apart(kernel, names, twice))
    check(naive, both)
    loops = [x.variable for x, _ in walk(both.body) if isinstance(x, Loop)]
    assert len({*loops}) == len(loops) and {"t", "u"} <= {*loops}
    assert apart(both, names, lambda x: x) is both  # no marks are left


def test_what_is_dropped_is_gone(mapped: tuple[Kernel, Kernel, Names]) -> None:
    _, kernel, names = mapped
    gone = apart(kernel, names, lambda x: replace(x, body=Block(())))
    assert done(gone).body == Block(())
    assert all(b.space == "argument" for b in done(gone).buffers)


def test_places_stay_and_threads_share_panels() -> None:
    """Loops around an allocation and inside of it become one; each part has a copy of its own."""
    naive = drawn.naive("def f(float(M,K) P, float(K,N) Q) -> (R) { R(m,n) +=! P(m,k) * Q(k,n) }")
    (nest,) = drawn.nests(naive)
    names = Names.of(naive)
    kernel = map_nest(naive, nest, [Version("", TRUE, parse(PLAN))], AVX2, names)
    kernel = parallelise(coalesce_outermost(unmarked(kernel), AVX2, names, 0, 3), AVX2)
    parallel = next(x for x, _ in walk(kernel.body) if isinstance(x, Loop))
    assert parallel.kind == "parallel" and "launch.threads" in parallel.upper.variables()
    (place,) = [x for x, _ in walk(parallel) if isinstance(x, Allocate) and "copy" in x.buffers[0]]
    assert any(isinstance(x, Store) and "copy" in x.buffer for x, _ in walk(place))
    verify(place_allocations(kernel))
    check(naive, place_allocations(kernel))


def test_temporaries_that_nothing_uses_have_no_place() -> None:
    """What a tree keeps of a row that is not needed, where sizes are numbers."""
    body = par("i", "N", st("B", v("i"), rd("A", *v("i"))))
    found = kernel("f", "N", [buf("A", "N"), buf("B", "N"), buf("T", "N", private="")], body)
    found = place_allocations(found)
    verify(found)
    assert not [x for x, _ in walk(found.body) if isinstance(x, Allocate)]
