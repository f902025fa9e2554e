"""Programs once compiled wrongly, reduced; each must agree with the reference for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.index import evaluate
from tcsym.types import DType
from tests.differential.inputs import values
from tests.fuzz.compare import difference, outcome, tolerances

FOUND: dict[str, tuple[str, list[dict[str, int]]]] = {
    # a gather's subscript reached the arithmetic of storage contraction
    "gather_from_a_contracted_temporary": (
        """def f(uint8(M) A, int32(N) P) -> (T1) {
  T0(i,j) +=! A(i) * P(j)
  T1(i,j) min=! T0(0, P(j) % 2 * 0) where i in 0:N, j in 0:N, k in 0:N
}""",
        [{"M": 2, "N": 3}, {"M": 1, "N": 0}],
    ),
    # a dimension of constant extent 1 was dropped although masked lanes moved along it
    "dimension_of_extent_one": (
        """def f(float(K) A, float(K,K) C) -> (T2) {
  T1(i) min=! A(3 * i + 2 * k) where k in 0:1
  T2(i, l) +=! C(i, j) * T1(l)
}""",
        [{"K": 1}, {"K": 2}, {"K": 7}],
    ),
    "size_times_index_of_one": (
        """def f(float(B,N) A, float(B) C) -> (T3) {
  T0(i) = i * 0.5 where i in 0:B*N
  T1(i,j) = T0(N*i+j) where i in 0:B, j in 0:N
  T3(j,l) +=! C(i) * T1(j,l) where j in 0:B
}""",
        [{"B": 2, "N": 1}, {"B": 1, "N": 3}],
    ),
}


@pytest.mark.parametrize("bind", ["never", "before", "after"])
@pytest.mark.parametrize("target", ["cpu", "cpu:novector"])
@pytest.mark.parametrize("name", FOUND)
def test_agrees_with_the_reference(name: str, target: str, bind: Any) -> None:
    source, all_sizes = FOUND[name]
    for sizes in all_sizes:
        rng = np.random.default_rng(0)
        fixed = None if bind == "never" else sizes
        options = tcsym.Options(bind=bind)
        kernel = tcsym.define(source, sizes=fixed, target=target, options=options)["f"]
        inputs = {
            n: np.asarray(values(rng, t.dtype, [evaluate(d, sizes) for d in t.shape], "", sizes))
            for n, t in kernel.signature.inputs.items()
        }
        for n, t in kernel.signature.inputs.items():
            if t.dtype is DType.INT32:
                inputs[n] = np.abs(inputs[n])
        outputs = list(kernel.signature.outputs)
        want = outcome(kernel.reference, outputs, inputs, sizes)
        assert not isinstance(want, tcsym.TCError), want
        allowed = tolerances(kernel.reference, want, inputs, sizes, 0)
        kind, details = difference(outcome(kernel, outputs, inputs, sizes), want, allowed)
        assert not kind, f"{sizes}: {details}"
