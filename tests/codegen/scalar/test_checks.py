# SPDX-License-Identifier: Apache-2.0
"""Run-time checks: ranges, unwritten elements, overflow. A failed check touches no memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import Span
from tcsym.frontend.program import Binary, Cast, Compare, Const, IndexValue, Read, Select
from tcsym.index.expr import Index, ceildiv, lt, var
from tcsym.ir.loops import Buffer, Holds, Kernel, Loop, Node, Store, Value, Verify
from tcsym.types import DType
from tests.codegen.harness import TARGETS, Launches, Loaded, const, load, vector
from tests.guarded import guarded

N, M, I = var("N"), var("M"), var("i")  # noqa: E741
F32, I32, I64 = DType.FLOAT32, DType.INT32, DType.INT64
AT = 8 * var("t") + var("l")
SPAN = Span(3, 7, 1)
X = Buffer("X", F32, (M,))
P = Buffer("P", I64, (N,))
O = Buffer("O", F32, (N,))  # noqa: E741


def both(statement: Any) -> list[Node]:
    """The statement at every point: scalar, in parallel, and in lanes."""
    lanes = vector("l", 8, statement(AT), N - 8 * var("t"))
    return [
        Loop("i", const(0), N, statement(I)),
        Loop("i", const(0), N, statement(I), "parallel", "parallel"),
        Loop("t", const(0), ceildiv(N, 8), lanes),
    ]


def compiled(body: Node, target: str, places: Buffer = P) -> Loaded:
    return load(Kernel("checks", ("N", "M"), ("X", "P", "O"), (X, places, O), body), target)


def fault(run: Loaded, code: int) -> str:
    assert code > 0
    f = run.generated.faults[code - 1]
    assert f.span == SPAN
    return f"{f.kind}: {f.message}"


def gather(at: Index) -> Read:
    return Read("X", (Read("P", (at,), I64),), F32, checked=(True,), span=SPAN)


@pytest.mark.parametrize("target", TARGETS)
def test_gathers(target: str) -> None:
    for body in both(lambda at: Store("O", (at,), gather(at))):
        run = compiled(body, target)
        n, m = 19, 6
        x, out = guarded(np.arange(m, dtype=np.float32)), guarded(np.zeros(n, np.float32))
        place = np.random.default_rng(0).integers(0, m, n)
        arrays = {"X": x, "P": place, "O": out}
        assert run(arrays, {"N": n, "M": m}, 2, Launches()) == 0
        np.testing.assert_array_equal(out, x[place])
        for bad in (-1, m, 2**62, -(2**63)):
            for position in (0, 7, 18):
                place[:] = 2
                place[position] = bad
                code = run(arrays, {"N": n, "M": m}, 2, Launches())
                assert fault(run, code) == "bounds: index out of range in `X`"
        place[:] = 0
        arrays["X"] = guarded(np.zeros(0, np.float32))
        assert fault(run, run(arrays, {"N": n, "M": 0}, 2, Launches())).startswith("bounds")
        assert run(arrays, {"N": 0, "M": 0}) == 0
        assert len(run.generated.faults) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_checks_under_guards(target: str) -> None:
    """Only executed points are checked, also by Verify and where all lanes share a subscript."""

    def guarded_read(at: Index) -> Value:
        wanted = Compare("ge", Read("P", (at,), I64), Const(0, I64))
        return Select(wanted, gather(at), Const(0.0, F32), F32)

    def shared(at: Index) -> Value:
        r = Read("X", (M + 2,), F32, checked=(True,), span=SPAN)
        return Select(Holds(lt(at, 3)), Const(1.0, F32), r, F32)

    for value in (guarded_read, shared):
        stores = both(lambda at, v=value: Store("O", (at,), v(at)))
        verifies = both(lambda at, v=value: Verify(v(at)))
        for body in stores + verifies:
            run = compiled(body, target)
            arrays = {"X": guarded(np.ones(4, np.float32)), "O": np.zeros(9, np.float32)}
            arrays["P"] = np.array([-1, 3, -9] if value is guarded_read else [0, 0, 0])
            sizes = {"N": 3, "M": 4}
            assert run(arrays, sizes) == 0
            arrays["P"] = np.array([-1, 3, -9, 4, 0])
            assert fault(run, run(arrays, {"N": 5, "M": 4})).startswith("bounds")


@pytest.mark.parametrize("target", TARGETS)
def test_unwritten_elements(target: str) -> None:
    def read(at: Index) -> Node:
        return Store("O", (at,), Read("X", (at,), F32, unwritten=lt(at, M - N), span=SPAN))

    for body in both(read):
        run = compiled(body, target)
        arrays = {"X": np.ones(20, np.float32), "P": np.zeros(1), "O": np.zeros(20, np.float32)}
        assert run(arrays, {"N": 10, "M": 10}) == 0
        text = fault(run, run(arrays, {"N": 10, "M": 20}))
        assert text.startswith("init") and "before it is written" in text


@pytest.mark.parametrize("target", TARGETS)
def test_exact_subscripts(target: str) -> None:
    """P op 2 beyond 64 bits is a size error if exact, and wraps if not."""

    def statement(at: Index, exact: bool, op: Any = "mul") -> Node:
        p = Read("P", (at,), I64)
        two = Cast(IndexValue(N - 17, I64), I64)
        value = Binary(op, p, two, I64, exact, SPAN)
        return Store("O", (at,), Cast(value, F32))

    top = 2**63
    beyond = {"mul": 2**62, "add": top - 2, "sub": -top + 1}
    for op in beyond:
        for exact in (True, False):
            for body in both(lambda at, e=exact, o=op: statement(at, e, o)):
                run = compiled(body, target)
                place = np.zeros(19, np.int64)
                arrays = {"X": place, "P": place, "O": np.zeros(19, np.float32)}
                assert run(arrays, {"N": 19, "M": 0}) == 0
                place[4] = beyond[op]
                code = run(arrays, {"N": 19, "M": 0})
                assert (code != 0) == exact
                if exact:
                    assert fault(run, code).startswith("size")


@pytest.mark.parametrize("target", TARGETS)
def test_exact_products_of_short_integers(target: str) -> None:
    """int32 elements times a size: a plain product unless the size is a long one."""

    def statement(at: Index) -> Node:
        p = Cast(Read("P", (at,), I32), I64)
        value = Binary("mul", p, IndexValue(M, I64), I64, True, SPAN)
        return Store("O", (at,), Cast(value, F32))

    for body in both(statement):
        run = compiled(body, target, Buffer("P", I32, (N,)))
        place = np.arange(-9, 10, dtype=np.int32)
        arrays = {"X": place, "P": place, "O": np.zeros(19, np.float32)}
        for m in (0, 7, -(2**31), 2**31 - 1, 2**31, 2**40, -(2**40)):
            assert run(arrays, {"N": 19, "M": m}) == 0
            assert np.array_equal(arrays["O"], (place.astype(np.int64) * m).astype(np.float32))
        place[4] = -(2**31)
        assert run(arrays, {"N": 19, "M": -(2**31)}) == 0
        assert fault(run, run(arrays, {"N": 19, "M": 2**40})).startswith("size")


GATHER = """def f(float(M) X, {dtype}(N) I) -> (Y) {{ Y(i) = X(I(i) + 1) + X(2*I(i)) }}"""


@pytest.mark.parametrize(("dtype", "checks"), [("int32", 0), ("uint8", 0), ("int64", 1)])
def test_short_integers_in_subscripts_cannot_overflow(dtype: str, checks: int) -> None:
    text = tcsym.define(GATHER.format(dtype=dtype), target="cpu:avx2").explain("llvm")
    found = set(re.findall(r"call \{.*@llvm\.(\w+)\.with\.overflow\.(\w+)", text))
    assert (("sadd", "v8i64") in found) == bool(checks)
    assert bool(found) == bool(checks)


@pytest.mark.parametrize("target", TARGETS)
def test_exact_division(target: str) -> None:
    def statement(at: Index) -> Node:
        value = Binary("div", Read("P", (at,), I64), IndexValue(M, I64), I64, True, SPAN)
        return Store("O", (at,), Cast(value, F32))

    for body in both(statement):
        run = compiled(body, target)
        place = np.full(9, -(2**63), np.int64)
        arrays = {"X": place, "P": place, "O": np.zeros(9, np.float32)}
        assert run(arrays, {"N": 9, "M": 0}) == 0
        assert not arrays["O"].any()
        assert run(arrays, {"N": 9, "M": 1}) == 0
        assert fault(run, run(arrays, {"N": 9, "M": -1})).startswith("size")
