# SPDX-License-Identifier: Apache-2.0
"""Counts of whole kernels at many sizes: they are those of the loops that run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import tcsym
from tcsym.compiler import Lowering, analyse
from tcsym.cost.choosing import SAMPLES, Counting, samples
from tcsym.cost.counting import counted, nanoseconds
from tcsym.cost.terms import of, prices_of
from tcsym.frontend.program import Program
from tcsym.index.expr import (
    TRUE,
    Index,
    ceildiv,
    choose,
    floordiv,
    ge,
    index,
    maximum,
    minimum,
    mod,
    var,
)
from tcsym.index.straight_line import Writer, Written
from tcsym.index.values import evaluate
from tcsym.ir.loops import THREADS, Kernel
from tcsym.ir.traverse import substitute_node
from tcsym.options import Options
from tcsym.target.machine import Machine
from tcsym.target.names import resolve_target
from tests.fuzz.generate import random_program

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
M, N = var("M"), var("N")


TARGET = resolve_target("cpu:avx2")


def _mapped(text: str, options: Options | None = None) -> Kernel:
    (program,) = analyse(text).values()
    layouts = ("dense",) * (len(program.inputs) + len(program.outputs))
    stages = Lowering(program, TARGET, options or Options(), {}, layouts, (), {})
    return stages.mapped(stages.scheduled()).kernel


def _estimated(text: str, options: Options | None = None, **sizes: Any) -> Any:
    known = {n: np.array(v) for n, v in sizes.items()}
    return nanoseconds(_mapped(text, options), TARGET.machine, known)


@pytest.mark.parametrize(
    "e",
    [
        3 * M - 2 * N + 1,
        M * N,
        floordiv(M, N),
        mod(M, N),
        ceildiv(M, 4),
        minimum(M, N, 7),
        maximum(M - N, 0),
        choose(ge(M, N), M, 2 * N),
        minimum(6, M - 6 * floordiv(N, 6)),
    ],
)
def test_programs_are_as_integers(e: Index) -> None:
    m, n = (x.ravel() for x in np.meshgrid(np.arange(9), np.arange(9)))
    writer = Writer({"M": m, "N": n})
    part = Written(writer, writer.variables).index(e)
    expected = [evaluate(e, {"M": int(a), "N": int(b)}) for a, b in zip(m, n)]
    np.testing.assert_array_equal(writer.columns[part][:, 0], expected)
    m, n = m + 13, 2 * n + 40  # others than it was written by
    (found,) = writer.written([part]).evaluate({"M": m, "N": n})
    expected = [evaluate(e, {"M": int(a), "N": int(b)}) for a, b in zip(m, n)]
    np.testing.assert_array_equal(found[:, 0], expected)


def test_time_grows_with_the_work() -> None:
    sizes = np.array([64, 128, 256, 512])
    found = _estimated(MM, M=sizes, K=sizes, N=sizes)
    growth = found[1:] / found[:-1]
    assert (growth > 6).all() and (growth < 9).all()


def test_a_last_tile_that_runs_over_costs_more() -> None:
    """Tiles of 4 rows: one row more than a multiple begins another tile."""
    rows = np.array([32, 33, 36])
    plan = "m: split m tile reg:4; split n tile lane:8; order m.tile n.tile"
    options = Options(plan=plan)
    full, over, next_full = _estimated(MM, options, M=rows, K=np.full(3, 64), N=np.full(3, 64))
    assert full < 0.95 * over
    assert abs(next_full - over) < 0.2 * (over - full)


def test_no_elements_take_next_to_no_time() -> None:
    none, some = _estimated(MM, M=[0, 64], K=[64, 64], N=[64, 64])
    call = of(prices_of(resolve_target("cpu:avx2").machine), "call")
    assert none - call < 0.02 * (some - call)


def test_one_size_without_any_name() -> None:
    assert _estimated("def f(float(4) A) -> (B) { B(i) = A(i) + 1 }").shape == (1,)


def test_of_a_loop_at_a_position_one_iteration_runs() -> None:
    text = "def f(float(V,D) W, int32(N) I) -> (Y) { Y(n,d) = W(I(n),d) }"
    few, many = _estimated(text, V=[50, 5000], N=[40, 40], D=[64, 64])
    assert few == many


@pytest.mark.parametrize(
    ("text", "each"),
    [
        (  # vectors are divided by what lanes were reduced to: each row once, or in pairs
            "def f(float(M,K) A) -> (S, Y) { S(m) +=! A(m,k)  Y(m,k) = A(m,k) / S(m) }",
            1.0,
        ),
        ("def f(float(M,K) A) -> (S) { S(m) +=! A(m,k) }", 0.0),
    ],
)
def test_rows_wait_for_reductions_that_vectors_need(text: str, each: float) -> None:
    found = counted(_mapped(text), TARGET.machine, {"M": np.array([64]), "K": np.array([1000])})
    assert of(found, "across")[0] > 0
    assert 0.25 * 64 * each <= of(found, "stall")[0] <= 64 * each


def test_versions_are_chosen_by_what_they_take_in_the_kernel() -> None:
    """Of many rows, beside which launches are little."""
    kernel = _mapped("def f(float(M,K) A) -> (S) { S(m) +=! A(m,k) }")
    (choice,) = kernel.choices
    sizes = {"M": np.full(3, 4096), "K": np.array([30, 100, 200])}
    for k, cost in enumerate(choice.costs.evaluate({THREADS: np.ones(3), **sizes})):
        able = np.isfinite(cost[:, 0])
        expected = nanoseconds(kernel, TARGET.machine, {**sizes, choice.variable: np.full(3, k)})
        assert able.any()
        np.testing.assert_allclose(cost[able, 0], expected[able], rtol=0.02)


@pytest.mark.parametrize("name", tcsym.library.names()[::5])
def test_programs_count_at_sizes_that_they_were_not_written_by(name: str) -> None:
    (*_, program) = analyse(tcsym.library.source(name)).values()
    _of_other_sizes(program)


@pytest.mark.parametrize("seed", range(12))
def test_programs_of_generated_texts(seed: int) -> None:
    case = random_program(random.Random(seed))
    _of_other_sizes(analyse(case.source)[case.name])


def _of_other_sizes(program: Program) -> None:
    """Nearly all: where the samples lack what is seldom, a program does too."""
    target = resolve_target("cpu:avx2")
    layouts: Any = ("dense",) * (len(program.inputs) + len(program.outputs))
    stages = Lowering(program, target, Options(), {}, layouts, (), {})
    for kernel in _versions(stages.mapped(stages.scheduled()).kernel):
        _at_other_sizes(kernel, target.machine)


def _versions(kernel: Kernel) -> Iterator[Kernel]:
    """The kernel in each version of what it chooses."""
    for k in range(max((c.versions for c in kernel.choices), default=1)):
        chosen = {c.variable: index(k % c.versions) for c in kernel.choices}
        yield replace(kernel, body=substitute_node(kernel.body, chosen), choices=())


def _at_other_sizes(kernel: Kernel, machine: Machine) -> None:
    sizes = frozenset(kernel.sizes)
    counting = Counting(kernel, machine, sizes)
    cost = counting.cost(kernel, kernel.body, (), TRUE)
    of_program = counting.writer.written([cost])
    others = samples(kernel, sizes, seed=1)
    found = np.broadcast_to(of_program.evaluate(others)[0][:, 0], SAMPLES if others else 1)
    expected = nanoseconds(kernel, machine, others)
    assert (abs(found / expected - 1) < 0.03).mean() > 0.9
    assert abs(np.log(found / expected)).mean() < 0.03
