# SPDX-License-Identifier: Apache-2.0
"""Which parallel loops a call of given sizes comes to."""

from __future__ import annotations

import pytest

import tcsym
from tcsym.compiler import Lowering, analyse
from tcsym.frontend.program import Const
from tcsym.index.expr import Index, eq, ge, var
from tcsym.index.straight_line import Writer
from tcsym.ir.launched import chosen, launched
from tcsym.ir.loops import (
    THREADS,
    Block,
    Branch,
    Buffer,
    Choice,
    Kernel,
    Loop,
    Node,
    Store,
)
from tcsym.process.threads import get_num_threads
from tcsym.target.names import resolve_target
from tcsym.types import DType

N, K = var("N"), var("K")
ONE = Const(1.0, DType.FLOAT32)


def task(name: str, upper: Index = N) -> Loop:
    return Loop(name, Index(), upper, Store("A", (var(name),), ONE), kind="parallel")


def names(body: Node, **sizes: int) -> list[str]:
    kernel = Kernel("k", ("N", "K"), ("A",), (Buffer("A", DType.FLOAT32, (N,)),), body)
    return [loop.variable for loop in launched(kernel, sizes)]


def test_conditions_on_sizes_decide() -> None:
    body = Block((Branch(ge(N, 5), task("a"), task("b")), Branch(eq(K, 1), task("c"))))
    assert names(body, N=5, K=1) == ["a", "c"]
    assert names(body, N=4, K=2) == ["b"]


def test_threads_may_choose() -> None:
    """As many as are said, or else as calls have."""
    w = Writer({"N": [1.0, 100.0, 7.0], THREADS: [1.0, 2.0, 4.0]})
    n, threads = w.variables["N"], w.variables[THREADS]
    costs = w.written([n, w.quotient(w.multiply(w.constant(3), n), threads)])
    body = Branch(eq(var("plan"), 0), task("a"), task("b"))
    buffers = (Buffer("A", DType.FLOAT32, (N,)),)
    kernel = Kernel("k", ("N",), ("A",), buffers, body, choices=(Choice("plan", costs),))
    for threads, name in ((1, "a"), (9, "b")):
        given = {"N": 5, THREADS: threads}
        assert [x.variable for x in launched(kernel, given)] == [name]
        assert chosen(kernel, given) == {"plan": threads // 9}
    assert chosen(kernel, {"N": 5}) == chosen(kernel, {"N": 5, THREADS: get_num_threads()})
    assert [x.variable for x in launched(kernel, {"N": 0})] == []
    assert chosen(kernel, {"N": 0}) == {"plan": 0}


def test_conditions_on_more_leave_both() -> None:
    both = Branch(ge(var("i"), 5), task("a"), task("b"))
    body = Loop("i", Index(), K, both)
    assert names(body, N=5, K=1) == ["a", "b"]
    assert names(Branch(ge(var("A.phase"), 1), task("a"), task("b")), N=1, K=1) == ["a", "b"]


def test_loops_without_iterations_launch_nothing() -> None:
    assert names(task("a"), N=0, K=1) == []
    assert names(Loop("i", Index(), K, task("a")), N=1, K=0) == []
    assert names(Loop("i", Index(), K, task("a", var("i"))), N=1, K=3) == ["a"]  # for some i


def test_tasks_inside_tasks_are_parts_of_them() -> None:
    inner = task("b")
    outer = Loop("a", Index(), N, inner, kind="parallel")
    assert names(outer, N=1, K=1) == ["a"]


@pytest.mark.parametrize("sizes", [(64, 64, 64), (1, 64, 64), (3, 2, 300), (0, 5, 5)])
def test_a_product_launches_few_of_its_loops(sizes: tuple[int, int, int]) -> None:
    text = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    (program,) = analyse(text).values()
    target = resolve_target("cpu:avx2")
    stages = Lowering(program, target, tcsym.Options(), {}, ("dense",) * 3, (), {})  # type: ignore[arg-type]
    kernel = stages.mapped(stages.scheduled()).kernel
    given = dict(zip(("M", "K", "N"), sizes))
    assert len(list(launched(kernel, given))) <= 3
