# SPDX-License-Identifier: Apache-2.0
"""What kernels choose at launch: the versions of least cost, at any sizes, again and again."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tcsym.frontend.program import Const
from tcsym.index.expr import Index, choose, eq, floordiv, ge, maximum, minimum, mod, var
from tcsym.index.straight_line import StraightLine, Writer, Written, of_multiples
from tcsym.ir.launched import chosen, launched
from tcsym.ir.loops import THREADS, Branch, Buffer, Choice, Kernel, Loop, Node, Store, block
from tcsym.ir.text import kernel_text
from tcsym.ir.verify import InternalError, verify
from tcsym.types import DType
from tests.codegen.harness import TARGETS, const, load

N, M = var("N"), var("M")
F64 = DType.FLOAT64


def costs(*formulas: Index, **samples: Any) -> StraightLine:
    numbers = random.Random(1)
    samples = samples or {n: [numbers.randrange(1000) for _ in range(64)] for n in ("N", "M")}
    writer = Writer(samples)
    written = Written(writer, writer.variables)
    return writer.written([written.index(e) for e in formulas])


def arms(c: Choice, place: int, kind: str) -> Node:
    """Version k stores k at the place; a loop, which threads may share."""
    node: Node | None = None
    for k in reversed(range(c.versions)):
        store = Store("O", (const(place) + var(f"{c.variable}.i{k}"),), Const(float(k), F64))
        loop = Loop(f"{c.variable}.i{k}", const(0), const(1), store, kind, "parallel")  # type: ignore[arg-type]
        node = loop if node is None else Branch(eq(var(c.variable), k), loop, node)
    assert node is not None
    return node


def kernel(first: StraightLine, second: StraightLine, kind: str = "serial") -> Kernel:
    out, p, q = Buffer("O", F64, (const(2),)), Choice("plan.0", first), Choice("plan.1", second)
    body = block(arms(p, 0, kind), arms(q, 1, kind))
    return Kernel("k", ("N", "M"), ("O",), (out,), body, choices=(p, q))


EQUAL = costs(const(0), const(0))
FORMULAS = (
    100 * N,
    floordiv(N * M, 8) + 900,
    maximum(M, 7) * floordiv(N + 7, 8) + 40 * mod(N, 8) + choose(ge(M, 10 * N), M, 5),
    minimum(N, M),
    choose(eq(mod(M, 3), 0), 0, 10**6),
)


FIRST, SECOND = costs(*FORMULAS[:3]), costs(*FORMULAS[3:])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_the_least_is_taken(target: str, kind: str) -> None:
    k, numbers = kernel(FIRST, SECOND, kind), random.Random(2)
    run, found = load(k, target), set()
    some = [{"N": numbers.randrange(300), "M": numbers.randrange(2000)} for _ in range(400)]
    for sizes in [*some, *reversed(some), *some[:5] * 3]:  # more than are kept, and again
        out = np.full(2, -1.0)
        assert run({"O": out}, sizes, threads=2) == 0
        expected = chosen(k, sizes)
        assert out.tolist() == [expected["plan.0"], expected["plan.1"]], sizes
        found.add(tuple(out.tolist()))
    assert len(found) == 3 * 2


@pytest.mark.parametrize("version", range(3))
def test_any_version_may_be_asked_for(version: int) -> None:
    k = kernel(costs(*(const(int(k != version)) for k in range(3))), EQUAL)
    out = np.full(2, -1.0)
    assert load(k)({"O": out}, {"N": 3, "M": 4}) == 0
    assert out.tolist() == [version, 0]


def test_costs_may_depend_on_threads() -> None:
    writer = Writer({"N": [1, 9], THREADS: [1, 2]})
    more = writer.multiply(writer.constant(2), writer.variables[THREADS])
    k = kernel(costs(const(3), const(4)), writer.written([more, writer.constant(3)]), "parallel")
    run = load(k)
    for threads in (1, 2, 1):
        out = np.full(2, -1.0)
        run({"O": out}, {"N": 3, "M": 4}, threads=threads)
        assert out.tolist() == [0, threads - 1]
        found = chosen(k, {"N": 3, "M": 4, THREADS: threads})
        assert found == {"plan.0": 0, "plan.1": threads - 1}


def test_only_what_is_chosen_is_launched() -> None:
    k = kernel(FIRST, SECOND, "parallel")
    taken = chosen(k, {"N": 10, "M": 30})
    names = [loop.variable for loop in launched(k, {"N": 10, "M": 30})]
    assert names == [f"{v}.i{n}" for v, n in taken.items()]


def test_one_value_is_as_many() -> None:
    some = {"N": np.arange(0, 4096, 16), "M": np.arange(256)}
    rows = zip(*(x[:, 0] for x in FIRST.evaluate(some)), strict=True)
    for n, m, row in zip(some["N"], some["M"], rows, strict=True):
        assert FIRST.at({"N": n, "M": m}) == list(row)


def test_costs_of_quotients() -> None:
    by_quotient = of_multiples(FIRST, {"N": ("S", 16)})
    values = {"S": np.arange(0, 4096, 16), "M": np.arange(256)}
    found = by_quotient.evaluate(values)
    expected = FIRST.evaluate({"N": values["S"] // 16, "M": values["M"]})
    np.testing.assert_array_equal(found, expected)


def test_texts_name_choices() -> None:
    assert "  plan.0 in 0:3  costs by N, M in " in kernel_text(kernel(FIRST, SECOND))


def test_costs_are_of_what_a_launch_knows() -> None:
    k = kernel(FIRST, SECOND)
    verify(k)
    with pytest.raises(InternalError, match=r"plan\.0: nothing to choose from"):
        verify(replace(k, choices=(Choice("plan.0", StraightLine((), (), (), ())), k.choices[1])))
    with pytest.raises(InternalError, match=r"plan\.1: no launch knows X"):
        verify(replace(k, choices=(k.choices[0], Choice("plan.1", costs(var("X"), X=[1, 2])))))
