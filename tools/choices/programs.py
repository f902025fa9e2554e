# SPDX-License-Identifier: Apache-2.0
"""Programs and sizes to measure: first the benchmark's and the library's, then random ones."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from msgspec import Struct

import tcsym
from tcsym.frontend.program import Program
from tcsym.index.values import evaluate

MOST_WORK, MOST_ELEMENTS, LEAST_WORK = 3e7, 3e6, 256
MOST_FLOPS = 1e8  # of the suite's own sizes
MOST_WINDOW = 7  # points along a side: sizes KH and KW
Sizes = dict[str, int]


class Drawn(Struct, frozen=True):
    """A program to measure. case: the suite's, which says how its sizes are drawn."""

    name: str
    source: str
    entry: str
    family: str
    case: Any = None


def programs(seed: int) -> Iterator[Drawn]:
    """Those that were written first; then, without end, one of each family in turn."""
    return chain(_written(), _mixed(seed))


def _written() -> Iterator[Drawn]:
    from benchmarks.suite import CASES

    for case in CASES:
        yield Drawn(f"suite {case.name}", case.text, "", case.goal, case)
    for name in tcsym.library.names():
        yield Drawn(f"library {name}", tcsym.library.source(name), "", "library")


def _mixed(seed: int) -> Iterator[Drawn]:
    from tests.fuzz.generate import random_program

    for k in range(seed * 100_000, (seed + 1) * 100_000):
        rng = random.Random(k)
        for family, text in FAMILIES.items():
            yield Drawn(f"{family.removesuffix('s')} {k}", text(rng), "", family)
        drawn = random_program(random.Random(k), k % 2)
        yield Drawn(f"fuzz {k}", drawn.source, drawn.name, "fuzz")


# ---- random texts


def product(rng: random.Random) -> str:
    """A contraction: loops of the result, some of the left side, some of the right, some of both;
    sums; dimensions in any order, often in that of matrices."""
    left, right = rng.choice(("m", "m", "m", "mp")), rng.choice(("n", "n", "n", "nq"))
    both, sums = rng.choice(("", "", "b", "b", "bc")), rng.choice(("k", "k", "k", "kl"))
    shuffled = rng.random() < 0.5

    def order(*parts: str) -> str:
        parts = tuple(rng.sample(parts, len(parts))) if rng.random() < 0.5 else parts
        loops = "".join(parts)
        return "".join(rng.sample(loops, len(loops))) if shuffled else loops

    out, x, y = order(both, left, right), order(both, left, sums), order(both, sums, right)
    dtype = rng.choice(("float",) * 6 + ("double",))
    after = rng.choice(("",) * 6 + ("fmax(Z({0}), 0)", "tanh(Z({0}))"))
    epilogue = f" Z({','.join(out)}) = {after.format(','.join(out))}" if after else ""

    def tensor(name: str, loops: str) -> str:
        return f"{dtype}({','.join(loops.upper())}) {name}"

    term = f"X({','.join(x)}) * Y({','.join(y)})"
    head = f"def f({tensor('X', x)}, {tensor('Y', y)}) -> (Z)"
    return f"{head} {{ Z({','.join(out)}) +=! {term}{epilogue} }}"


ROWS = (
    "S({0}) +=! X({1})",
    "S({0}) max=! X({1})",
    "S({0}) +=! X({1}) * X({1})",
    "S({0}) +=! exp(X({1}))",
    "S({0}) max=! X({1})  T({0}) +=! exp(X({1}) - S({0}))  Y({1}) = exp(X({1}) - S({0})) / T({0})",
    "S({0}) +=! X({1})  Y({1}) = X({1}) - S({0}) / W",
    "S({0}) +=! X({1}) * X({1})  Y({1}) = X({1}) * rsqrt(S({0}) + 1)",
    "Y({2}) = X({1}) + 1",
    "Y({2}) = X({1}) * tanh(X({1}))",
    "Y({2}) = X({1})",
    "Y({1}) = X({1}) * U({3}) + V({3})",
)


