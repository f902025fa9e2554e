# SPDX-License-Identifier: Apache-2.0
"""Estimated times: instructions as they are emitted, counted over sizes."""

from __future__ import annotations

import pytest

from tcsym.frontend.program import Call
from tcsym.index.expr import floordiv, ge, index, minimum, var
from tcsym.index.values import evaluate
from tcsym.ir.bounds import trip_bound
from tcsym.ir.loops import Block, Branch, Loop, Node
from tcsym.schedule.analysis.cost import Costs
from tcsym.target.machine import Machine
from tcsym.types import DType
from tests.schedule.naive import buf, con, kernel, op, par, rd, st, up, v
from tests.schedule.targets import AVX2, SCALAR

N, I, L, R = v("N i l r")  # noqa: E741


def of(body: Node, target: Machine = AVX2, n: int = 1000) -> int:
    """Sixteenths of a cycle for one execution of `body`, inside a loop i."""
    loop = par("i", "N", body)
    k = kernel("k", "N", [buf(x, "N") for x in "XYO"] + [buf("S", ())], loop)
    return evaluate(Costs.of(k, target).of_iteration((loop,), frozenset(k.sizes)), {"N": n})


def lanes(body: Node, count: int = 8) -> Loop:
    return Loop("l", index(0), index(count), body, "vector", "parallel")


def copies(body: Node, count: int) -> Loop:
    return Loop("r", index(0), index(count), body, "unrolled", "parallel")


def test_a_vector_costs_what_a_scalar_costs() -> None:
    value = op("add", rd("X", 8 * I + L), rd("Y", 8 * I + L))
    vector = of(lanes(st("O", (8 * I + L,), value)))
    assert vector == of(st("O", (I,), op("add", rd("X", I), rd("Y", I))))
    assert of(lanes(st("O", (8 * I + L,), value)), SCALAR) == 8 * vector
    assert of(lanes(st("O", (16 * I + L,), rd("X", 16 * I + L)), 16)) > vector


def test_lanes_far_apart_cost_more() -> None:
    near, by_two, far = (of(lanes(st("O", (L,), rd("X", n * L)))) for n in (1, 2, 100))
    assert near < by_two < far


def test_what_copies_share_is_counted_once() -> None:
    shared = of(copies(st("O", (R,), rd("X", I)), 6))
    own = of(copies(st("O", (R,), rd("X", R)), 6))
    assert own - shared == 5 * (of(st("O", (I,), rd("X", I))) - of(st("O", (I,), con(1.0))))


def test_a_value_that_occurs_twice_is_counted_once() -> None:
    x = op("sub", rd("X", I), rd("Y", I))
    assert of(st("O", (I,), op("mul", x, x))) == of(st("O", (I,), op("mul", x, con(2.0))))


def test_what_does_not_change_in_a_loop_is_computed_before_it() -> None:
    exponential = Call("exp", (rd("Y", I),), DType.FLOAT32)
    row = par("j", "N", st("O", (var("j"),), op("mul", rd("X", var("j")), exponential)))
    assert of(row, n=1000) < 1000 * of(st("O", (I,), exponential))


@pytest.mark.parametrize("name", ["fabs", "sqrt", "exp", "log", "erfinv", "lgamma"])
def test_functions_have_weights_of_their_own(name: str) -> None:
    order = ["fabs", "sqrt", "exp", "log", "erfinv", "lgamma"]
    costs = [of(st("O", (I,), Call(f, (rd("X", I),), DType.FLOAT32))) for f in order]
    assert costs == sorted(costs) and costs.count(costs[order.index(name)]) == 1


def test_versions_cost_as_much_as_the_dearest() -> None:
    cheap, dear = st("O", (I,), con(1.0)), st("O", (I,), op("div", rd("X", I), rd("Y", I)))
    assert of(Branch(ge(N, 9), cheap, dear)) == of(Branch(ge(N, 9), dear, cheap)) == of(dear)


def test_trips_of_what_remains_are_a_number() -> None:
    """Vectors, then single registers, then lanes: the differences cancel."""
    rest = Loop("i", 4 * floordiv(N, 32), floordiv(N + 7, 8), Block(()))
    assert trip_bound(rest) == index(4)
    part = minimum(16 * var("p") + 16, N) - 16 * var("p")
    assert trip_bound(Loop("i", index(0), part, Block(()))) == minimum(index(16), N - 16 * var("p"))
    assert trip_bound(Loop("i", index(0), N, Block(()))) == N


def test_sums_wait_for_each_other() -> None:
    one = up("S", (), "add", rd("X", I))
    two = copies(up("O", (R,), "add", rd("X", I)), 2)
    assert of(par("j", "N", one)) > of(par("j", "N", two)) // 2
