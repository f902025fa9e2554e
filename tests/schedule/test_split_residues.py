# SPDX-License-Identifier: Apache-2.0
"""Guards on residues: which conditions are such, and the loops that take their place."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.frontend.program import Read
from tcsym.index.expr import floordiv, index, var
from tcsym.ir.bounds import eliminate
from tcsym.ir.loops import Block, Kernel, Loop, Update
from tcsym.ir.traverse import loads, walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.split.residues import split_residues

TEXT = """def f(float(W) I, float(K) F) -> (float(3*W) O) {{
  O(x) +=! {0} ? I(min(x/3, W-1)) * F(k) : 0 where k in 0:K
}}"""


def split(guard: str) -> Kernel:
    kernel = schedule_program(analyse(TEXT.format(guard))["f"], Options(), {}).kernel
    return split_residues(kernel, Names.of(kernel))


def loops(kernel: Kernel) -> dict[str, Loop]:
    return {x.variable: x for x, _ in walk(kernel.body) if isinstance(x, Loop)}


def weight(kernel: Kernel) -> Read:
    (update,) = [x for x, _ in walk(kernel.body) if isinstance(x, Update)]
    (read,) = [r for r in loads(update.value) if r.tensor == "F"]
    return read


@pytest.mark.parametrize(
    "guard",
    [
        "(x-k) % 3 == 0",
        "(k-x)/3*3 == k-x",
        "(x-k) % 3 < 1",
        "!((x-k) % 3 >= 1)",
        "(2*k+x) % 3 == 0",
    ],
)
def test_every_third_weight_is_read_in_each_class(guard: str) -> None:
    kernel = split(guard)
    found = loops(kernel)
    assert {v: x.order for v, x in found.items()} == {
        "x.1": "sequential",
        "x.2": "parallel",
        "k.1": "reduction",
    }
    assert found["x.1"].upper.as_int() == 3
    assert weight(kernel).subscripts == (var("k.1") * 3 + var("x.1"),)
    assert "%" not in str(kernel)


def test_the_remainder_may_be_a_formula_in_sizes() -> None:
    (at,) = weight(split("(x-k+W) % 3 == 0")).subscripts
    assert at.variables() == {"k.1", "x.1", "W"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "guard",
    [
        "(x-k) % 3 != 0",  # two residues of three
        "(x-k) % 64 == 0",  # as many classes as there are points
        "(x-3*k) % 6 == 0",  # some points have no weight, others two
        "x % 3 == 0",  # nothing to leave out of the sum
        "F(k) > 0",
    ],
)
def test_other_guards_stay(guard: str) -> None:
    kernel = split(guard)
    assert set(loops(kernel)) == {"x", "k"}


def test_what_is_added_at_all_other_points_stays() -> None:
    text = TEXT.replace("{0} ? I(min(x/3, W-1)) * F(k) : 0", "(x-k) % 3 == 0 ? 0 : F(k)")
    kernel = schedule_program(analyse(text.format())["f"], Options(), {}).kernel
    assert split_residues(kernel, Names.of(kernel)) == kernel


def test_a_floor_and_what_it_is_of_have_bounds_together() -> None:
    loop = Loop("k", var("A"), var("B"), Block(()))
    e = floordiv(var("k"), 4) * 4 - var("k")
    assert eliminate(e, (loop,), True) == index(0)
    assert eliminate(e, (loop,), False) == index(-3)
