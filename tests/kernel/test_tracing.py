# SPDX-License-Identifier: Apache-2.0
"""Kernels composed in Python: the def that a function of symbolic tensors amounts to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import CallError, OptionError, SizeError, TCTypeError

CAT = """def cat(float(N,D) X, float(M,D) Y) -> (float(N+M,D) Z) {
    Z(i,d) = i < N ? X(i,d) : Y(i-N,d)
}"""
SPLIT = """def split(float(N,D) X) -> (A, B) {
    A(i,d) = X(i,d) + 1
    B(i,d) = X(i,d) * 2
}"""


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_a_function_of_kernels_becomes_a_def() -> None:
    cat = tcsym.define(CAT)
    cat(_random(2, 3), _random(1, 3))  # a native entry serves it now
    all_three = tcsym.trace(lambda x, y, c: cat(cat(x, y), Y=c))
    given = _random(2, 3), _random(4, 3), _random(1, 3)
    np.testing.assert_array_equal(all_three(*given), np.concatenate(given))
    assert all_three.source.endswith(
        "def traced(float32(x_0, x_1) x, float32(y_0, y_1) y, float32(c_0, c_1) c) -> (o) {\n"
        "    t1 = cat(x, y)\n    o = cat(t1, c)\n}\n"
    )
    with pytest.raises(SizeError):
        all_three(_random(2, 3), _random(4, 2), _random(1, 3))


def test_several_results_have_names() -> None:
    cat, split = tcsym.define(CAT), tcsym.define(SPLIT)

    def both(x: Any) -> dict[str, Any]:
        parts = split(x)
        return {"whole": cat(parts.A, parts.B), "first": parts.A}

    kernel = tcsym.trace(both, name="both")
    x = _random(3, 2)
    result = kernel(x)
    np.testing.assert_array_equal(result.first, x + 1)
    np.testing.assert_array_equal(result.whole, np.concatenate([x + 1, x * 2]))


def test_what_kernels_update_the_function_updates() -> None:
    add = tcsym.define("def add(inout float(N) Y, float(N) X) -> () { Y(i) += X(i) }").add
    twice = tcsym.define("def twice(float(N) X) -> (Z) { Z(i) = 2 * X(i) }").twice

    def step(w: Any, g: Any) -> None:
        z = twice(g)
        add(z, g)
        add(w, z)

    kernel = tcsym.trace(step)
    assert list(kernel.signature.inouts) == ["w"] and not kernel.signature.outputs
    w, g = _random(5), _random(5)
    want = w + 3 * g
    assert kernel(w, g) is None
    np.testing.assert_allclose(w, want, 1e-5)


def test_what_is_no_composition_of_kernels_is_refused() -> None:
    cat = tcsym.define(CAT)
    other = tcsym.define(CAT.replace("float(N,D) X", "float(N,D) X ").replace("i < N", "i < N "))
    with pytest.raises(OptionError, match="`y` of the function goes into no kernel"):
        tcsym.trace(lambda x, y: cat(x, x))
    with pytest.raises(OptionError, match="result `o` of the function is no tensor"):
        tcsym.trace(lambda x, y: (cat(x, y), 3)[1])
    with pytest.raises(OptionError, match="is a parameter"):
        tcsym.trace(lambda x, y: (cat(x, y), x))
    with pytest.raises(CallError, match="two kernels of this trace"):
        tcsym.trace(lambda x, y: other(cat(x, y), y))
    with pytest.raises(TCTypeError, match="`Y` is no tensor of this trace"):
        tcsym.trace(lambda x: cat(x, _random(2, 3)))
    np.testing.assert_array_equal(cat(_random(1, 2), _random(2, 2)).shape, (3, 2))
