# SPDX-License-Identifier: Apache-2.0
"""A layered program while it is written: inputs on demand, sizes with the values that suit them."""

from __future__ import annotations

import random

from msgspec import Struct, field

from tcsym.index.expr import Index, index, var
from tcsym.index.values import evaluate
from tcsym.types import DType
from tests.fuzz.model import (
    LAYOUTS,
    Case,
    Input,
    TensorModel,
    declaration,
    random_kind,
    random_layouts,
)
from tests.fuzz.updates import as_parameter, with_updates

POOLS: dict[str, tuple[int, ...]] = {
    "batch": (1, 2, 3, 1, 2, 0),
    "rows": (1, 2, 5, 6, 7, 11, 12, 13, 18, 25, 40, 0),
    "columns": (1, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 65, 100, 0),
    "reduced": (1, 2, 3, 5, 8, 16, 17, 33, 65, 130, 0),
    "image": (1, 2, 3, 4, 5, 7, 8, 9, 13, 14, 16, 17, 19, 33, 36),
    "kernel": (1, 2, 3, 3, 5, 0, 4),
    "channels": (1, 2, 3, 4, 5, 8, 12, 13, 16, 17),
}
SETS = 6  # compiling takes longest, so one kernel is called with several sizes
DTYPES = [DType.FLOAT32] * 12 + [DType.FLOAT64] * 3
DTYPES += [DType.FLOAT16, DType.INT16, DType.INT32]
DTYPES += [DType.BFLOAT16, DType.INT8, DType.UINT8] * 2


class Tensor(Struct):
    name: str
    dtype: DType
    shape: tuple[Index, ...]
    declared: str = ""


