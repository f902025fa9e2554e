# SPDX-License-Identifier: Apache-2.0
"""Statements whose left subscripts are positions: read from tensors, or moved by indices."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import Index, maximum, var
from tcsym.types import DType
from tests.fuzz.expressions import Value, tame
from tests.fuzz.model import TensorModel
from tests.fuzz.statements import pointwise
from tests.fuzz.writer import Writer, converted, left_side, operator, right_side, variables, where

NO_KEYS = (DType.BOOL, DType.UINT64)  # the second may be too large for a subscript


def scattered(w: Writer) -> None:
    """A reduction into a declared output at positions that a tensor holds, or into an old one."""
    keys = [t for t in [*w.inputs, *w.made] if t.shape and t.dtype not in NO_KEYS]
    if not keys:
        return pointwise(w)
    key = w.rng.choice([*keys, *(t for t in keys if t.bound is not None)])
    moving = variables(key.shape, "xyzu")
    old = [t for t in w.made if t.shape and t.dtype is not DType.BOOL]
    target = w.rng.choice(old) if old and w.chance(0.4) else None
    extent = target.shape[0] if target else key.bound or var(w.rng.choice(w.sizes))
    rest = variables(target.shape[1:] if target else w.shape(2), "jlm")
    place = _place(w, key, moving, extent)
    also = {"k": var(w.rng.choice(w.sizes))} if w.chance(0.15) else {}
    s = w.scope({**moving, **rest, **also})
    s.anchored.update(moving)
    op, v, magnitude = operator(w, right_side(w, s))
    left = list(rest)
    at = 0 if target else w.rng.randint(0, len(left))
    left.insert(at, place)
    if target:
        v = converted(tame(v), target.dtype)
        w.items.append(f"{left_side(target.name, left)} {op} {v.text}{where(w, s)}")
        grown = replace(target, magnitude=target.magnitude + 100 * v.magnitude)
        return w.made.__setitem__(w.made.index(target), grown)
    name, shape = w.fresh(), list(rest.values())
    shape.insert(at, extent)
    w.items.append(f"{left_side(name, left)} {op}! {v.text}{where(w, s)}")
    w.declared.add(name)
    return w.add(name, v, tuple(shape), magnitude)


def _place(w: Writer, key: TensorModel, moving: dict[str, Index], extent: Index) -> str:
    read = left_side(key.name, list(moving))
    if key.bound is not None and key.bound == extent and w.chance(0.8):
        return read
    whole = read if key.dtype.is_integer else f"int32({read})"
    return w.rng.choice([f"{whole} % ({extent})", f"min(max({whole}, 0), {extent} - 1)"])


def inverted(w: Writer) -> None:
    """A reduction into a declared output at positions that indices move."""
    i, k = (var(w.rng.choice(w.sizes)) for _ in range(2))
    a, b, c = w.rng.randint(1, 3), w.rng.choice([1, 1, 2]), w.rng.randint(0, 2)
    rest = variables(w.shape(1), "jl")
    first = w.rng.choice([f"{a}*i", f"{a}*({i} - 1 - i)"])
    if first == "1*i":
        c = max(c, 1)  # `1*i + 0` is `i`, which moves nothing
    place = w.rng.choice([f"{first} + {b}*k + {c}", f"{c} + {b}*k + {first}", f"{first} + {c}"])
    s = w.scope({"i": i, "k": k, **rest})
    op, v, magnitude = operator(w, right_side(w, s))
    name, left = w.fresh(), list(rest)
    at = w.rng.randint(0, len(left))
    left.insert(at, place)
    shape = list(rest.values())
    shape.insert(at, maximum(a * i + b * k + c - w.rng.choice([0, 0, 1]), 0))
    w.items.append(f"{left_side(name, left)} {op}! {v.text}{where(w, s)}")
    w.declared.add(name)
    return w.add(name, v, tuple(shape), magnitude)


def placed(w: Writer) -> None:
    """A fixed position that a tensor without dimensions holds."""
    keys = [t for t in [*w.inputs, *w.made] if not t.shape and t.dtype not in NO_KEYS]
    ready = [t for t in w.made if t.shape and t not in keys]
    if not keys or not ready:
        return scattered(w)
    t, key = w.rng.choice(ready), w.rng.choice(keys)
    whole = key.name if key.dtype.is_integer else f"int32({key.name})"
    rest = variables(t.shape[1:], "jlm")
    s = w.scope({**rest})
    v: Value = converted(tame(right_side(w, s, 1)), t.dtype)
    place = f"{whole} % ({t.shape[0]})"
    return w.items.append(f"{left_side(t.name, [place, *rest])} = {v.text}{where(w, s)}")
