"""A fuzz case: program text in pieces (so that it can be reduced), its inputs and its sizes."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcsym.index import Index
from tcsym.index_values import evaluate
from tcsym.types import DType

Sizes = Mapping[str, int]
LAYOUTS = ("plain", "plain", "transposed", "sliced", "reversed", "broadcast")


@dataclass(frozen=True, slots=True)
class TensorModel:
    """What the generator believes about a tensor. `bound`: integer values lie in [0, bound)."""

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    magnitude: float = 2.0
    bound: Index | None = None


@dataclass(frozen=True, slots=True)
class Input:
    tensor: TensorModel
    values: str  # "tame", "special" (with nan, inf), "index" or "stray" (some indices outside)
    layout: str

    def declaration(self) -> str:
        return declaration(self.tensor)

    def array(self, sizes: Sizes, rng: np.random.Generator) -> NDArray[Any]:
        shape = tuple(evaluate(d, sizes) for d in self.tensor.shape)
        return _laid_out(_values(self, shape, sizes, rng), self.layout)


@dataclass(frozen=True, slots=True)
class Case:
    """`outputs`: name -> header text. `items`: statements, loops and calls, each on its own."""

    helpers: tuple[str, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[tuple[str, str], ...]
    items: tuple[str, ...]
    sizes: tuple[dict[str, int], ...]
    free_sizes: tuple[str, ...]
    seed: int
    name: str = "fuzz"

    @property
    def source(self) -> str:
        inputs = ", ".join(i.declaration() for i in self.inputs)
        outputs = ", ".join(text for _, text in self.outputs)
        body = "\n".join(f"  {line}" for item in self.items for line in item.split("\n"))
        return "\n".join(
            [*self.helpers, f"def {self.name}({inputs}) -> ({outputs}) {{", body, "}\n"]
        )

    def arrays(self, sizes: Sizes) -> dict[str, NDArray[Any]]:
        rng = np.random.default_rng(self.seed)
        return {i.tensor.name: i.array(sizes, rng) for i in self.inputs}

    @property
    def is_special(self) -> bool:
        """Some values are infinite or NaN."""
        return any(i.values == "special" for i in self.inputs)

    def is_assigned(self, name: str) -> bool:
        target = re.compile(rf"(^|[\s,{{]){name}\s*(\([^=]*\))?\s*(,[^=\n]*)?([-+*]|min|max)?=[^=]")
        return any(target.search(item) for item in self.items)


def declaration(tensor: TensorModel) -> str:
    if not tensor.shape:
        return f"{tensor.dtype} {tensor.name}"
    return f"{tensor.dtype}({', '.join(map(str, tensor.shape))}) {tensor.name}"


def random_sizes(names: list[str], rng: random.Random) -> dict[str, int]:
    """Mostly small, with zeros, ones, primes and the neighbours of vector widths."""
    sizes, volume = {}, 1
    for name in rng.sample(names, len(names)):
        pool = [1, 2, 3, 3, 4, 5, 5, 7, 8] * 2 + [0, 13, 15, 16, 17, 31, 32, 33]
        value = rng.choice([s for s in pool if volume * s <= 4096])
        sizes[name], volume = value, volume * max(value, 1)
    return {name: sizes[name] for name in names}


def _values(
    spec: Input, shape: tuple[int, ...], sizes: Sizes, rng: np.random.Generator
) -> NDArray[Any]:
    dtype = spec.tensor.dtype
    if spec.tensor.bound is not None:
        stray = 1 if spec.values == "stray" else 0
        high = max(evaluate(spec.tensor.bound, sizes), 1) + stray
        return rng.integers(-stray if dtype.is_signed else 0, high, shape).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        low, high = max(dtype.lowest, -9), 10
        if spec.values == "special":
            low, high = dtype.lowest, dtype.highest
        values = rng.integers(
            low, high, shape, dtype=dtype.numpy, endpoint=spec.values == "special"
        )
        return np.asarray(values)
    values = rng.uniform(-2, 2, shape)
    if spec.values == "special":
        odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-3], shape)
        values = np.where(rng.random(shape) < 0.15, odd, values)
    return values.astype(dtype.numpy)


def _laid_out(x: NDArray[Any], layout: str) -> NDArray[Any]:
    if x.ndim == 0 or layout == "plain":
        return x
    if layout == "transposed":
        return np.ascontiguousarray(x.T).T
    if layout == "sliced":
        big = np.zeros([2 * n + 1 for n in x.shape], x.dtype)
        window = big[tuple(slice(1, None, 2) for _ in x.shape)]
        window[...] = x
        return window
    if layout == "reversed":
        return np.ascontiguousarray(x[::-1])[::-1]
    return np.broadcast_to(x[:1], x.shape)
