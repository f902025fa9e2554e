# SPDX-License-Identifier: Apache-2.0
"""Which nests may begin a step before all of the nests in front of them have ended."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.options import Options
from tcsym.polyhedral.tree import tree_loops
from tcsym.proved import schedule_program

HEAD = "def f(float(T,B,H) X, float(H,H) U, float(H,H) R) -> (float(T,B,H) Z) {\n"
FIRST = """  S(0,b,h) = 0.0 where b in 0:B, h in 0:H
  for t in T { A(b,h) +=! S(t,b,k) * U(h,k)  S(t+1,b,h) = tanh(A(b,h) + X(t,b,h)) }
"""
SECOND = """  D(0,b,h) = 0.0 where b in 0:B, h in 0:H
  for t in T {
    G(b,h) +=! D(t,b,k) * R(h,k)
    D(t+1,b,h) = tanh(G(b,h) + {needs})
    Z(t,b,h) = D(t+1,b,h)
  }
}"""
PRODUCT = "  P(t,b,h) +=! S(t+1,b,k) * R(h,k) where t in 0:T\n"


def stacked(needs: str, between: str = "") -> str:
    return HEAD + FIRST + between + SECOND.replace("{needs}", needs)


TEXTS = {  # and how many loops are of one pipeline
    "the same step": (stacked("S(t+1,b,h)"), 2),
    "the step and those before": (stacked("S(t+1,b,h) - S(t,b,h)"), 2),
    "a product of the same step": (stacked("P(t,b,h)", PRODUCT), 3),
    "nothing of the other": (stacked("X(t,b,h)"), 2),
    "the last step": (stacked("S(T,b,h)"), 0),
    "the other way round": (stacked("S(T-t,b,h)"), 0),
    "a sum of all steps": (stacked("m(b,h)", "  m(b,h) +=! S(t,b,h) where t in 0:T\n"), 0),
    "a product, the other way round": (stacked("P(T-1-t,b,h)", PRODUCT), 0),
}


@pytest.mark.parametrize("name", TEXTS)
def test_steps_of_a_pipeline(name: str) -> None:
    text, count = TEXTS[name]
    tree = schedule_program(analyse(text)["f"], Options(), {}).tree
    loops = [x for x in tree_loops(tree) if x.pipeline]
    assert len(loops) == count, tree
    assert str(tree).count("(steps of pipeline 1)") == count


def test_the_range_is_that_of_the_loops_in_order() -> None:
    """A nest that stands before them has another one, and is of no pipeline."""
    text = stacked("S(t+1,b,h)").replace("for t in T", "for t in 1:T", 2)
    text = text.replace("S(0,", "S(1,").replace("D(0,", "D(1,").replace("Z)", "Z)", 1)
    text = text.replace("-> (float(T,B,H) Z)", "-> (float(T,B,H) Z)").replace(
        "  D(1,", "  Z(0,b,h) = 0.0 where b in 0:B, h in 0:H\n  D(1,"
    )
    tree = schedule_program(analyse(text)["f"], Options(), {}).tree
    found = [x for x in tree_loops(tree) if x.pipeline]
    assert [x.order for x in found] == ["sequential", "sequential"], tree
