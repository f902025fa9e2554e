# SPDX-License-Identifier: Apache-2.0
"""Scans along memory: rows outside, steps inside, several rows at once with their state kept."""

from __future__ import annotations

import pytest

from tcsym.frontend.program import Expr
from tcsym.index.expr import Index, IsZero
from tcsym.ir.loops import Branch, Kernel, Loop
from tcsym.ir.traverse import loads, walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.analysis.loops import statements_in
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.order.interchange_scans import interchange_scans
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, seq, st, v
from tests.schedule.targets import TARGETS

B, C, T = v("b c t")


def scan(back: int = 1, shift: int = 0, order: str = "rows", factor: Expr | None = None) -> Kernel:
    """Y[b, t] = X[b, t] + factor * Y[b - shift, t - back], or with `b` last in memory."""

    def at(b: Index, t: Index) -> tuple[Index, Index]:
        return (b, t) if order == "rows" else (t, b)

    def step(b: Index) -> tuple[Index, Index]:
        return at(b - shift, T - back)

    value = op("add", rd("X", *at(C, T)), op("mul", factor or con(2.0), rd("Y", *step(C))))
    first = par("b", "B", st("Y", at(B, T), rd("X", *at(B, T))), lower=shift)
    rest = par("c", "B", st("Y", at(C, T), value), lower=shift)
    # the condition holds in the first `back` steps
    early = IsZero(T) if back == 1 else IsZero(T * (T - 1))
    shape = "B T" if order == "rows" else "T B"
    body = seq("t", "T", Branch(early, first, rest))
    buffers = [buf("X", shape), buf("Y", shape), *([buf("A", "B")] if factor else [])]
    return kernel("scan", "B T", buffers, body)


def two_states() -> Kernel:
    """Fibonacci-like: Z reads the state of Y of this step, Y that of both of the last one."""
    y = op("add", rd("Y", B, T), op("add", rd("Z", B, T), rd("X", B, T)))
    z = op("sub", rd("Y", B, T + 1), rd("Z", B, T))
    body = seq("t", "T", par("b", "B", st("Y", (B, T + 1), y), st("Z", (B, T + 1), z)))
    buffers = [buf("X", "B T"), *(buf(n, (v("B")[0], v("T")[0] + 1)) for n in "YZ")]
    return kernel("two", "B T", buffers, body)


def backwards(order: str = "rows") -> Kernel:
    """Y[b, N - 1 - t] += Y[b, N - t], or with rows from last to first side by side in memory."""
    rows, steps = v("B N")
    if order == "rows":
        at, last, shape = (B, steps - T - 1), (B, steps - T), (rows, steps + 1)
    else:
        at, last, shape = (T + 1, rows - B - 1), (T, rows - B - 1), (steps + 1, rows)
    step = par("b", "B", st("Y", at, op("add", rd("Y", *at), rd("Y", *last))))
    return kernel("backwards", "B N", [buf("Y", shape)], seq("t", "N", step))


def interchanged(k: Kernel) -> bool:
    out = interchange_scans(k, Names.of(k), False)
    verify(out)
    return isinstance(out.body, Loop) and out.body.order == "parallel"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [scan, lambda: scan(2), lambda: scan(order="steps"), two_states])
def test_results_are_kept(make, target: str) -> None:
    k = make()
    out = map_cpu(k, TARGETS[target], Options()).kernel
    for b, t in [(0, 3), (3, 0), (1, 1), (7, 2), (8, 3), (17, 6)]:
        assert_same(k, out, {"B": b, "T": t})


def test_rows_go_outside_where_steps_run_along_memory() -> None:
    assert interchanged(scan()) and interchanged(scan(2)) and interchanged(two_states())
    assert not interchanged(scan(order="steps"))


@pytest.mark.parametrize("target", TARGETS)
def test_memory_may_run_backwards(target: str) -> None:
    assert interchanged(backwards()) and not interchanged(backwards("steps"))
    for k in (backwards(), backwards("steps")):
        out = map_cpu(k, TARGETS[target], Options()).kernel
        for b, n in [(0, 3), (3, 0), (1, 1), (17, 6)]:
            assert_same(k, out, {"B": b, "N": n})


def test_what_steps_share_may_lie_side_by_side() -> None:
    k = scan(factor=rd("A", C))
    assert interchanged(k)
    out = map_cpu(k, TARGETS["avx2"], Options()).kernel
    assert_same(k, out, {"B": 9, "T": 4})


