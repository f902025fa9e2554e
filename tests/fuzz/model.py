# SPDX-License-Identifier: Apache-2.0
"""A fuzz case: program text in pieces (so that it can be reduced), its inputs and its sizes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from tcsym.index.expr import Index
from tcsym.index.values import evaluate
from tcsym.types import DType
from tests.fuzz.layouts import relaid

Sizes = Mapping[str, int]
# of values. special: with NaN and infinities. ties: halfway between numbers of short types.
KINDS = {
    "tame": 8,
    "negative": 5,
    "positive": 3,
    "ties": 2,
    "wide": 1,
    "equal": 1,
    "special": 2,
}
LAYOUTS = ("plain", "plain", "transposed", "rows", "sliced", "reversed", "broadcast")


class TensorModel(Struct, frozen=True):
    """What the generator believes about a tensor. `bound`: integer values lie in [0, bound);
    `padded`: they lie there or below 0."""

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    magnitude: float = 2.0
    bound: Index | None = None
    padded: Index | None = None


class Input(Struct, frozen=True):
    tensor: TensorModel
    values: str  # of KINDS, "index", "stray" (some outside), "padded", or "i j: their place"
    layout: str
    varies: bool = False  # `values` is drawn anew for each sizes
    inout: bool = False

    def declaration(self) -> str:
        return "inout " * self.inout + declaration(self.tensor)

    def array(self, sizes: Sizes, rng: np.random.Generator) -> NDArray[Any]:
        shape = tuple(evaluate(d, sizes) for d in self.tensor.shape)
        return _laid_out(_values(self, shape, sizes, rng), self.layout)


Expected = tuple[str, tuple[Index, ...], DType | None]  # name, extents, type if that is known


class Case(Struct, frozen=True):
    """`outputs`: name -> header text. `items`: statements, loops and calls, each on its own.

    `expected`: of tensors, what the generator knows of them without the compiler. `points`: the
    extents of statements, where known. `may_fail`: some accesses may lie outside. `exact`: tensors
    of which the language says every bit, as of casts of inputs. `alike`: pairs of results that are
    the same, whatever the reference says of both. `given`: those of `free_sizes` that are
    parameters. `forms`: what it was made of.
    """

    helpers: tuple[str, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[tuple[str, str], ...]
    items: tuple[str, ...]
    sizes: tuple[dict[str, int], ...]
    free_sizes: tuple[str, ...]
    seed: int
    expected: tuple[Expected, ...] = ()
    points: tuple[tuple[Index, ...], ...] = ()
    may_fail: bool = False
    name: str = "fuzz"
    first_turn: int = 0
    exact: frozenset[str] = frozenset()
    alike: tuple[tuple[str, str], ...] = ()
    given: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        parameters = [i.declaration() for i in self.inputs]
        for k, name in enumerate(self.given):
            parameters.insert((self.seed + k) % (len(parameters) + 1), f"size {name}")
        inputs = ", ".join(parameters)
        outputs = ", ".join(text for _, text in self.outputs)
        body = "\n".join(f"  {line}" for item in self.items for line in item.split("\n"))
        return "\n".join(
            [*self.helpers, f"def {self.name}({inputs}) -> ({outputs}) {{", body, "}\n"]
        )

    @property
    def updated(self) -> tuple[str, ...]:
        """Names of the inputs that a call updates."""
        return tuple(i.tensor.name for i in self.inputs if i.inout)

    def at(self, sizes: Sizes) -> Case:
        """The case at these sizes only, with the kinds of values that it has there."""
        rng, inputs = random.Random(f"{self.seed} {sorted(sizes.items())}"), []
        for i in self.inputs:
            kind = random_kind(rng)
            inputs.append(replace(i, values=kind, varies=False) if i.varies else i)
        turn = self.turn(sizes) if sizes in self.sizes else 0
        return replace(self, sizes=(dict(sizes),), inputs=tuple(inputs), first_turn=turn)

    def turn(self, sizes: Sizes) -> int:
        """Counts the sizes, for what is drawn for each: the same when only one is left."""
        return self.first_turn + self.sizes.index(dict(sizes))

    def told(self, sizes: Sizes) -> Sizes:
        """What a call says of its sizes: all in every other one, else what arrays do not tell."""
        if (self.seed // 2 + self.turn(sizes)) % 2:
            return sizes
        return {name: sizes[name] for name in self.free_sizes}

    def arrays(self, sizes: Sizes) -> dict[str, NDArray[Any]]:
        rng = np.random.default_rng(self.seed)
        return {i.tensor.name: i.array(sizes, rng) for i in self.at(sizes).inputs}

    def must_run(self, sizes: Sizes) -> bool:
        """No call of these sizes may raise: all is there, and nothing is outside."""
        extents = [evaluate(e, sizes) for _, shape, _ in self.expected for e in shape]
        strays = any(i.values == "stray" for i in self.inputs)
        known = bool(self.expected) and not self.may_fail and not strays
        return known and min([1, *sizes.values(), *extents]) > 0

    def work(self, sizes: Sizes) -> int:
        """Points of the longest statement; 0 where that is not known, as where all are short."""
        known = self.points if self.points and sizes else ()
        return most_points(known, sizes)

    @property
    def is_special(self) -> bool:
        """Some values are infinite or NaN."""
        return any(i.values == "special" for i in self.inputs)

    def unexpected(self, results: Mapping[str, NDArray[Any]], sizes: Sizes) -> str:
        """Which result has another type, shape or value than it must have; '' if none."""
        for name, extents, dtype in self.expected:
            x, shape = results.get(name), tuple(evaluate(d, sizes) for d in extents)
            if x is not None and (x.shape != shape or (dtype and x.dtype != dtype.numpy)):
                return f"`{name}` is {x.dtype}{x.shape}, not {dtype or ''}{shape}"
        for a, b in self.alike:
            x, y = results.get(a), results.get(b)
            if x is not None and y is not None and x.tobytes() != y.tobytes():
                return f"`{a}` is not `{b}`"
        return ""

    def is_assigned(self, name: str) -> bool:
        target = re.compile(rf"(^|[\s,{{]){name}\s*(\([^=]*\))?\s*(,[^=\n]*)?([-+*]|min|max)?=[^=]")
        return any(target.search(item) for item in self.items)


def has_far(sizes: Sizes) -> bool:
    """Some may be those for which there are plain loops, whatever else is asked for."""
    return any(n > 1 << 12 for n in sizes.values())


def most_points(points: Iterable[tuple[Index, ...]], sizes: Sizes) -> int:
    """Of the statement that has most."""
    return max((prod(max(1, evaluate(e, sizes)) for e in es) for es in points), default=0)


def declaration(tensor: TensorModel) -> str:
    if not tensor.shape:
        return f"{tensor.dtype} {tensor.name}"
    return f"{tensor.dtype}({', '.join(map(str, tensor.shape))}) {tensor.name}"


def random_kind(rng: random.Random) -> str:
    return rng.choices(list(KINDS), list(KINDS.values()))[0]


def random_layouts(rng: random.Random, inputs: Sequence[Input]) -> tuple[Input, ...]:
    """More than half of the programs meet plain arrays only: code for these has most schedules."""
    if rng.random() < 0.6:
        return tuple(replace(i, layout="plain") for i in inputs)
    return tuple(inputs)


def random_sizes(names: list[str], rng: random.Random) -> dict[str, int]:
    """Mostly small, with zeros, ones, primes and the neighbours of vector widths; seldom long."""
    sizes, volume = {}, 1
    for name in rng.sample(names, len(names)):
        pool = [1, 2, 3, 3, 4, 5, 5, 7, 8] * 2 + [0, 13, 15, 16, 17, 31, 32, 33]
        pool += rng.choice([[], [], [47, 64, 65, 100, 129, 260]])
        value = rng.choice([s for s in pool if volume * s <= 4096])
        sizes[name], volume = value, volume * max(value, 1)
    return {name: sizes[name] for name in names}


def _values(
    spec: Input, shape: tuple[int, ...], sizes: Sizes, rng: np.random.Generator
) -> NDArray[Any]:
    dtype = spec.tensor.dtype
    if ":" in spec.values:
        return _places(spec.values, shape, sizes).astype(dtype.numpy)
    if spec.values == "padded":
        assert spec.tensor.padded is not None
        places = rng.integers(0, max(evaluate(spec.tensor.padded, sizes), 1), shape)
        none = rng.choice([-1, -1, -100, dtype.lowest], shape)
        return np.where(rng.random(shape) < 0.4, none, places).astype(dtype.numpy)
    if spec.tensor.bound is not None:
        low, high = 0, max(evaluate(spec.tensor.bound, sizes), 1)
        if spec.values == "stray":  # mostly beyond, where there may be padding
            low, high = [(-1, high), (0, high + 1), (0, high + 3)][rng.integers(3)]
        return rng.integers(low if dtype.is_signed else 0, high, shape).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        return _integers(spec.values, dtype, shape, rng)
    return _floats(spec.values, shape, rng).astype(dtype.numpy)


def _places(text: str, shape: tuple[int, ...], sizes: Sizes) -> NDArray[Any]:
    """By numpy's quotients and remainders, which are those of the language."""
    names, _, place = text.partition(": ")
    at = dict(zip(names.split(), np.indices(shape), strict=True))
    known = {**sizes, **at, "min": np.minimum, "max": np.maximum, "__builtins__": {}}
    with np.errstate(divide="ignore"):  # of extents that are zero
        return np.broadcast_to(eval(place.replace("/", "//"), known), shape)


