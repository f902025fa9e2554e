# SPDX-License-Identifier: Apache-2.0
"""Rows in pairs that share loads: where, what they load, and that results stay what they are."""

from __future__ import annotations

import itertools

import pytest

from tcsym.compiler import analyse
from tcsym.index.values import holds
from tcsym.ir.loops import Branch, Kernel, Loop, Read, Store
from tcsym.ir.traverse import loads, walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.analysis.loops import children
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tests.schedule.compare import assert_same
from tests.schedule.targets import AVX2, TARGETS

CROSS = """def f(float(N,M) A) -> (O) {
  O(i,j) = A(i,j+1) + A(i+2,j+1) + A(i+1,j) + A(i+1,j+2) - 4*A(i+1,j+1)
}"""
SPACE = """def f(float(N,M,L) A) -> (O) {
  O(i,j,k) = A(i,j+1,k+1) + A(i+2,j+1,k+1) + A(i+1,j,k+1) + A(i+1,j+2,k+1) + A(i+1,j+1,k+2)
}"""
TWO_STEPS = """def f(float(N,M) A) -> (O) {
  T(i,j) = A(i,j) + A(i+1,j) where i in 0:N-1, j in 0:M
  O(i,j) = T(i,j) * T(i,j)
}"""
BACKWARDS = "def f(float(N,M) A) -> (O) { O(i,j) = A(N-1-i,j) - A(N-2-i,j) where i in 0:N-1 }"
STENCILS = {"cross": CROSS, "space": SPACE, "two steps": TWO_STEPS, "backwards": BACKWARDS}


def naive(source: str) -> Kernel:
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


def paired(source: str) -> Branch | None:
    """The branch between two rows at a time and others; it stands around the former's loop."""
    mapped = map_cpu(naive(source), AVX2, Options())
    top = next((n.partition(":")[0] for n in mapped.notes if n.endswith("two rows at a time")), "")
    return next(
        (
            x
            for x, _ in walk(mapped.kernel.body)
            if isinstance(x, Branch) and isinstance(x.then, Loop) and x.then.variable == top
        ),
        None,
    )


def vector_loads(branch: Branch) -> set[Read]:
    vector = next(x for x, _ in walk(branch.then) if isinstance(x, Loop) and x.kind == "vector")
    assert vector.mask is None
    stores = [x for x in children(vector.body) if isinstance(x, Store)]
    return {r for x in stores for r in loads(x.value) if r.tensor == "A"}


@pytest.mark.parametrize(("source", "n"), [(CROSS, 8), (TWO_STEPS, 3), (BACKWARDS, 3)])
def test_a_pair_of_rows_loads_once_what_both_read(source: str, n: int) -> None:
    branch = paired(source)
    assert branch is not None and len(vector_loads(branch)) == n


def test_a_pair_of_rows_needs_two_rows_of_a_vector() -> None:
    branch = paired(CROSS)
    assert branch is not None
    chosen = {
        (n, m)
        for n, m in itertools.product((1, 2, 3, 4, 5, 50), (3, 9, 10, 11, 50))
        if holds(branch.condition, {"N": n, "M": m})
    }
    assert chosen == set(itertools.product((4, 5, 50), (10, 11, 50)))


@pytest.mark.parametrize(
    "source",
    [
        "def f(float(N,M) A, float(M) B) -> (O) { O(i,j) = A(i,j) + B(j) }",  # nothing moves
        "def f(float(N,M) A) -> (O) { O(i,j) = A(i,j+1) - A(i,j) }",  # neighbours in the row
        "def f(float(N,M) A) -> (O) { O(i,j) = A(2*i,j) - A(2*i+1,j) }",  # none is read twice
        "def f(float(N,M) A) -> (O) { O(i,j) = exp(A(i,j)) - exp(A(i+1,j)) }",  # loads are nothing
        "def f(float(N,M) A) -> (O) { O(i,j) = i > 0 ? A(i,j) : A(i+1,j) where i in 0:N-1 }",
    ],
)
def test_other_rows_stay_alone(source: str) -> None:
    assert paired(source) is None


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", STENCILS)
def test_results_at_every_border(name: str, target: str) -> None:
    kernel = naive(STENCILS[name])
    mapped = map_cpu(kernel, TARGETS[target], Options()).kernel
    verify(mapped)
    values = (2, 3, 4, 5, 10, 11, 19) if len(kernel.sizes) < 3 else (2, 3, 5, 11)
    for row in itertools.product(values, repeat=len(kernel.sizes)):
        assert_same(kernel, mapped, dict(zip(kernel.sizes, row)))
