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