def row(rng: random.Random) -> str:
    """A map or sums over some dimensions of one operand, in any order."""
    loops = "abcw"[4 - rng.choice((2, 2, 3, 4)) :]
    n_summed = rng.choice((1, 1, 1, 2)) if len(loops) > 2 else 1
    summed = set(rng.sample(loops, n_summed)) if rng.random() < 0.4 else set(loops[-n_summed:])
    kept = "".join(v for v in loops if v not in summed)
    turned = "".join(rng.sample(loops, len(loops))) if rng.random() < 0.6 else loops
    body = rng.choice(ROWS)
    parts = [",".join(x) for x in (kept, loops, turned, loops[-1])]
    text = body.format(*parts)
    outputs = [name for name in "STY" if re.search(rf"\b{name}\(", text)]
    inputs = f"float({','.join(loops.upper())}) X"
    if "U(" in text:
        inputs += f", float({loops[-1].upper()}) U, float({loops[-1].upper()}) V"
    return f"def f({inputs}) -> ({outputs[-1]}) {{ {text} }}"


WINDOWS = {  # what a term reads beside the window, the weights' dimensions, the result's
    "{Y} +=! {X} * F(n,{a})": ("n", "n", "n"),
    "{Y} +=! {X} * F(m,n,{a})": ("n", "mn", "m"),
    "{Y} max=! {X}": ("n", "", "n"),
    "{Y} +=! {X} * F({a})": ("", "", ""),
    "{Y} +=! {X}": ("n", "", "n"),
}


def window(rng: random.Random) -> str:
    """Sums or maxima over windows of one or two dimensions, of literal size or not, with a step."""
    body, (read, weights, made) = rng.choice(list(WINDOWS.items()))
    places = rng.choice(("h", "hw", "hw"))
    batch, last = rng.choice(("", "b")), rng.random() < 0.4
    step, literal = rng.choice((1, 1, 1, 2)), rng.choice((0, 0, 2, 3, 5))
    inside = {"h": "r", "w": "s"}
    moved = [f"{f'{step}*' * (step > 1)}{v}+{inside[v]}" for v in places]

    def at(name: str, channels: str, points: list[str]) -> str:
        parts = [*batch, *points, *channels] if last else [*batch, *channels, *points]
        return f"{name}({','.join(parts)})"

    a = ",".join(inside[v] for v in places)
    text = body.format(Y=at("Y", made, [*places]), X=at("X", read, moved), a=a)
    if literal or "F(" not in text:
        text += " where " + ", ".join(f"{inside[v]} in 0:{literal or 3}" for v in places)
    inputs = "float" + at("", read.upper(), [*places.upper()]).upper() + " X"
    if "F(" in text:
        sides = [str(literal) if literal else f"K{v}" for v in places.upper()]
        inputs += f", float({','.join([*weights.upper(), *sides])}) F"
    return f"def f({inputs}) -> (Y) {{ {text} }}"


SCANS = (
    "{S}(0,{r}) = 0.0 for t in T { {S}(t+1,{r}) = 0.5 * {S}(t,{r}) + X({x}) }",
    "{S}(0,{r}) = 0.0 for t in T { {S}(t+1,{r}) = fmax({S}(t,{r}), X({x})) * G({x}) }",
    "{S}(0,b,h) = 0.0 for t in T { A(b,h) +=! {S}(t,b,k) * U(k,h)"
    " {S}(t+1,b,h) = tanh(A(b,h) + X({x})) }",
    "{S}(0,b,h) = 0.0 for t in T { {S}(t+1,b,h) = {S}(t,b,h) / (1 + exp(G({x}))) + X({x}) }",
)


