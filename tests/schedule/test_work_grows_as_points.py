# SPDX-License-Identifier: Apache-2.0
"""Mapped loops do as much more work as a program has more points, in every version, at any shape.

A copy that is made whole for each iteration that reads a part of it is right and never noticed at
small sizes: its work is that of all iterations, squared. So what is chosen is looked at while each
dimension doubles, on any number of threads; and every plan that nests are offered, wherever it can
be carried out, while sizes grow fivefold, beside the loops that it was made of.
"""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from tcsym.compiler import Lowering, analyse
from tcsym.cost.counting import counted
from tcsym.cost.terms import TERMS, Counts, prices_of
from tcsym.ir.loops import THREADS, Kernel
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.wanted import offered_in
from tcsym.target.machine import Machine
from tcsym.target.target import Target
from tests.targets import target_of
from tools.choices.programs import FAMILIES

CACHES = (2**15, 2**18, 2**23)
GROWN = [2**k for k in range(9)]  # times as large is each dimension made, one after the other
FEW_OR_MANY, BASES = (3, 4, 8, 64), 1  # sizes to begin with
SOME_THREADS = (1, 2, 4)
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


@pytest.mark.thinned(32)
@pytest.mark.parametrize("target", ["avx2", "avx512"])
@pytest.mark.parametrize("text", TEXTS)
def test_work_grows_as_points(text: str, target: str) -> None:
    program, rng = analyse(text)["f"], random.Random(text)
    chosen = target_of(target, CACHES)
    layouts = ("dense",) * (len(program.inputs) + len(program.outputs))
    stages = Lowering(program, chosen, Options(), {}, layouts, (), {})
    mapped = stages.mapped(stages.scheduled(), whole=True).kernel
    bases = [{n: rng.choice(FEW_OR_MANY) for n in program.sizes} for _ in range(BASES)]
    threads = np.full(len(GROWN), rng.choice(SOME_THREADS))
    for base in [*bases, {n: 64 if n == "B" else 4 for n in program.sizes}]:
        for name in program.sizes:
            grown = [{**base, name: base[name] * k} for k in GROWN]
            sizes = {n: np.array([s[n] for s in grown]) for n in program.sizes}
            points = np.prod([sizes[n] for n in program.sizes], axis=0)
            work = work_of(mapped, chosen.machine, {**sizes, THREADS: threads}) / points
            rises = np.log2(work[1:] / work[:-1]) > RISE
            lasting = rises[2:] & rises[1:-1] & rises[:-2]
            assert not lasting.any(), f"{name} from {base}: {work.round(1)}"


def work_of(kernel: Kernel, machine: Machine, sizes: dict[str, Any]) -> Counts:
    """What instructions take: memory takes more for a point where caches are full."""
    prices = prices_of(machine).copy()
    prices[[TERMS.index("awaited"), TERMS.index("again")]] = 0
    return np.asarray(counted(kernel, machine, sizes) @ prices)


def in_families() -> list[str]:
    """Programs of which a loop's first iteration says how long each takes, and every one runs."""
    families = {"rows": 16, "windows": 16, "scans": 6, "gathers": 8}
    made = (FAMILIES[f](random.Random(k)) for f, n in families.items() for k in range(n))
    return list(dict.fromkeys(x for x in made if "0:t+1" not in x and " Y(I(" not in x))


FIVEFOLD = np.array([1, 5, 25, 125])
MOST_RISE = (
    1.6  # of work by that of naive loops, in two steps one after the other: five is a square
)


def versions(kernel: Kernel, target: Target) -> list[Options]:
    """Those that force a plan of a nest, each once, and what is chosen."""
    found = [Options()]
    for nest, x in map_cpu(kernel, target.machine, Options(), True, True).nests.items():
        for name in dict.fromkeys(n for names in offered_in(x).values() for n in names):
            found.append(Options(plan=f"{nest}: {name}"))
    return found


@pytest.mark.thinned(100)
@pytest.mark.parametrize("target", ["avx2", "avx512"])
@pytest.mark.parametrize("text", [*TEXTS, *in_families()])
def test_work_of_every_version_grows_as_points(text: str, target: str) -> None:
    program, rng = analyse(text)["f"], random.Random(text)
    chosen = target_of(target, CACHES)
    layouts = ("dense",) * (len(program.inputs) + len(program.outputs))
    naive = Lowering(program, chosen, Options(), {}, layouts, (), {}).scheduled().kernel
    base = {n: 64 if n == "B" else rng.choice(FEW_OR_MANY) for n in program.sizes}
    threads = np.full(len(FIVEFOLD), rng.choice(SOME_THREADS))
    grown = {name: fivefold(base, name) for name in base}
    plain = {name: work_of(naive, chosen.machine, sizes) for name, sizes in grown.items()}
    for options in versions(naive, chosen):
        mapped = map_cpu(naive, chosen.machine, options, whole=True)
        for name, sizes in grown.items() if not mapped.warnings else ():
            given = {**sizes, THREADS: threads}
            work = work_of(mapped.kernel, chosen.machine, given) / plain[name]
            rises = work[1:] / work[:-1] > MOST_RISE
            told = f"{options}: {name} from {base}: {work.round(3)}"
            assert not (rises[1:] & rises[:-1]).any(), told


def fivefold(base: dict[str, int], name: str) -> dict[str, np.ndarray[Any, Any]]:
    """This size of the base grows; there is room for windows."""
    sizes = {n: base[n] * (FIVEFOLD if n == name else FIVEFOLD[:1]) for n in base}
    for side in {"H", "W"} & sizes.keys():
        sizes[side] = sizes[side] + 2 * sizes.get(f"K{side}", FIVEFOLD[1:2])
    return {n: np.broadcast_to(x, FIVEFOLD.shape) for n, x in sizes.items()}
