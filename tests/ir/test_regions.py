# SPDX-License-Identifier: Apache-2.0
"""What the outermost parallel loops of a kernel become functions of."""

from __future__ import annotations

import pytest

from tcsym.frontend.program import Binary, Const, Read
from tcsym.index.expr import Index, ceildiv, eq, index, minimum, of_atom, var
from tcsym.ir.loops import (
    THREADS,
    Allocate,
    Block,
    Branch,
    Buffer,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Store,
    Value,
    block,
)
from tcsym.ir.regions import Host, buffers_used, outline
from tcsym.ir.traverse import map_node, walk
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.target.names import resolve_target
from tcsym.types import DType
from tests.polyhedral.programs import SOURCES, scheduled

F32 = DType.FLOAT32
N, K, S = var("N"), var("K"), var("s")
I = var("i")  # noqa: E741
ZERO = Index()
ONE = Const(1.0, F32)


def task(value: Value = ONE, at: Index = I, upper: Index = N, name: str = "i") -> Loop:
    return Loop(name, ZERO, upper, Store("A", (at,), value), "parallel", "parallel")


def outlined(body: Node, *buffers: Buffer) -> Host:
    arguments = Buffer("A", F32, (N,)), Buffer("B", F32, (N, K))
    return outline(Kernel("k", ("N", "K"), ("A", "B"), (*arguments, *buffers), body))


@pytest.mark.parametrize("name", SOURCES)
def test_regions_of_mapped_programs_receive_all_they_use(name: str) -> None:
    kernel = map_cpu(scheduled(name).kernel, resolve_target("cpu:avx2").machine, Options()).kernel
    host = outline(kernel)
    tasks = [n for n, a in walk(kernel.body) if is_parallel(n) and not any(map(is_parallel, a))]
    assert [r.loop for r in host.regions] == tasks
    assert [r.name for r in host.regions] == [f"tcsym_task{k}" for k in range(len(tasks))]
    for region in host.regions:
        inside = {n.variable for n, _ in walk(region.loop) if isinstance(n, Loop)}
        own = {b for n, _ in walk(region.loop) if isinstance(n, Allocate) for b in n.buffers}
        known = dict(region.known)
        assert set(region.numbers).isdisjoint(known)
        used = variables_of(region.loop.body) - inside
        assert used <= {*region.numbers, *known}
        assert buffers_used(region.loop.body) - own == set(region.pointers)
        for atom in region.formulas:
            assert of_atom(atom).variables() <= set(region.numbers)


def is_parallel(n: Node) -> bool:
    return isinstance(n, Loop) and n.kind == "parallel"


def variables_of(body: Node) -> set[str]:
    """Of index expressions, but for those of horizontal sums."""
    used, own = set[str](), set[str]()

    def index(e: Index) -> Index:
        used.update(e.variables())
        return e

    def value(v: Value) -> Value:
        if isinstance(v, HorizontalReduce):
            own.add(v.variable)
        return v

    map_node(body, on_value=value, on_index=index)
    return used - own


def test_a_region_receives_what_its_body_uses_and_no_more() -> None:
    (region,) = outlined(task(Read("B", (I, S), F32), upper=K)).regions
    assert region.pointers == ("A", "B")
    assert region.numbers == ("N", "K")  # of strides and shapes
    (region,) = outlined(task(upper=K)).regions
    assert (region.pointers, region.numbers) == (("A",), ("N",))  # the host knows the bounds


def test_grids_receive_their_ends_and_blocks_their_start() -> None:
    body = Store("A", (var("j"),), ONE)
    threads = Loop("j", ZERO, index(8), body, "thread", "parallel")
    (region,) = outlined(Loop("i", K, S, Loop("b", ZERO, N, threads, "block"), "grid")).regions
    assert set(region.numbers) == {"N", "K"}
    (region,) = outlined(Loop("b", K, N + 1, threads, "block", "parallel")).regions
    assert set(region.numbers) == {"N", "K"}


def test_variables_come_from_the_outside_in() -> None:
    inner = Loop("t", ZERO, K, Loop("s", ZERO, N, task(at=I + S + var("t") + var(THREADS))))
    (region,) = outlined(inner).regions
    assert region.numbers == ("N", THREADS, "t", "s")


def test_formulas_are_the_largest_that_the_outside_knows() -> None:
    tiles = minimum(ceildiv(N, 8), ceildiv(K, 16) + 3)
    (region,) = outlined(task(at=minimum(I * tiles, I + 1))).regions
    assert [of_atom(a) for a in region.formulas] == [tiles]
    (region,) = outlined(task(at=I + ceildiv(N, 8))).regions
    assert region.formulas == ()  # to pass it takes as many lines


def test_what_conditions_and_single_iterations_say_is_known() -> None:
    at = I + K + S
    once = Loop("s", K + 1, K + 2, task(at=at))
    host = outlined(Branch(eq(K, 3), once, Loop("r", ZERO, N, task(at=I + K, name="j"))))
    first, second = host.regions
    assert (first.numbers, first.known) == (("N",), (("K", 3), ("s", 4)))
    assert (second.numbers, second.known) == (("N", "K"), ())
    (region,) = outlined(Loop("s", K, K + 1, task(at=at))).regions
    assert region.numbers == ("N", "K", "s")


def test_buffers_of_the_host_are_passed_and_own_ones_are_not() -> None:
    shared, own = (Buffer(n, F32, (N,), space="arena") for n in ("T", "P"))
    value = Binary("add", Read("T", (I,), F32), Read("P", (I,), F32), F32)
    loop = Loop("i", ZERO, N, Allocate(("P",), Store("A", (I,), value)), "parallel")
    (region,) = outlined(Allocate(("T",), loop), shared, own).regions
    assert region.pointers == ("A", "T")


def test_parallel_loops_inside_a_region_are_part_of_it() -> None:
    inner = task(name="j", at=var("j") + I)
    host = outlined(block(Loop("i", ZERO, N, inner, "parallel"), task(name="h", at=var("h"))))
    assert [(r.name, r.loop.variable) for r in host.regions] == [
        ("tcsym_task0", "i"),
        ("tcsym_task1", "h"),
    ]
    assert isinstance(host.body, Block)
    assert [host.region(x).name for x in host.body.body if isinstance(x, Loop)] == [
        "tcsym_task0",
        "tcsym_task1",
    ]


def test_text() -> None:
    tiles = minimum(ceildiv(N, 8), ceildiv(K, 16) + 3)
    first = task(Read("B", (I, K), F32), upper=ceildiv(N, 8))
    second = task(at=I * tiles, upper=K)
    host = outlined(Branch(eq(K, 2), first, Loop("s", ZERO, N, second)))
    assert str(host).splitlines() == [
        "if K == 2",
        "  parallel i in 0:(N + 7)/8",
        "else",
        "  serial s in 0:N",
        "    parallel i in 0:K",
        "tcsym_task0  parallel i in 0:(N + 7)/8",
        "  numbers N",
        "  known K = 2",
        "  pointers A, B",
        "tcsym_task1  parallel i in 0:K",
        "  numbers N, K",
        "  formulas min((K + 15)/16 + 3, (N + 7)/8)",
        "  pointers A",
    ]