class Draft(Struct):
    """`points`: for each statement, the extents whose product is its number of points."""

    rng: random.Random
    inputs: list[Input] = field(default_factory=list)
    made: list[Tensor] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    pools: dict[str, str] = field(default_factory=dict)
    points: list[tuple[Index, ...]] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    may_fail: bool = False
    exact: set[str] = field(default_factory=set)
    alike: list[tuple[str, str]] = field(default_factory=list)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def size(self, pool: str) -> Index:
        """A size of this kind: mostly a new symbol, sometimes one there is, sometimes a number."""
        if self.chance(0.12):
            return index(self.rng.choice([v for v in POOLS[pool] if v]))
        same = [name for name, p in self.pools.items() if p == pool]
        if same and self.chance(0.3):
            return var(self.rng.choice(same))
        name = f"S{len(self.pools)}"
        self.pools[name] = pool
        return var(name)

    def dtype(self) -> DType:
        return self.rng.choice(DTYPES)

    def tensor(self, shape: list[Index], dtype: DType, kind: str = "") -> Tensor:
        """An input of this shape; seldom one there is already. kind: of values, else drawn."""
        same = [i.tensor for i in self.inputs if i.tensor.shape == tuple(shape)]
        same = [t for t in same if t.dtype is dtype and t.bound is None]
        if same and not kind and self.chance(0.3):
            t = self.rng.choice(same)
            return Tensor(t.name, t.dtype, t.shape)
        model = TensorModel(f"I{len(self.inputs)}", dtype, tuple(shape))
        layout = self.rng.choice(LAYOUTS)
        drawn = kind or random_kind(self.rng)
        self.inputs.append(Input(model, drawn, layout, varies=not kind))
        return Tensor(model.name, dtype, tuple(shape))

    def pointer(self, shape: list[Index], bound: Index, kind: str) -> Tensor:
        """An input of integers in 0:bound; kind "stray": some beyond."""
        dtype = self.rng.choice([DType.INT32, DType.INT64, DType.UINT8, DType.INT16])
        model = TensorModel(f"I{len(self.inputs)}", dtype, tuple(shape), bound=bound)
        self.inputs.append(Input(model, kind, "plain"))
        return Tensor(model.name, dtype, tuple(shape))

    def table(self, shape: list[Index], bound: Index, place: str, at: list[str]) -> Tensor:
        """An input of the places `place` in 0:bound, where `at` are the subscripts."""
        model = TensorModel(f"I{len(self.inputs)}", DType.INT32, tuple(shape), bound=bound)
        self.inputs.append(Input(model, f"{' '.join(at)}: {place}", "plain"))
        return Tensor(model.name, model.dtype, tuple(shape))

    def source(self, rank: int, shape: list[Index], dtype: DType) -> Tensor:
        """A tensor to read: what an earlier layer made, if its rank fits, or an input."""
        fit = [t for t in self.made if len(t.shape) == rank and t.dtype is dtype]
        return fit[-1] if fit and self.chance(0.5) else self.tensor(shape, dtype)

    def make(self, dtype: DType, shape: list[Index], declared: bool = False) -> Tensor:
        t = Tensor(f"T{len(self.made)}", dtype, tuple(shape))
        if declared:
            t.declared = declaration(TensorModel(t.name, dtype, t.shape))
        self.made.append(t)
        return t

    def statement(self, text: str, points: list[Index]) -> None:
        self.items.append(text)
        self.points.append(tuple(points))

    def case(self, most: int) -> Case:
        outputs = []
        for t in self.made:
            if t is self.made[-1] or t.declared or self.chance(0.25):
                outputs.append((t.name, t.declared or t.name))
        seed = self.rng.randrange(1 << 30)
        unknown = tuple(var(n) for n in self.pools if not self._appears(n))
        if unknown:
            model = TensorModel(f"I{len(self.inputs)}", DType.FLOAT32, unknown)
            self.inputs.append(Input(model, "tame", "plain"))
        step = self.rng.choice([1] * 6 + [4, 8])  # what all sizes are multiples of
        sizes = tuple(self._sizes(most, step) for _ in range(SETS))
        if self.chance(0.4):
            self.update_input()
        inputs = random_layouts(self.rng, self.inputs)
        given = (), inputs, tuple(outputs), tuple(self.items), sizes, (), seed
        expected = tuple((t.name, t.shape, None) for t in self.made)
        told = {"exact": frozenset(self.exact), "alike": tuple(self.alike)}
        case = Case(*given, expected, tuple(self.points), self.may_fail, **told)
        known = {x for pair in self.alike for x in pair} | self.exact
        models = {t.name: TensorModel(t.name, t.dtype, t.shape) for t in self.made if t.declared}
        models = {name: t for name, t in models.items() if name not in known}
        return with_updates(case, models, self.rng) if self.chance(0.5) else case

    def update_input(self) -> None:
        """Some input, which layers read, goes on from one of their results."""
        ready = [
            (k, t)
            for k, i in enumerate(self.inputs)
            for t in self.made
            if i.tensor.shape == t.shape and i.tensor.dtype.is_float
        ]
        if ready:
            k, t = self.rng.choice(ready)
            old = self.inputs[k].tensor
            self.inputs[k] = as_parameter(old, self.rng)
            at = ", ".join("abcdefgh"[: len(t.shape)])
            left, read = (f"{n}({at})" if at else n for n in (old.name, t.name))
            op = self.rng.choice(["=", "+=", "max="])
            self.statement(f"{left} {op} {old.dtype}({read})", list(t.shape))

    def _appears(self, name: str) -> bool:
        return any(var(name) == e for i in self.inputs for e in i.tensor.shape)

    def _sizes(self, most: int, step: int) -> dict[str, int]:
        """Drawn from the pools, then the largest made smaller until the work is little."""
        pools = {n: tuple(-(-v // step) * step for v in POOLS[p]) for n, p in self.pools.items()}
        sizes = {name: self.rng.choice(pool) for name, pool in pools.items()}
        while sizes and any(_product(p, sizes) > most for p in self.points):
            large = max(sizes, key=lambda n: sizes[n] * self.rng.uniform(0.3, 1))
            sizes[large] = self.rng.choice([v for v in pools[large] if v < sizes[large]] or [step])
            if all(v <= step for v in sizes.values()):
                break
        return sizes


def _product(extents: tuple[Index, ...], sizes: dict[str, int]) -> int:
    result = 1
    for e in extents:
        result *= max(1, evaluate(e, sizes))
    return result
