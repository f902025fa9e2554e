# SPDX-License-Identifier: Apache-2.0
"""Versions that the cost chooses: each is right at any sizes, and those that save are kept."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import tcsym
from tcsym.compiler import Lowering, analyse
from tcsym.cost.choosing import CODE_PRICE, Counting, samples
from tcsym.cost.counting import nanoseconds
from tcsym.frontend.program import Program
from tcsym.frontend.sample import random_inputs
from tcsym.index.straight_line import Writer
from tcsym.index.values import evaluate
from tcsym.ir.launched import chosen
from tcsym.ir.loops import THREADS, Choice, Kernel
from tcsym.options import Options
from tcsym.target.host import runs_here
from tcsym.target.names import resolve_target
from tests.codegen.harness import Loaded, load
from tests.mapping import drawn

NEW = Options()
SIZES = (1, 2, 3, 5, 8, 13, 17, 33)
SERVED = ("matmul", "matmul_nt", "linear_relu", "batched_matmul", "softmax", "layer_norm")


def mapped(program: Program, target: str, options: tcsym.Options = NEW) -> Kernel:
    dense: Any = ("dense",) * (len(program.inputs) + len(program.outputs))
    stages = Lowering(program, resolve_target(target), options, {}, dense, (), {})
    return stages.mapped(stages.scheduled(), whole=True).kernel


def by_threads(c: Choice) -> Choice:
    """With one thread the first version, with two the second, and so on."""
    writer = Writer({THREADS: np.arange(1, c.versions + 1)})
    apart = [
        writer.less(writer.variables[THREADS], writer.constant(k + 1)) for k in range(c.versions)
    ]
    return Choice(c.variable, writer.written([writer.multiply(x, x) for x in apart]))


@pytest.mark.parametrize("name", SERVED)
def test_any_version_is_right_at_any_sizes(name: str) -> None:
    assert run_each(tcsym.library.source(name), name, "cpu:avx2")


@pytest.mark.parametrize("seed", range(24))
def test_any_version_of_drawn_nests_is_right(seed: int) -> None:
    run_each(drawn.program(random.Random(seed)), "f", ("cpu:avx2", "cpu:avx512")[seed % 2])


def run_each(source: str, name: str, target: str) -> int:
    """Each version of what the kernel chooses, at sizes that cost did not choose it for."""
    definition = tcsym.define(source)[name]
    program, rng = analyse(source)[name], random.Random(source)
    kernel = mapped(program, target)
    if not kernel.choices or not runs_here(resolve_target(target)):
        return 0
    run = load(replace(kernel, choices=tuple(map(by_threads, kernel.choices))), target)
    for version in range(max(c.versions for c in kernel.choices)):
        for sizes in islice(some_sizes(program, rng), 3):
            compare(run, definition, program, sizes, version + 1)
    return len(kernel.choices)


def some_sizes(program: Program, rng: random.Random) -> Iterator[dict[str, int]]:
    """With room for windows."""
    for _ in range(10_000):
        sizes = {n: rng.choice(SIZES) for n in program.sizes}
        shapes = (t.shape for t in (*program.inputs, *program.outputs))
        if all(evaluate(e, sizes) > 0 for shape in shapes for e in shape):
            yield sizes
    raise AssertionError(f"{program.name} has no room at sizes of {SIZES}")


def compare(
    run: Loaded, definition: Any, program: Program, sizes: dict[str, int], threads: int
) -> None:
    inputs = random_inputs([(t.dtype, t.shape) for t in program.inputs], sizes, 1)
    arrays = {t.name: x for t, x in zip(program.inputs, inputs, strict=True)}
    for t in program.outputs:
        arrays[t.name] = np.full([evaluate(e, sizes) for e in t.shape], 7, t.dtype.numpy)
    assert run(arrays, sizes, threads) == 0
    expected = definition.reference(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for t, x in zip(program.outputs, expected, strict=True):
        np.testing.assert_allclose(arrays[t.name], x, 1e-3, 1e-3, err_msg=str(sizes))


def test_costs_are_those_of_what_runs() -> None:
    """Of the version that is chosen, but for the call and what other passes do."""
    program = analyse(tcsym.library.source("matmul"))["matmul"]
    kernel, machine = mapped(program, "cpu:avx2"), resolve_target("cpu:avx2").machine
    (choice,), rng = kernel.choices, random.Random(3)
    for _ in range(20):
        sizes = {n: rng.randrange(1, 200) for n in kernel.sizes}
        costs = [float(x[0, 0]) for x in choice.costs.evaluate({THREADS: 1, **sizes})]
        taken = chosen(kernel, {THREADS: 1, **sizes})[choice.variable]
        assert costs[taken] == min(costs)
        values = {n: np.array([v]) for n, v in {**sizes, choice.variable: taken}.items()}
        whole = nanoseconds(kernel, machine, values)[0]
        assert 0.85 < whole / costs[taken] < 1.2


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_costs_of_whole_panels_are_those_of_what_runs(target: str) -> None:
    """Nearly, for other passes, where sizes are multiples: as at others equal formulas are one."""
    program = analyse(tcsym.library.source("matmul"))["matmul"]
    kernel, machine = mapped(program, target), resolve_target(target).machine
    (choice,) = kernel.choices
    for m, k, n in ((512, 512, 256), (512, 256, 512), (256, 512, 512), (512, 512, 512)):
        sizes = dict(zip(kernel.sizes, (m, k, n), strict=True))
        costs = [float(x[0, 0]) for x in choice.costs.evaluate({THREADS: 1, **sizes})]
        for version, cost in enumerate(costs):
            values = {x: np.array([v]) for x, v in {**sizes, choice.variable: version}.items()}
            assert cost == pytest.approx(nanoseconds(kernel, machine, values)[0], rel=0.2)


def test_one_size_needs_one_version() -> None:
    of_one = tcsym.define(
        "def f(float(64,32) A, float(32,48) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        target="cpu:avx2",
        options=NEW,
    ).f
    assert "plan." not in of_one.explain("mapped")


def test_versions_that_save_are_kept() -> None:
    kernel = mapped(analyse(tcsym.library.source("matmul"))["matmul"], "cpu:avx2")
    counting = Counting(kernel, resolve_target("cpu:avx2").machine, frozenset(kernel.sizes))
    w = counting.writer
    n = w.variables["N"]
    small = w.multiply(w.constant(10), n)
    large = w.add(n, w.constant(500))
    never = w.add(small, large)
    hardly = w.multiply(large, w.constant(1 - CODE_PRICE / 10))
    kept = counting.worth_making
    assert kept([never, small, large], [True] * 3, [10] * 3) == [1, 2]
    assert kept([large, hardly], [True] * 2, [10] * 2) == [1]
    assert kept([large, hardly], [True] * 2, [10, 12]) == [0]  # for more loops
    assert kept([small, large], [False, True], [10] * 2) == [0, 1]
    assert kept([small, large], [False, True], [1000, 10]) == [1]


def test_samples_are_the_same_each_time_and_leave_no_argument_empty() -> None:
    kernel = mapped(analyse(tcsym.library.source("conv2d"))["conv2d"], "cpu:avx2")
    sizes = frozenset(kernel.sizes)
    found = samples(kernel, sizes)
    for name, values in samples(kernel, sizes).items():
        np.testing.assert_array_equal(values, found[name])
    assert (found["H"] >= found["KH"]).all()
    assert all((v >= 1).all() for v in found.values())


def test_sizes_of_other_nests_leave_those_of_a_nest_as_they_are() -> None:
    """Each has its versions, as it has alone."""
    inputs, outputs, lines = (
        sep.join(text.replace("#", str(k)) for k in range(10))
        for text, sep in (("float(N#,M#) X#", ", "), ("Y#", ", "), ("Y#(i) +=! X#(i,j)", "\n"))
    )
    alone = mapped(analyse("def f(float(N0,M0) X0) -> (Y0) { Y0(i) +=! X0(i,j) }")["f"], "cpu:avx2")
    text = f"def f({inputs}) -> ({outputs}) {{ {lines} }}"
    among = mapped(analyse(text)["f"], "cpu:avx2")
    (choice,) = alone.choices
    assert [c.versions for c in among.choices] == [choice.versions] * 10


def test_artifacts_choose(tmp_path: Path) -> None:
    kernel = tcsym.define(tcsym.library.source("matmul"), target="cpu:avx2", options=NEW).matmul
    loaded = tcsym.load(kernel.export(tmp_path / "mm", targets=["cpu:avx2"]))
    rng = np.random.default_rng(0)
    for m, k, n in ((1, 300, 40), (40, 300, 1), (3, 5, 7), (70, 60, 50)):
        a, b = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((m, k), (k, n)))
        for f in (kernel, loaded):
            np.testing.assert_allclose(f(a, b), a @ b, 1e-3, 1e-3)


def test_explain_tells_what_decides() -> None:
    f = tcsym.define(tcsym.library.source("softmax"), target="cpu:avx2", options=NEW).softmax
    sizes = {"N": 1000, "D": 10}
    costs = [x for x in f.explain("plan", **sizes).splitlines() if "  # " in x]
    assert len(costs) > 1 and all(" us: " in x for x in costs)
    assert not any(" us: " in x for x in f.explain("plan", N=1000).splitlines())
    told = f.explain("costs", **sizes)
    assert "chosen by cost" in told and "with plan.1 = 1, " in told
    few, many = (f.explain("plan", N=1000, D=d) for d in (10, 1000))
    assert few.idle != many.idle and few.idle and many.idle  # the lines of the other version
