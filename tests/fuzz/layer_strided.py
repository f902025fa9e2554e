# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions with a stride: guards on residues in several writings."""

from __future__ import annotations

from tcsym.index.expr import Index, index
from tests.fuzz.draft import Draft
from tests.fuzz.layer_forms import SPACE, accumulated, call, product, ranges


def transposed_convolution(d: Draft) -> None:
    """Along one or two dimensions; weights with or without new channels."""
    rng, dtype = d.rng, d.dtype()
    rank, wide = rng.choice([1, 1, 2]), accumulated(dtype, d)
    space = list(SPACE[3 - rank :])
    image, out = [d.size("image") for _ in space], list[Index]()
    kernel = [d.size("kernel") if d.chance(0.6) else index(rng.choice([2, 3, 4])) for _ in space]
    at: list[str] = []
    guards: list[str] = []
    bounds: dict[str, Index | str] = {}
    for v, n, k in zip(space, image, kernel):
        stride, padding = rng.choice([2, 2, 3, 4]), rng.choice(["", "", " + 1", " + 2", f" + {n}"])
        e = f"({v}{padding} - k{v})"
        at.append(f"{e} / {stride}")
        guards.append(_residue(d, e, stride))
        guards += [f"{e} >= 0", f"{e} < {n * stride}"]
        out.append(n * stride + (k if padding else rng.choice([0, 1, 2])))
        bounds |= {v: out[-1], f"k{v}": k}
    if d.chance(0.3):
        rng.shuffle(guards)
    channel, new = d.size("channels"), d.size("rows")
    dense = d.chance(0.7)
    x = d.tensor([channel, *image], dtype)
    f = d.tensor([channel, *([new] if dense else []), *kernel], dtype)
    weight = call(f, ["c", *(["m"] if dense else []), *(f"k{v}" for v in space)])
    element, guard = call(x, ["c", *at]), " && ".join(guards)
    if d.chance(0.4):
        term = product(d, [f"({guard} ? {element} : 0)", weight], dtype, wide)
    elif d.chance(0.2):
        term = f"{guards[0]} ? ({' && '.join(guards[1:])} ? {element} * {weight} : 0) : 0"
        wide = dtype
    else:
        term = f"{guard} ? {product(d, [element, weight], dtype, wide)} : 0"
    left, shape = ["m" if dense else "c", *space], [new if dense else channel, *out]
    t = d.make(wide, shape)
    points = [*shape, *([channel] if dense else []), *kernel]
    d.statement(f"{call(t, left)} +=! {term}{ranges(bounds)}", points)


def _residue(d: Draft, e: str, n: int) -> str:
    """`e` is a multiple of n."""
    forms = [f"{e} % {n} == 0"] * 3 + [f"{e} / {n} * {n} == {e}", f"{e} % {n} < 1"]
    forms += [f"!({e} % {n} > 0)", f"(0 - {e}) % {n} == 0", f"({e} + {n - 1}) % {n} == {n - 1}"]
    return d.rng.choice(forms)