def three_ranks() -> Kernel:
    """Y[t, b, c] = X[t, b, c] + Y[t - 1, b, c] on what came before."""
    value = op("add", rd("X", T, B, C), rd("Y", T, B, C))
    body = seq("t", "T", par("b", "B", par("c", "C", st("Y", (T + 1, B, C), value))))
    buffers = [buf("X", "T B C"), buf("Y", (v("T")[0] + 1, *v("B C")))]
    return kernel("ranks", "B C T", buffers, body)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 31, 32, 33, 2047, 2048, 2049, 2060])
def test_rows_side_by_side_run_in_vectors_if_few_or_else_in_blocks(rows: int, target: str) -> None:
    k = scan(order="steps")
    out = map_cpu(k, TARGETS[target], Options()).kernel
    *few, blocks = [x for x, around in walk(out.body) if isinstance(x, Loop) and not around]
    assert few and all(x.kind == "parallel" for x in (*few, blocks))
    assert isinstance(blocks.body, Loop) and blocks.body.order == "sequential"
    assert_same(k, out, {"B": rows, "T": 3})


def test_few_rows_side_by_side_keep_their_state_in_a_vector() -> None:
    out = map_cpu(scan(order="steps"), TARGETS["avx2"], Options()).kernel
    few = next(x for x, _ in walk(out.body) if isinstance(x, Branch))
    steps = [x for x, _ in walk(few.then) if isinstance(x, Loop) and x.order == "sequential"]
    kept = {b.name for b in out.buffers if b.space == "register"}
    inside = list[set[str]]()
    for loop in steps[1::2]:
        read = {r.tensor for x, _ in statements_in(loop) for r in loads(x.value)}
        assert read - kept == {"X"} and len(read & kept) == 1
        inside.append({x.kind for x, _ in walk(loop.body) if isinstance(x, Loop)})
    assert {"vector"} in inside and all(x <= {"vector", "unrolled"} for x in inside)


@pytest.mark.parametrize("target", TARGETS)
def test_blocks_of_planes(target: str) -> None:
    k = three_ranks()
    out = interchange_scans(k, Names.of(k))
    verify(out)
    assert isinstance(out.body, Loop) and out.body.order == "parallel"
    out = map_cpu(k, TARGETS[target], Options()).kernel
    for b, c in [(0, 3), (3, 0), (1, 1), (3, 1400), (1400, 3), (2, 2100)]:
        assert_same(k, out, {"B": b, "C": c, "T": 2})


def test_blocks_are_for_threads() -> None:
    k = scan(order="steps")
    out = map_cpu(k, TARGETS["avx2"], Options(parallelize=False)).kernel
    few = next(x for x, _ in walk(out.body) if isinstance(x, Branch))
    assert isinstance(few.orelse, Loop) and few.orelse.order == "sequential"


def test_rows_that_read_other_rows_stay_inside() -> None:
    assert not interchanged(scan(shift=1))
    k = scan(shift=1)
    out = map_cpu(k, TARGETS["avx2"], Options()).kernel
    assert_same(k, out, {"B": 9, "T": 4})


def test_rows_that_move_with_the_step_stay_inside() -> None:
    x = st("Y", (B, T), rd("X", B, T))
    k = kernel("s", "B T", [buf("X", "B T"), buf("Y", "B T")], seq("t", "T", par("b", T, x)))
    assert not interchanged(k)


@pytest.mark.parametrize(("make", "states"), [(scan, 1), (two_states, 2), (lambda: scan(2), 0)])
def test_only_the_first_step_reads_the_last_one_from_memory(make, states: int) -> None:
    k = map_cpu(make(), TARGETS["avx2"], Options()).kernel
    kept = {b.name for b in k.buffers if b.space == "register"}
    memory = {b.name for b in k.buffers if b.space == "argument"}
    steps = [x for x, _ in walk(k.body) if isinstance(x, Loop) and x.order == "sequential"]
    rest = steps[1::2] if states else steps
    assert rest and len(kept) == len(rest) * states  # of each version its own
    for loop in rest:
        read = {r.tensor for x, _ in statements_in(loop) for r in loads(x.value)}
        assert read & memory == ({"X"} if states else {"X", "Y"})
