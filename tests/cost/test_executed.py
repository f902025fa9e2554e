# SPDX-License-Identifier: Apache-2.0
"""Counts are those of running every iteration of every loop, one after the other."""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import prod

import numpy as np
import pytest

import tcsym
from tcsym.compiler import Lowering, analyse
from tcsym.cost.counting import counted
from tcsym.cost.statements import Copies, Leaf, Machinery, is_copied
from tcsym.cost.terms import TERMS, Counts, counts, of, prices_of
from tcsym.frontend.program import Program
from tcsym.index.expr import condition_variables
from tcsym.index.values import evaluate, holds
from tcsym.ir.loops import THREADS, Allocate, Block, Branch, Kernel, Loop, Node, TransposeBlock
from tcsym.options import Options
from tcsym.target.machine import Machine
from tests.fuzz.generate import random_program
from tests.targets import target_of

SIZES = (1, 2, 3, 5, 8, 17, 33)
MOST_WORK = 40_000
NEAR = 0.17  # of the time: where the work of a loop changes in its middle, three iterations miss it

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def mapped(program: Program, target: str, options: Options | None = None) -> tuple[Kernel, Machine]:
    chosen = target_of(target)
    layouts = ("dense",) * (len(program.inputs) + len(program.outputs))
    stages = Lowering(program, chosen, options or Options(), {}, layouts, (), {})
    return stages.mapped(stages.scheduled(), whole=True).kernel, chosen.machine


