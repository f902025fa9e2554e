# SPDX-License-Identifier: Apache-2.0
"""Reductions over ranges that use other indices, or read a tensor (LANGUAGE F2, F3)."""

from __future__ import annotations

from tcsym.index.expr import Index, var
from tests.fuzz.writer import Writer, left_side, operator, right_side, variables, where


def dependent(w: Writer) -> None:
    """Triangles and windows: `k` after a left index, sometimes `p` after `k`."""
    n, e = var(w.rng.choice(w.sizes)), var(w.rng.choice(w.sizes))
    left = {"i": n, **variables(w.shape(1), "j")}
    c = w.rng.randint(0, 3)
    lower = w.rng.choice(["0", f"max(i - {c}, 0)", "i", "i / 2", f"min(i, {c})"])
    upper = w.rng.choice([f"min(i + {c}, {e})", f"{e}", f"min(2 * i + 1, {e})", f"{e} - {c}"])
    _reduce(w, left, {"k": e}, [f"k in {lower}:{upper}"], w.chance(0.3))


def ragged(w: Writer) -> None:
    """`k` up to, or from, an element of a tensor of indices."""
    pointers = [t for t in w.inputs if t.bound is not None]
    if not pointers:
        return dependent(w)
    p = w.rng.choice(pointers)
    e = p.bound
    assert e is not None
    left = {"i": p.shape[0], **variables(w.shape(1), "j")}
    clauses = w.rng.choice(
        [
            [f"k in 0:{p.name}(i)"],
            [f"k in {p.name}(i):{e}"],
            [f"k in 0:min({p.name}(i) + 1, {e})"],
            [f"m = {p.name}({p.shape[0]} - 1 - i)", "k in m / 2:m"],
        ]
    )
    return _reduce(w, left, {"k": e}, clauses, w.chance(0.2))


def _reduce(
    w: Writer, left: dict[str, Index], reduced: dict[str, Index], clauses: list[str], twice: bool
) -> None:
    if twice:
        reduced, clauses = {**reduced, "p": reduced["k"]}, [*clauses, "p in k / 2:k + 1"]
    s, name = w.scope({**left, **reduced}), w.fresh()
    op, v, magnitude = operator(w, right_side(w, s, w.rng.choice([0, 1, 2])))
    open_ = {x: n for x, n in s.extents.items() if x in left}
    s.extents.clear()
    s.extents.update(open_)
    text = where(w, s, ", ".join(clauses))
    w.items.append(f"{left_side(name, left)} {op}! {v.text}{text}")
    w.add(name, v, tuple(left.values()), magnitude)
