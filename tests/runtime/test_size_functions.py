# SPDX-License-Identifier: Apache-2.0
"""Generated Python for conditions and extents against `index.evaluate` and `index.holds`."""

from __future__ import annotations

from operator import add, mul, sub
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tcsym.index.expr import (
    Condition,
    Index,
    all_of,
    any_of,
    choose,
    eq,
    floordiv,
    ge,
    index,
    maximum,
    minimum,
    mod,
    negate,
    var,
)
from tcsym.index.values import evaluate, holds
from tcsym.runtime.size_functions import first_failing, shapes_of

NAMES = ("N", "lambda", "_x")
LEAVES = st.sampled_from(NAMES).map(var) | st.integers(-9, 9).map(index)


def wider(inner: Any) -> Any:
    operations = [add, sub, mul, floordiv, mod, minimum, maximum]
    plain = st.tuples(st.sampled_from(operations), inner, inner).map(lambda t: t[0](t[1], t[2]))
    chosen = st.tuples(inner, inner, inner, inner).map(lambda t: choose(ge(t[0], t[1]), t[2], t[3]))
    return plain | chosen


INDICES = st.recursive(LEAVES, wider, max_leaves=12)
COMPARISONS = st.tuples(INDICES, INDICES).flatmap(
    lambda p: st.sampled_from([ge(*p), eq(*p), negate(eq(*p))])
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.lists(inner, max_size=3).flatmap(
        lambda cs: st.sampled_from([all_of(cs), any_of(cs)])
    ),
    max_leaves=6,
)
VALUES = st.tuples(*[st.integers(0, 2**63 - 1) | st.integers(0, 9)] * len(NAMES))


@given(st.lists(st.lists(INDICES, max_size=3), max_size=3), VALUES)
def test_shapes(shapes: list[list[Index]], values: tuple[int, ...]) -> None:
    named = dict(zip(NAMES, values))
    want = tuple(tuple(evaluate(e, named) for e in shape) for shape in shapes)
    assert shapes_of(shapes, NAMES)(*values) == want


@given(st.lists(CONDITIONS, max_size=4), VALUES)
def test_first_failing(conditions: list[Condition], values: tuple[int, ...]) -> None:
    named = dict(zip(NAMES, values))
    want = next((k for k, c in enumerate(conditions) if not holds(c, named)), -1)
    assert first_failing(conditions, NAMES)(*values) == want


def test_deep_expressions() -> None:
    e = var("N")
    for k in range(60):
        e = minimum(floordiv(e + k, 2) * 3, var("_x") + k)
    assert shapes_of([[e]], NAMES)(7, 0, 9) == ((evaluate(e, {"N": 7, "lambda": 0, "_x": 9}),),)