def _integers(
    kind: str, dtype: DType, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    low, high = max(dtype.lowest, -9), 9
    if kind in ("special", "wide"):
        low, high = dtype.lowest, dtype.highest
    elif kind == "negative" and dtype.is_signed:
        high = -1
    elif kind in ("positive", "negative"):  # of unsigned ones: those that look like negative ones
        low = 1 if dtype.is_signed else dtype.highest - 9
        high = 9 if dtype.is_signed else dtype.highest
    elif kind == "equal":
        low = high
    return np.asarray(rng.integers(low, high, shape, dtype=dtype.numpy, endpoint=True))


def _floats(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    values = rng.uniform(-2, 2, shape)
    match kind:
        case "negative":
            return -np.abs(values) - 0.1
        case "positive":
            return np.abs(values) + 0.1
        case "ties":  # sums of a few: of 8 bits for bfloat16, of 11 for half
            beside = rng.choice([0, 0, 2**-40, -(2**-40)], shape)  # only in 64 bits
            return rng.integers(-4, 5, shape) * 0.5 + rng.choice([0, 2**-8, 2**-11], shape) + beside
        case "wide":
            return values * 10.0 ** rng.integers(-3, 3, shape)
        case "equal":
            return np.full(shape, values.flat[0] if values.size else 0.0)
        case "special":
            odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-3], shape)
            return np.where(rng.random(shape) < rng.choice([0.01, 0.15]), odd, values)
        case _:
            return values


def _laid_out(x: NDArray[Any], layout: str) -> NDArray[Any]:
    if x.ndim == 0 or layout == "plain":
        return x
    if layout == "broadcast":
        return np.broadcast_to(x[:1], x.shape)
    return relaid(x, layout)


def form_name(form: Callable[..., object]) -> str:
    """By its module, too: several have a form `call`."""
    return f"{form.__module__.rpartition('.')[2]}.{form.__name__}"
