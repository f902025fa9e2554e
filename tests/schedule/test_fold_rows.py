# SPDX-License-Identifier: Apache-2.0
"""Short rows behind each other: vectors across them, whole and in place; and where not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tcsym
from tcsym.index.values import holds
from tcsym.ir.loops import Branch, Loop, Store
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tests.processors import require
from tests.schedule.targets import AVX2, AVX512
from tests.schedule.test_short_rows import branches, naive

PROGRAMS = {
    "outer": "def f({kind}(B,N) X, {kind}(B,C) Y) -> (O) {{ O(b,i,j) = X(b,i) * Y(b,j) }}",
    "bias": "def f({kind}(B,N,C) X, {kind}(C) b) -> (O) {{ O(a,i,j) = X(a,i,j) + b(j) }}",
    "both": """def f({kind}(B,N,C) X, {kind}(N) s, {kind}(C) b) -> (O) {{
  O(a,i,j) = X(a,i,j) * s(i) + b(j)
}}""",
    "shifted": """def f({kind}(B,N,C) X, {kind}(N) s) -> (O) {{
  O(a,i,j) = X(a,i+1,j) - s(i+1) where i in 0:N-1
}}""",
    "apart": "def f({kind}(B,N,C) X, {kind}(N,B) s) -> (O) {{ O(a,i,j) = X(a,i,j) * s(i,a) }}",
    "uniform": """def f({kind}(B,N) X, {kind}(B) s, {kind}(C) y) -> (O) {{
  O(a,i,j) = X(a,i) * s(a) + y(j)
}}""",
}
KINDS = {"float": np.float32, "int32": np.int32, "double": np.float64}


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_exact_results(name: str, kind: str, target: str) -> None:
    require(target)
    kernel = tcsym.define(PROGRAMS[name].format(kind=kind), target=target).f
    rng = np.random.default_rng(1)
    for b, n, c in itertools.product((1, 9), (8, 17, 65), (1, 2, 3, 6, 7, 8, 13, 15, 16)):
        sizes = {"B": b, "N": n, "C": c}
        inputs = [
            rng.integers(-9, 9, [sizes[str(d)] for d in t.shape]).astype(KINDS[kind])
            for t in kernel.signature.inputs.values()
        ]
        found = kernel(*inputs, sizes=sizes)
        np.testing.assert_array_equal(found, kernel.reference(*inputs, sizes=sizes), f"{sizes}")


def folded(name: str, kind: str = "float", target: str = "avx512") -> list[Branch]:
    """Versions with vectors across rows."""
    chosen = AVX512 if target == "avx512" else AVX2
    mapped = map_cpu(naive(PROGRAMS[name].format(kind=kind)), chosen, Options())
    if not any("vectors across rows" in note for note in mapped.notes):
        return []
    return branches(mapped.kernel)[:1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_stored_in_whole_vectors(name: str) -> None:
    (version,) = folded(name)
    lanes = [x for x, _ in walk(version.then) if isinstance(x, Loop) and x.kind == "vector"]
    stores = [x for x in lanes if isinstance(x.body, Store) and x.body.buffer == "O"]
    assert len(stores) == 1 and stores[0].mask is None


def test_when_rows_are_short() -> None:
    (version,) = folded("outer")

    def holds_at(b: int, n: int, c: int) -> bool:
        return holds(version.condition, {"B": b, "N": n, "C": c})

    assert holds_at(1, 64, 1) and holds_at(4, 16, 15)
    assert not holds_at(1, 63, 1)  # the tables take as long
    assert not holds_at(9, 15, 3) and not holds_at(1, 64, 16)


def test_doubles_are_permuted_with_avx512_only() -> None:
    assert folded("outer", "double") and not folded("outer", "double", "avx2")


@pytest.mark.parametrize(
    "source",
    [
        "def f(float(N,C) X) -> (O) { O(c,n) = X(n,c) }",
        "def f(float(N,C) X, float(C,N) Y) -> (O) { O(n,c) = X(n,c) + Y(c,n) }",
        "def f(float(N,C) X, float(N) s) -> (O) { O(n,c) = n > c ? X(n,c) * s(n) : 0.0 }",
        "def f(float(N,C) X, int8(N) s) -> (O) { O(n,c) = X(n,c) * s(n) }",
        "def f(float(N,N) X, float(N) s) -> (O) { O(n,c) = s(n) * X(n,c) where c in 0:N-1 }",
    ],
)
def test_what_is_no_run_of_rows(source: str) -> None:
    """Operands that lie otherwise or have other lanes, choices of rows, rows with gaps."""
    assert not any("across rows" in x for x in map_cpu(naive(source), AVX512, Options()).notes)


@pytest.mark.parametrize(("target", "places"), [("cpu:avx2", "ymm"), ("cpu:avx512", "zmm")])
def test_operands_are_permuted_in_registers(target: str, places: str) -> None:
    kernel = tcsym.define(PROGRAMS["outer"].format(kind="float"), target=target).f
    lines = [x.split() for x in kernel.explain("asm").splitlines()]
    assert sum(x[:1] == ["vpermps"] and places in x[-1] for x in lines) == 2
    assert not any(x and x[0].startswith("vgather") for x in lines)
