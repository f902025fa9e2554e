# SPDX-License-Identifier: Apache-2.0
"""Loops in order beside each other in waves of tiles of their steps, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.index.expr import Condition
from tcsym.index.values import evaluate, holds
from tcsym.ir.loops import THREADS
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.chosen import Choice, Taken
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.order_plans import Waves
from tests.targets import target_of

LAYER = """  for t in T {
    if t == 0 { {to}(t,b,h) = tanh({in}(t,b,h)) } else {
      {to}_a(b,h) +=! {to}(t-1,b,k) * {by}(h,k)
      {to}(t,b,h) = tanh(0.3 * {to}_a(b,h) + {in}(t,b,h))
    }
  }
"""
HEAD = "def f(float(T,B,H) X, float(H,H) U, float(H,H) R) -> "


def layer(to: str, source: str, by: str) -> str:
    return LAYER.replace("{to}", to).replace("{in}", source).replace("{by}", by)


def product(to: str, source: str, by: str) -> str:
    return f"  {to}(t,b,h) +=! {source}(t,b,i) * {by}(h,i)\n"


TEXTS = {
    "two layers": HEAD + "(Z) {\n" + layer("Y", "X", "U") + layer("Z", "Y", "R") + "}",
    "products between": HEAD
    + "(Z) {\n"
    + product("P", "X", "R")
    + layer("Y", "P", "U")
    + product("Q", "Y", "U")
    + layer("Z", "Q", "R")
    + "}",
    "three, of which one feeds two": HEAD
    + "(Z, V) {\n"
    + layer("Y", "X", "U")
    + layer("Z", "Y", "R")
    + layer("V", "Y", "U")
    + "}",
    "residual, and what all steps sum to": HEAD
    + "(Z, O) {\n"
    + layer("Y", "X", "U")
    + "  m(t,b) +=! Y(t,b,h)\n  N(t,b,h) = Y(t,b,h) - m(t,b) + X(t,b,h)\n  O(b,h) +=! Y(t,b,h)\n"
    + layer("Z", "N", "R")
    + "}",
    "both directions": HEAD
    + "(Y, Z) {\n"
    + layer("Y", "X", "U")
    + layer("Z", "X", "R").replace("(t,", "(T-1-t,").replace("(t-1,", "(T-t,")
    + "}",
    "updated behind its reader": HEAD.replace("float(T,B,H) X", "inout float(T,B,H) X")
    + "(Z) {\n"
    + layer("Z", "X", "R")
    + "  for t in T { if t >= 1 {\n"
    + "    A(b,h) +=! X(t-1,b,k) * U(h,k)\n    X(t,b,h) = tanh(0.3 * A(b,h) + X(t,b,h))\n  } }\n}",
    "states outside": """def f(float(T,B,H) X, float(H,H) U, float(H,H) R) -> (float(T,B,H) Z) {
  s(b,h) = 0.0 where b in 0:B, h in 0:H
  d(b,h) = 1.0 where b in 0:B, h in 0:H
  for t in T {
    A(b,h) +=! s(b,k) * U(h,k)
    s(b,h) = tanh(0.3 * A(b,h) + X(t,b,h))
    Y(t,b,h) = s(b,h)
  }
  P(t,b,h) +=! Y(t,b,k) * R(h,k)
  for t in T {
    G(b,h) +=! d(b,k) * R(h,k)
    d(b,h) = tanh(0.3 * G(b,h) + P(t,b,h))
    Z(t,b,h) = d(b,h)
  }
}""",
}
WORK = 20_000
SIZES = ((0, 1, 4), (2, 1, 16), (33, 1, 16), (40, 0, 8), (40, 2, 0), (61, 2, 9))
CASES = [
    *((name, "avx2") for name in TEXTS),
    ("two layers", "avx512"),
    ("two layers", "novector"),
]


def when(text: str, work: int = WORK) -> Condition:
    """The sizes at which waves are taken."""
    options = Options(min_work_per_thread=work)
    kernel = schedule_program(analyse(text)["f"], options, {}).kernel
    choices = map_cpu(kernel, target_of("avx2").machine, options).choices
    versions = [v for x in choices if isinstance(x, Choice) for v in x.versions]
    return next(v.when for v in versions if isinstance(v, Taken) and isinstance(v.plan, Waves))


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("name", "target"), CASES)
def test_waves_give_what_layers_give(name: str, target: str) -> None:
    options = Options(min_work_per_thread=WORK)
    kernel = tcsym.define(TEXTS[name], options=options, target=f"cpu:{target}").f
    rng, condition, some = np.random.default_rng(0), when(TEXTS[name]), 0
    for sizes in SIZES:
        known = dict(zip("TBH", sizes, strict=True))
        shapes = [tuple(evaluate(e, known) for e in x.shape) for x in kernel.program.inputs]
        arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        expected = [np.copy(a) for a in arrays]
        want = _several(kernel.reference(*expected))
        for threads in (1, 2, 3):
            some += holds(condition, {**known, THREADS: threads})
            given = [np.copy(a) for a in arrays]
            got = _several(kernel(*given, threads=threads))
            for mine, theirs in zip((*got, *given), (*want, *expected), strict=True):
                np.testing.assert_allclose(mine, theirs, 2e-3, 2e-4)
    assert some > 1


def _several(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def test_steps_with_threads_of_their_own_stay_as_they_are() -> None:
    sizes = {"T": 100, "B": 1, "H": 64, THREADS: 2}
    condition = when(TEXTS["two layers"], 131072)
    assert holds(condition, sizes)
    assert not holds(condition, {**sizes, THREADS: 1})
    assert not holds(condition, {**sizes, "H": 512})
    assert not holds(condition, {**sizes, "T": 2})


def test_the_plan_says_so() -> None:
    assert "side by side, in waves of tiles of steps" in told("two layers")
    assert "side by side, at once" in told("both directions")


def told(name: str) -> str:
    """The plan on one line, whether it is a comment beside directives or not."""
    lines = tcsym.define(TEXTS[name]).f.explain("plan").splitlines()
    return " ".join(" ".join(line.removeprefix("#") for line in lines).split())
