# SPDX-License-Identifier: Apache-2.0
"""Mapped loops do as much more work as a program has more points, in every version, at any shape.

A copy that is made whole for each iteration that reads a part of it is right and never noticed at
small sizes: its work is that of all iterations, squared.
"""

from __future__ import annotations

import random
from itertools import permutations

import numpy as np
import pytest

from tcsym.compiler import Lowering, analyse
from tcsym.cost.counting import nanoseconds
from tcsym.options import Options
from tests.targets import target_of

CACHES = (2**15, 2**18, 2**23)
GROWN = [2**k for k in range(9)]  # times as large is each dimension made, one after the other
FEW_OR_MANY, BASES = (3, 4, 8, 64), 1  # sizes to begin with
RISE = 0.5  # of the work a point when a dimension doubles, thrice: once, it is another version


def product(seed: int) -> str:
    """Operands and result in any order of dimensions; some are shared, some are summed."""
    rng = random.Random(seed)
    shared = rng.sample(["a", "b"], rng.randint(0, 2))
    left, right, summed = ["m"], ["n"], ["k"] + ["l"] * (rng.random() < 0.3)
    if rng.random() < 0.4:
        left.append("p")
    x, y, z = shared + left + summed, shared + right + summed, shared + left + right
    for dimensions in (x, y, z):
        rng.shuffle(dimensions)
    shapes = [",".join(d).upper() for d in (x, y)]
    places = [",".join(d) for d in (x, y, z)]
    return (
        f"def f(float({shapes[0]}) X, float({shapes[1]}) Y) -> (Z) "
        f"{{ Z({places[2]}) +=! X({places[0]}) * Y({places[1]}) }}"
    )


def softmax(order: tuple[str, ...]) -> str:
    """Along the last dimension, into results in another order."""
    rest = ",".join(x for x in order if x != "n")
    return (
        f"def f(float(B,M,N) X) -> (S, T, Y) {{ S({rest}) max=! X(b,m,n) "
        f"T({rest}) +=! exp(X(b,m,n) - S({rest})) "
        f"Y({','.join(order)}) = exp(X(b,m,n) - S({rest})) / T({rest}) }}"
    )


MOVED = "def f(float(B,M,K) X, float(B,N,K) Y) -> (Z) { Z(m,b,n) +=! X(b,m,k) * Y(b,n,k) }"
TEXTS = [MOVED, *(softmax(p) for p in permutations("bmn")), *map(product, range(89))]


@pytest.mark.thinned(16)
@pytest.mark.parametrize("target", ["avx2", "avx512"])
@pytest.mark.parametrize("text", TEXTS)
def test_work_grows_as_points(text: str, target: str) -> None:
    program, rng = analyse(text)["f"], random.Random(text)
    chosen = target_of(target, CACHES)
    layouts = ("dense",) * (len(program.inputs) + len(program.outputs))
    stages = Lowering(program, chosen, Options(), {}, layouts, (), {})
    mapped = stages.mapped(stages.scheduled(), whole=True).kernel
    bases = [{n: rng.choice(FEW_OR_MANY) for n in program.sizes} for _ in range(BASES)]
    for base in [*bases, {n: 64 if n == "B" else 4 for n in program.sizes}]:
        for name in program.sizes:
            grown = [{**base, name: base[name] * k} for k in GROWN]
            sizes = {n: np.array([s[n] for s in grown]) for n in program.sizes}
            points = np.prod([sizes[n] for n in program.sizes], axis=0)
            work = nanoseconds(mapped, chosen.machine, sizes) / points
            rises = np.log2(work[1:] / work[:-1]) > RISE
            lasting = rises[2:] & rises[1:-1] & rises[:-2]
            assert not lasting.any(), f"{name} from {base}: {work.round(1)}"
