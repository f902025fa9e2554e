# SPDX-License-Identifier: Apache-2.0
"""A guard around a product: where it goes, and that it never lets in what it keeps out."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.frontend.program import Binary, Read, Select
from tcsym.index.expr import eq, var
from tcsym.ir.loops import Branch, Kernel, Node, Update
from tcsym.ir.traverse import subvalues, walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.chosen import Choice, Taken
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.plan import Staged
from tcsym.schedule.split.guarded_products import guard_factors
from tests.schedule.targets import AVX2

GUARDED = """def f(float(C,T) I, float({weights}) F) -> (float(O,T) Y) {{
  Y(o,t) {op} t+k >= 2 && t+k < T+2 ? I(c,t+k-2) * F({at}) : {other} where o in 0:O, t in 0:T{range}
}}"""
DENSE = GUARDED.format(weights="O,C,K", op="+=!", at="o,c,k", other="0.0", range="")
REFUSED = {
    "other arm": GUARDED.format(weights="O,C,K", op="+=!", at="o,c,k", other="1.0", range=""),
    "product": GUARDED.format(weights="O,C,K", op="*=!", at="o,c,k", other="0.0", range=""),
    "moving weight": GUARDED.format(
        weights="O,T", op="+=!", at="o,t+k-2", other="0.0", range=", k in 0:5"
    ),
}


def naive(source: str) -> Kernel:
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


def guard(source: str) -> Kernel:
    kernel = naive(source)
    return guard_factors(kernel, kernel.body.variable)  # type: ignore[union-attr]


def test_each_factor_gets_the_guard_and_the_one_at_hand_no_branch() -> None:
    (term,) = [x.value for x, _ in walk(guard(DENSE).body) if isinstance(x, Update)]
    assert isinstance(term, Binary) and term.op == "mul"
    image, weight = term.left, term.right
    assert isinstance(image, Select) and isinstance(weight, Select)
    assert image.condition == weight.condition
    assert isinstance(image.then, Read) and image.then.tensor == "I" and not image.eager
    assert isinstance(weight.then, Read) and weight.then.tensor == "F" and weight.eager


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_guarded_product_of_a_sum_stays(name: str) -> None:
    assert guard(REFUSED[name]) == naive(REFUSED[name])


def selects(node: Node) -> list[Select]:
    return [
        v
        for x, _ in walk(node)
        if isinstance(x, Update)
        for v in subvalues(x.value)
        if isinstance(v, Select)
    ]


def test_the_image_is_padded_and_the_product_runs_in_a_register_tile() -> None:
    """Weights that the kernel makes are not asked whether they are finite."""
    made = DENSE.replace("  Y(", "  G(o,c,k) = F(o,c,k) * 2\n  Y(").replace("* F(", "* G(")
    mapped = map_cpu(naive(made), AVX2, Options())
    choices = [x for x in mapped.choices if isinstance(x, Choice)]
    plans = [x.plan for c in choices for x in c.versions if isinstance(x, Taken)]
    assert Staged("a padded copy of guarded reads") in plans
    found = selects(mapped.kernel.body)
    assert found and all(v.eager for v in found)


def test_weights_that_are_finite_need_no_guard() -> None:
    kernel = map_cpu(naive(DENSE), AVX2, Options()).kernel
    assert kernel.buffer("F").finite == "F.finite"
    branches = [x for x, _ in walk(kernel.body) if isinstance(x, Branch)]
    (version,) = [x for x in branches if x.condition == eq(var("F.finite"), 1)]
    assert not selects(version.then) and version.orelse is not None and selects(version.orelse)
