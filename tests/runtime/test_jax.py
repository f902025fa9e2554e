# SPDX-License-Identifier: Apache-2.0
"""jax arrays as arguments and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime.arrays import view_of
from tests.hosts import host

jax = host("jax")
pytestmark = pytest.mark.usefixtures("interpreted")

ONE = "def f(float(N) A) -> (O) { O(i) = A(i) + 1 }"


def refused(f: Any, *args: Any, kind: str = "type", **kwargs: Any) -> tc.TCError:
    with pytest.raises(tc.TCError) as caught:
        f(*args, **kwargs)
    assert caught.value.kind == kind, str(caught.value)
    return caught.value


def test_jax_in_jax_out() -> None:
    f, x = tc.define(ONE), jax.numpy.arange(3.0)
    assert view_of(x).pointer == x.unsafe_buffer_pointer()
    for result in (f(x), f.reference(x)):
        assert isinstance(result, jax.Array) and result.tolist() == [1, 2, 3]


def test_types_are_exact() -> None:
    f = tc.define("def f(bfloat16(N) A) -> (O, double(N) D) { O(i) = A(i) D(i) = A(i) }")
    results = f(jax.numpy.ones(3, jax.numpy.bfloat16))
    assert (results.O.dtype, results.D.dtype) == (jax.numpy.bfloat16, np.float64)


def test_immutable_and_traced() -> None:
    f, x = tc.define(ONE), jax.numpy.arange(3.0)
    refused(f, np.ones(3, np.float32), out=x, kind="immutable")
    assert "without `out=`" in refused(lambda x: jax.jit(lambda x: f(x, threads=1))(x), x).hint
    update = tc.define("def f(inout float(N) A) -> () { A(i) += 1 }").f
    assert "kernel.functional()" in refused(jax.jit(update), x).hint
    assert jax.jit(update.functional())(x).tolist() == [1, 2, 3]
