# SPDX-License-Identifier: Apache-2.0
"""Loops, branches, threads, arenas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tcsym.codegen import emit
from tcsym.codegen.emit import APART
from tcsym.frontend.program import Binary, Call, Cast, IndexValue, Read
from tcsym.index.expr import Index, ceildiv, eq, floordiv, ge, mod, var
from tcsym.index.values import evaluate
from tcsym.ir.loops import (
    Allocate,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    Value,
    block,
)
from tcsym.target.names import resolve_target
from tcsym.types import DType
from tests.codegen.harness import TARGETS, Launches, const, load, unrolled, vector
from tests.guarded import guarded

I, J, N, M = var("i"), var("j"), var("N"), var("M")  # noqa: E741
F64, I64 = DType.FLOAT64, DType.INT64
AVX2 = resolve_target("cpu:avx2")
X, O = Buffer("X", F64, (N,)), Buffer("O", F64, (N,))  # noqa: E741


def number(i: Index) -> Value:
    return Cast(IndexValue(i, I64), F64)


def plus(a: Value, b: Value) -> Value:
    return Binary("add", a, b, F64)  # type: ignore[arg-type]


def kernel(body: Node, *others: Buffer) -> Kernel:
    return Kernel("k", ("N", "M"), ("X", "O"), (X, O, *others), body)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("unroll", [1, 2, 3, 4, 7])
def test_repeated_bodies(unroll: int, target: str) -> None:
    """A recurrence from M to N: the order of iterations is kept, each runs once."""
    step = Store("O", (I,), plus(Read("O", (I - 1,), F64), Read("X", (I,), F64)))
    first = Branch(ge(N, 1), Store("O", (const(0),), Read("X", (const(0),), F64)))
    loop = Loop("i", M, N, step, unroll=unroll)
    run = load(kernel(block(first, loop)), target)
    rng = np.random.default_rng(0)
    for n in range(12):
        for lower in (1, 2, 5):
            x = rng.integers(0, 9, n).astype(float)
            out = np.zeros(n)
            assert run({"X": x, "O": out}, {"N": n, "M": lower}) == 0
            want = np.zeros(n)
            want[:1] = x[:1]
            for i in range(lower, n):
                want[i] = want[i - 1] + x[i]
            np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("target", TARGETS)
def test_constant_bounds(target: str) -> None:
    for lower, upper, unroll in ((0, 0, 1), (3, 1, 4), (0, 8, 4), (1, 8, 4), (0, 3, 4)):
        body = Loop(
            "i", const(lower), const(upper), Update("O", (I,), "add", number(I)), unroll=unroll
        )
        out = np.zeros(8)
        assert load(kernel(body), target)({"X": out, "O": out}, {"N": 8, "M": 0}) == 0
        np.testing.assert_array_equal(out, [i if lower <= i < upper else 0 for i in range(8)])


@pytest.mark.parametrize("target", TARGETS)
def test_branches_on_variables_and_lanes(target: str) -> None:
    at = 8 * var("t") + var("l")
    odd = Branch(eq(mod(at, 2), 1), Store("O", (at,), number(-at)), Store("O", (at,), number(at)))
    late = Branch(ge(var("t"), 1), Update("O", (at,), "add", Read("X", (at,), F64)))
    lanes = vector("l", 8, block(odd, late), N - 8 * var("t"))
    run = load(kernel(Loop("t", const(0), ceildiv(N, 8), lanes)), target)
    for n in (0, 5, 8, 21):
        x, out, i = np.arange(n) * 100.0, np.zeros(n), np.arange(n)
        assert run({"X": x, "O": out}, {"N": n, "M": 0}) == 0
        np.testing.assert_array_equal(out, np.where(i % 2, -i, i) + np.where(i >= 8, x, 0))


@pytest.mark.parametrize("target", TARGETS)
def test_serial_loops_inside_lanes(target: str) -> None:
    """Each lane sums a row of X: contiguous stores, strided loads."""
    at = 8 * var("t") + var("l")
    x, o = Buffer("X", F64, (N, M)), Buffer("O", F64, (N,))
    total = Loop("j", const(0), M, Update("O", (at,), "add", Read("X", (at, J), F64)))
    lanes = vector("l", 8, block(Store("O", (at,), number(const(0))), total), N - 8 * var("t"))
    body = Loop("t", const(0), ceildiv(N, 8), lanes)
    run = load(Kernel("k", ("N", "M"), ("X", "O"), (x, o), body), target)
    for n, m in ((3, 4), (8, 0), (17, 5)):
        a, out = np.random.default_rng(0).integers(0, 9, (n, m)).astype(float), np.ones(n)
        assert run({"X": a, "O": out}, {"N": n, "M": m}) == 0
        np.testing.assert_array_equal(out, a.sum(1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threaded", [False, True])
def test_parallel_loop(threaded: bool, target: str) -> None:
    body = Loop(
        "i",
        M,
        N,
        Store("O", (I,), plus(Read("X", (I,), F64), number(I * N))),
        "parallel",
        "parallel",
        work=N,
    )
    run = load(kernel(body), target, min_work=100)
    for n, lower, threads, tasks in (
        (0, 0, 4, []),
        (5, 0, 4, []),  # 25 operations: not worth a thread
        (20, 0, 4, [4]),
        (20, 3, 3, [3]),
        (15, 0, 8, [2]),
        (20, 17, 8, []),
        (101, 99, 8, [2]),
        (20, 0, 1, []),
    ):
        x, out, launches = np.arange(n) * 0.5, np.full(n, -1.0), Launches(threaded=threaded)
        assert run({"X": x, "O": out}, {"N": n, "M": lower}, threads, launches) == 0
        want = np.where(np.arange(n) >= lower, x + np.arange(n) * n, -1)
        np.testing.assert_array_equal(out, want)
        assert launches.tasks == tasks


@pytest.mark.parametrize("target", TARGETS)
def test_parallel_loops_below_a_sequential_one(target: str) -> None:
    """Two of them, one nested again, that read a stack and a register buffer from outside."""
    s, i, j = var("s"), var("i"), var("j")
    frame = Buffer("F", F64, (const(4),), space="stack")
    scalar = Buffer("R", F64, (), space="register")
    first = Loop(
        "i",
        const(0),
        N,
        Update("O", (i,), "add", plus(Read("F", (const(2),), F64), Read("R", (), F64))),
        "parallel",
        "parallel",
        work=const(1000),
    )
    inner = Loop("jj", const(0), const(1), Update("O", (j,), "add", number(s * 10)), "parallel")
    second = Loop("j", const(1), N, inner, "parallel", "parallel", work=const(1000))
    steps = Loop(
        "s",
        const(0),
        M,
        block(Store("F", (const(2),), number(s)), Store("R", (), number(s * 100)), first, second),
    )
    run = load(kernel(Allocate(("F",), Allocate(("R",), steps)), frame, scalar), target)
    launches, out = Launches(), np.zeros(9)
    assert run({"X": out, "O": out}, {"N": 9, "M": 4}, 3, launches) == 0
    want = np.full(9, sum(s + 100 * s for s in range(4)), float)
    want[1:] += sum(10 * s for s in range(4))
    np.testing.assert_array_equal(out, want)
    assert launches.tasks == [3] * 8


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threads", [1, 4])
def test_arenas(threads: int, target: str) -> None:
    """A shared buffer from before the parallel loop, two private ones, siblings reusing space."""
    i, k = var("i"), var("k")
    shared = Buffer("S", F64, (N,), space="arena")
    private = [Buffer(n, t, (N,), space="arena") for n, t in (("P", F64), ("Q", DType.INT8))]
    later = Buffer("L", F64, (N, const(2)), space="arena")
    fill = Loop("k", const(0), N, Store("S", (k,), plus(Read("X", (k,), F64), number(const(1)))))
    k1, k2, k3 = var("k1"), var("k2"), var("k3")
    own = block(
        Loop("k1", const(0), N, Store("P", (k1,), plus(Read("S", (k1,), F64), number(i)))),
        Loop("k2", const(0), N, Store("Q", (k2,), Cast(IndexValue(mod(k2, 5), I64), DType.INT8))),
        Store("O", (i,), number(const(0))),
        Loop(
            "k3",
            const(0),
            N,
            Update(
                "O",
                (i,),
                "add",
                Binary("mul", Read("P", (k3,), F64), Cast(Read("Q", (k3,), DType.INT8), F64), F64),
            ),
        ),
    )
    rows = Loop(
        "i",
        const(0),
        N,
        Allocate(("P",), Allocate(("Q",), own)),
        "parallel",
        "parallel",
        work=N * N,
    )
    h, g = var("h"), var("g")
    again = Allocate(
        ("L",),
        block(
            Loop("h", const(0), N, Store("L", (h, const(1)), Read("O", (h,), F64))),
            Loop("g", const(0), N, Store("O", (g,), Read("L", (g, const(1)), F64))),
        ),
    )
    body = block(Allocate(("S",), block(fill, rows)), again)
    run = load(kernel(body, shared, *private, later), target)
    for n in (0, 1, 7, 64):
        x, out, launches = np.arange(n) + 0.25, np.zeros(n), Launches(threaded=True)
        assert run({"X": x, "O": out}, {"N": n, "M": 0}, threads, launches) == 0
        at = np.arange(n)
        want = ((x + 1)[None, :] + at[:, None]) @ (at % 5)
        np.testing.assert_array_equal(out, want)
    assert np.any(launches.scratch != 0xFF, axis=1).all()  # no task in that of another
    sizes = {"N": 9, "M": 0}
    assert evaluate(run.generated.shared_bytes, sizes) == 192  # the larger of 128 and 192
    assert evaluate(run.generated.private_bytes, sizes) == 128 + 64 + APART


@pytest.mark.parametrize("target", TARGETS)
def test_empty_kernels(target: str) -> None:
    body = Loop(
        "i",
        const(0),
        N,
        Store("O", (I,), Read("X", (I,), F64)),
    )
    x, out = np.arange(5.0), np.zeros(5)
    assert load(kernel(body), target)({"X": x, "O": out}, {"N": 5, "M": 0}) == 0
    np.testing.assert_array_equal(out, x)
    assert load(kernel(block()), target)({"X": x, "O": out}, {"N": 5, "M": 0}) == 0


@pytest.mark.parametrize("target", TARGETS)
def test_ragged_unrolled_loop(target: str) -> None:
    at = 3 * var("t") + var("u")
    body = Loop(
        "t",
        const(0),
        ceildiv(N, 3),
        unrolled("u", 3, Store("O", (at,), Read("X", (at,), F64)), N - 3 * var("t")),
    )
    for n in (0, 1, 3, 7):
        x: Any = np.arange(n) + 1.0
        out = np.zeros(n)
        assert load(kernel(body), target)({"X": x, "O": out}, {"N": n, "M": 0}) == 0
        np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("target", TARGETS)
def test_invariant_loads_do_not_run_before_they_must(target: str) -> None:
    """G[0] is read in an inner loop, or a branch, that may not run: then G may be empty."""
    g = Buffer("G", F64, (M,))
    j = Loop("j", const(0), M, Update("O", (I,), "add", Read("G", (const(0),), F64)))
    some = Branch(ge(I, N - M), Update("O", (I,), "add", Read("G", (const(0),), F64)))
    for inner, times in ((j, lambda m: m), (some, lambda m: (np.arange(6) >= 6 - m) * 1)):
        body = Loop("i", const(0), N, inner)
        run = load(Kernel("k", ("N", "M"), ("G", "O"), (g, O), body), target)
        for m in (0, 3):
            weights = guarded(np.full(m, 2.5), "start")
            out = np.zeros(6)
            assert run({"G": weights, "O": out}, {"N": 6, "M": m}) == 0
            np.testing.assert_array_equal(out, 2.5 * np.broadcast_to(times(m), 6))


def test_invariant_values_leave_the_loop() -> None:
    """sqrt(R) / N of a register is computed once, not for every i."""
    r = Buffer("R", F64, (), space="register")
    root = Binary("div", Call("sqrt", (Read("R", (), F64),), F64), number(N), F64)
    loop = Loop("i", const(0), N, Store("O", (I,), Binary("mul", Read("X", (I,), F64), root, F64)))
    body = Allocate(("R",), block(Store("R", (), number(M)), loop))
    text = emit(kernel(body, r), AVX2, 1).ir_text
    inside = text[text.index("phi") :]
    assert "fdiv" in text and "fdiv" not in inside and "sqrt.f64(double %" not in inside
    for target in TARGETS:
        x, out = np.arange(7.0), np.zeros(7)
        assert load(kernel(body, r), target)({"X": x, "O": out}, {"N": 7, "M": 16}) == 0
        np.testing.assert_array_equal(out, x * (4 / 7))


def test_loops_that_have_an_iteration() -> None:
    """Where M >= 9 holds no code asks if j has one, and its load of G[0] is made once for all i."""
    g = Buffer("G", F64, (M,))
    add = Update("O", (I,), "add", Read("G", (const(0),), F64))
    loop = Loop("i", const(0), N, Loop("j", const(0), floordiv(M - 1, 8), add))
    body = Branch(ge(M, 9), loop)
    k = Kernel("k", ("N", "M"), ("G", "O"), (g, O), body)
    text = emit(k, AVX2, 1).ir_text
    asked = "icmp slt i64 0, %"
    assert text.count(asked) == 1 and emit(replace(k, body=loop), AVX2, 1).ir_text.count(asked) == 2
    assert "load double, ptr %p0" in text[: text.index("phi")]
    for target in TARGETS:
        run = load(k, target)
        for m, times in ((8, 0), (9, 1), (17, 2)):
            out = np.zeros(6)
            assert run({"G": guarded(np.full(m, 2.5), "start"), "O": out}, {"N": 6, "M": m}) == 0
            np.testing.assert_array_equal(out, 2.5 * times)


@pytest.mark.parametrize("target", TARGETS)
def test_written_values_stay_in_the_loop(target: str) -> None:
    """R doubles in every outer iteration; what the inner loop adds follows."""
    r = Buffer("R", F64, (), space="register")
    j = Loop("j", const(0), M, Update("O", (I,), "add", plus(Read("R", (), F64), number(const(1)))))
    double = Update("R", (), "mul", number(const(2)))
    loop = Loop("i", const(0), N, block(j, double))
    body = Allocate(("R",), block(Store("R", (), number(const(1))), loop))
    out = np.zeros(6)
    assert load(kernel(body, r), target)({"X": out, "O": out}, {"N": 6, "M": 3}) == 0
    np.testing.assert_array_equal(out, 3 * (2.0 ** np.arange(6) + 1))