class Run:
    """Every iteration, as an interpreter would run it; leaves as the cost counts them."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        self.machinery = Machinery.of(kernel, machine)
        self.launched = {**dict.fromkeys(kernel.launched, 0), THREADS: 1}

    def __call__(self, kernel: Kernel, sizes: Mapping[str, int]) -> Counts:
        found = self.node(kernel.body, {**self.launched, **sizes}, None, ())
        return (found.once() if isinstance(found, Leaf) else found) + counts(call=1)

    def node(
        self, n: Node, env: Mapping[str, int], loop: str | None, tile: tuple[Copies, ...]
    ) -> Counts | Leaf:
        match n:
            case Allocate(_, body):
                return self.node(body, env, loop, tile)
            case Block(body):
                parts = [self.node(x, env, loop, tile) for x in body]
                leaf = Leaf.together(x for x in parts if isinstance(x, Leaf))
                rest = [x for x in parts if not isinstance(x, Leaf)]
                return sum(rest, leaf.once()) if rest else leaf
            case Branch(condition, then, orelse):
                arms = [then, *([] if orelse is None else [orelse])]
                if condition_variables(condition) <= env.keys():
                    arms = arms[:1] if holds(condition, env) else arms[1:]
                    ran = sum((closed(self.node(x, env, loop, tile)) for x in arms), counts())
                    return ran + counts(branch=1)
                both = [self.node(x, env, loop, tile) for x in arms]
                if all(isinstance(x, Leaf) for x in both):
                    return Leaf.together((*both, Leaf(counts(branch=1), counts())))  # type: ignore[arg-type]
                return sum(map(closed, both), counts(branch=1))
            case TransposeBlock() if not self.machinery.has_masks:
                there = evaluate(n.rows, env), evaluate(n.columns, env)
                is_whole = there[0] >= n.block and there[1] >= n.block
                whole = closed(self.machinery.leaf(n, None, ()))
                return whole if is_whole else whole + self.machinery.clipped(n)
            case Loop() if n.kind in ("vector", "unrolled") and is_copied(n):
                inside = {**env, n.variable: 0}
                return self.node(n.body, inside, loop, (*tile, Copies.of(n)))
            case Loop():
                return self.loop(n, env)
            case _:
                return self.machinery.leaf(n, loop, tile)  # type: ignore[arg-type]

    def loop(self, n: Loop, env: Mapping[str, int]) -> Counts:
        values = range(1)
        if n.value is None and n.at is None:
            values = range(evaluate(n.lower, env), evaluate(n.upper, env))
        total = counts(launch=1) if n.kind == "parallel" else counts(entry=1)
        for i in values:
            body = self.node(n.body, {**env, n.variable: i}, n.variable, ())
            if isinstance(body, Leaf):
                total = total + (body.before if i == values.start else counts())
                body = body.iteration(self.machinery.registers)
            total = total + body + counts(step=1 / max(1, n.unroll))
        return total


def closed(x: Counts | Leaf) -> Counts:
    return x.once() if isinstance(x, Leaf) else x


def some_sizes(program: Program, rng: random.Random, n: int) -> list[dict[str, int]]:
    found = []
    for _ in range(20 * n):
        sizes = {name: rng.choice(SIZES) for name in program.sizes}
        if prod(sizes.values()) <= MOST_WORK:
            found.append(sizes)
    return found[:n]


def compare(program: Program, target: str, rng: random.Random, *, all_kinds: bool) -> int:
    kernel, machine = mapped(program, target)
    most = max((c.versions for c in kernel.choices), default=1)
    versions = [{c.variable: k % c.versions for c in kernel.choices} for k in range(most)]
    run = Run(kernel, machine)
    cases = [{**x, **chosen} for x in some_sizes(program, rng, 4) for chosen in versions]
    columns = {name: np.array([x[name] for x in cases], np.int64) for name in cases[0]}
    found = counted(kernel, machine, columns)
    found[:, [TERMS.index(name) for name in ("awaited", "again")]] = 0  # no instructions
    prices = prices_of(machine)
    for row, sizes in zip(found, cases):
        expected = run(kernel, sizes)
        assert abs(row @ prices / (expected @ prices) - 1) < NEAR, sizes
        if all_kinds:
            np.testing.assert_allclose(row, expected, rtol=0.04, err_msg=str(sizes))
    return len(cases)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", ["avx2", "avx512"])
@pytest.mark.parametrize("name", tcsym.library.names()[::6])
def test_the_library(name: str, target: str) -> None:
    program = list(analyse(tcsym.library.source(name)).values())[-1]
    assert compare(program, target, random.Random(name), all_kinds=True)


@pytest.mark.parametrize("seed", [k for k in range(24) if k not in (9, 15)])  # long; refused
def test_generated_programs(seed: int) -> None:
    rng = random.Random(seed)
    case = random_program(rng)
    program = analyse(case.source)[case.name]
    compare(program, ("avx2", "avx512")[seed % 2], rng, all_kinds=False)


PANELS = """
    split m tile reg:6 end=half
    split n panel tile:2 reg:2 lane:8 end=half
    order n.panel m.tile n.tile
    stage B at n.panel order n.tile k n.reg n.lane
"""


@pytest.mark.parametrize(("target", "lanes"), [("avx2", 8), ("avx512", 16)])
@pytest.mark.parametrize("plan", [PANELS, ""])
def test_a_product_adds_each_term_once(target: str, lanes: int, plan: str) -> None:
    """In parts of eight floats; sizes are whole tiles of any plan."""
    program = analyse(MM)["mm"]
    kernel, machine = mapped(program, target, Options(plan=plan))
    sizes = {"M": 48, "K": 64, "N": 12 * lanes}
    found = counted(kernel, machine, {n: np.array([v]) for n, v in sizes.items()})
    assert of(found, "fma")[0] == prod(sizes.values()) / 8


def test_copies_are_counted_like_any_loop() -> None:
    """A panel of an operand is stored once for each time that it is made."""
    program = analyse(MM)["mm"]
    kernel, machine = mapped(program, "avx2", Options(plan=PANELS))
    stores = counted(kernel, machine, {n: np.array([64, 128, 256]) for n in "MKN"})
    grown = of(stores, "store") + of(stores, "trans") + of(stores, "scatter")
    assert (np.diff(np.log2(grown)) < 2.6).all()  # as elements, not as terms
