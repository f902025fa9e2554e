# SPDX-License-Identifier: Apache-2.0
"""Any plan that is offered may be asked for, at any sizes: results are those of the interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tcsym
from tcsym.compiler import Lowering, analyse
from tcsym.index.values import evaluate
from tcsym.options import Options
from tcsym.schedule.chosen import Choice
from tcsym.target.names import resolve_target

PRODUCTS = {
    "matrices": "def f(float(M,K) X, float(K,N) Y) -> (Z) { Z(m,n) +=! X(m,k) * Y(k,n) }",
    "both turned": "def f(float(K,M) X, float(N,K) Y) -> (Z) { Z(m,n) +=! X(k,m) * Y(n,k) }",
    "a batch": "def f(float(M,K,B) X, float(N,B,K) Y) -> (Z) { Z(n,m,b) +=! X(m,k,b) * Y(n,b,k) }",
}
SIZES = ((1, 1, 1, 1), (9, 3, 33, 2), (2, 40, 5, 19), (17, 1, 18, 1), (0, 4, 5, 3), (5, 4, 0, 3))


def offered(source: str) -> Iterator[str]:
    program = analyse(source)["f"]
    stages = Lowering(program, resolve_target("cpu:avx2"), Options(), {}, ("dense",) * 3, (), {})
    for x in stages.mapped(stages.scheduled(), whole=True).choices:
        if isinstance(x, Choice):
            yield from (name for name, _ in x.offered)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", PRODUCTS)
def test_every_plan_is_right_at_any_sizes(name: str) -> None:
    source, rng = PRODUCTS[name], np.random.default_rng(0)
    plans, program = dict.fromkeys(offered(source)), analyse(source)["f"]
    assert len(plans) > 3
    for plan in plans:
        options = Options(plan=plan)
        kernel = tcsym.define(source, target="cpu:avx2", options=options, strategy="symbolic").f
        for values in SIZES:
            sizes = dict(zip("MKNB", values, strict=True))
            shapes = [[evaluate(e, sizes) for e in t.shape] for t in program.inputs]
            x, y = (rng.standard_normal(s).astype(np.float32) for s in shapes)
            expected = kernel.reference(x, y)
            np.testing.assert_allclose(kernel(x, y), expected, 0, 1e-4, err_msg=f"{plan} {sizes}")