def scan(rng: random.Random) -> str:
    """A recurrence along `t`, alone or with a product of its state; or a sum over a triangle."""
    if rng.random() < 0.2:
        order = rng.sample("th", 2)
        x = ",".join(order).replace("t", "s")
        shape = ",".join(order).upper()
        return f"def f(float({shape}) X) -> (Y) {{ Y(t,h) +=! X({x}) where t in 0:T, s in 0:t+1 }}"
    body = rng.choice(SCANS)
    rest = "bh" if "b,h" in body else rng.choice(("h", "bh"))
    order = ["t", *rest]
    if rng.random() < 0.4:
        rng.shuffle(order)
    text = body.replace("{S}", "S").replace("{r}", ",".join(rest)).replace("{x}", ",".join(order))
    shape = ",".join(order).upper()
    inputs = f"float({shape}) X" + f", float({shape}) G" * ("G(" in text)
    inputs += ", float(H,H) U" * ("U(" in text)
    return f"def f({inputs}) -> (float(T+1,{','.join(rest.upper())}) S) {{ {text} }}"


GATHERS = (
    "float(V,D) W, int32(N) I) -> (Y) { Y(n,d) = W(I(n),d) }",
    "float(V,D) W, int32(N,K) I) -> (Y) { Y(n,d) +=! W(I(n,k),d) }",
    "float(V,D) W, int32(N,K) I, float(N,K) P) -> (Y) { Y(n,d) +=! W(I(n,k),d) * P(n,k) }",
    "float(D,V) W, int32(N) I) -> (Y) { Y(d,n) = W(d,I(n)) }",
    "float(V) W, int32(N,D) I, float(N,D) P) -> (Y) { Y(n) +=! W(I(n,d)) * P(n,d) }",
    "float(N,K) X, float(V,D,K) W, int32(N) I) -> (Y) { Y(n,d) +=! X(n,k) * W(I(n),d,k) }",
    "float(N,D) X, int32(N) I) -> (float(D,D) Y) { Y(I(n),d) +=! X(n,d) }",
    "float(N,D) X, int32(N,D) I) -> (float(D) Y) { Y(I(n,d)) +=! X(n,d) }",
)


def gather(rng: random.Random) -> str:
    """Reads or sums at places that a tensor says."""
    return f"def f({rng.choice(GATHERS)}"


FAMILIES: dict[str, Callable[[random.Random], str]] = {
    "products": product,
    "rows": row,
    "windows": window,
    "scans": scan,
    "gathers": gather,
}

# ---- sizes


def sizes_of(drawn: Drawn, program: Program, n: int, rng: random.Random) -> Iterator[Sizes]:
    if drawn.case is not None:
        from benchmarks.sizes import random_rows, suite_rows

        few = [r for r in suite_rows(drawn.case) if drawn.case.n_flops(r.sizes) <= MOST_FLOPS]
        yield from (dict(r.sizes) for r in few)
        yield from (dict(r.sizes) for r in random_rows(drawn.case, n, rng.randrange(1 << 20)))
        return
    for _ in range(n):
        sizes = draw_sizes(program, rng)
        if sizes is not None:
            yield sizes


def draw_sizes(program: Program, rng: random.Random) -> Sizes | None:
    """Log-uniform, often round, of bounded work; None if there are none."""
    for _ in range(400):
        most = rng.choice((16, 64, 256, 1024, 4096))
        sizes = {n: _size(rng, MOST_WINDOW if n in ("KH", "KW") else most) for n in program.sizes}
        shapes = [t.shape for t in (*program.inputs, *program.outputs)]
        extents = [[evaluate(e, sizes) for e in shape] for shape in shapes]
        elements = [math.prod(shape) for shape in extents]
        work = math.prod(sizes.values())
        is_whole = all(n > 0 for shape in extents for n in shape)
        if is_whole and LEAST_WORK <= work <= MOST_WORK and max(elements) <= MOST_ELEMENTS:
            return sizes
    return None


def _size(rng: random.Random, most: int) -> int:
    n = int(2 ** rng.uniform(0, math.log2(most)))
    if n > 16 and rng.random() < 0.4:
        n -= n % rng.choice((8, 16, 32))
    return max(1, n)
