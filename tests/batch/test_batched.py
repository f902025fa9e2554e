# SPDX-License-Identifier: Apache-2.0
"""A kernel for a batch computes what the kernel computes for each element of it."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest

import tcsym as tc

CALLS = """
def s(float(N) X, float a) -> (Y, z) { Y(n) = X(n) * a  z = a }
def f(float(N) X, int32 a) -> (Y, u) {
  t, z = s(X, a)
  w, u = s(X, 2)
  Y(n) = t(n) + z + w(n)
}"""
SCAN = """
def scan(float(T,N) X, float(N) h0, float V) -> (float(T+1,N) S) {
  S(0,v) = h0(v)
  for t in T { if t == 1 { S(t+1,v) = V } else { S(t+1,v) = S(t,v) * c + X(t,v) where c = V + 1 } }
}"""
GATHER = """
def gather(float(E,D) W, int32(B,L) at) -> (Y) { Y(b,d) +=! at(b,l) > 0 ? W(at(b,l), d) : 1.0 }"""
SIZES = {"T": 3, "N": 4, "E": 3, "D": 2, "B": 2, "L": 4}


def arrays(kernel: tc.Kernel, batched: tuple[str, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    made = {}
    for t in kernel.program.inputs:
        shape = [SIZES[str(e)] for e in t.shape]
        whole = (5, *shape) if t.name in batched else tuple(shape)
        made[t.name] = rng.integers(0, 3, whole).astype(t.dtype.numpy)
    return made


@pytest.mark.parametrize("text", [CALLS, SCAN, GATHER], ids=["calls", "scan", "gather"])
def test_each_element_is_computed_by_itself(text: str) -> None:
    module = tc.define(text)
    kernel = module[list(module)[-1]]
    names = [t.name for t in kernel.program.inputs]
    for batched in chain.from_iterable(combinations(names, k + 1) for k in range(len(names))):
        given = arrays(kernel, batched)
        results = kernel.batched(batched).reference(**given)
        results = results if isinstance(results, tuple) else (results,)
        for v in range(5):
            one = {n: x[v] if n in batched else x for n, x in given.items()}
            expected = kernel.reference(**one)
            expected = expected if isinstance(expected, tuple) else (expected,)
            for have, want in zip(results, expected, strict=True):
                assert np.array_equal(have[v] if have.ndim > want.ndim else have, want)


def test_what_does_not_depend_on_the_batch_stays() -> None:
    kernel = tc.define(CALLS).f
    text = kernel.batched("X").source
    assert "t(v, n2) = X(v, n2) * a2" in text and "z = a2" in text  # as it is
    assert repr(tc.define(text).signature) == repr(kernel.batched("X").signature)
    twice = tc.define(CALLS).s.batched().batched("X")
    assert repr(twice.signature).startswith("s_batched_batched(float32(V2, V, N) X, float32(V) a)")
    with pytest.raises(tc.OptionError, match="no input `Z`"):
        kernel.batched("Z")


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize(
    "body", ["Y(p) = K", "Y(p+1) +=! K * C(i)", "Y(p) max=! K  Y(q) += K", "Y(p+i) +=! C(i)"]
)
def test_positions_of_a_batch_are_those_of_its_elements(dtype: str, body: str) -> None:
    """Fixed positions, which leave the rest of a tensor, are not fixed for the whole batch."""
    header = f"def f({dtype}(N) C, {dtype} K, int32 p, int32 q) -> ({dtype}(7) Y)"
    where = " where i in 0:2" if "i)" in body else ""
    kernel = tc.define(f"{header} {{ Y(j) = 1.0 {body}{where} }}")
    every = {"C": np.eye(3, 5) + 1, "K": [2, 3, 4], "p": [0, 2, 4], "q": [1, 5, 2]}
    arrays = {t.name: np.asarray(every[t.name], t.dtype.numpy) for t in kernel.program.inputs}
    for batched in (("p", "C"), ("p",), ("C", "K", "p", "q"), ("q",)):
        given = {n: x if n in batched else x[0] for n, x in arrays.items()}
        made = kernel.batched(batched)
        for have in (made(**given), made.reference(**given)):
            for k in range(3):
                one = {n: x[k] if n in batched else x for n, x in given.items()}
                assert np.array_equal(have[k] if have.ndim > 1 else have, kernel.reference(**one))
    first = {n: x[0] for n, x in arrays.items()}
    with pytest.raises(tc.TCError) as caught:
        kernel.batched("p")(**{**first, "p": np.array([0, 9], np.int32)})
    assert caught.value.kind == "bounds"
