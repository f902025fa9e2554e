# SPDX-License-Identifier: Apache-2.0
"""Which sizes a run measures: the suite's, ragged ones beside them, or random ones from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator

from msgspec import Struct

from benchmarks.case import Case, Sizes, value_of

_MOST_FLOPS = 3e8  # of random sizes: a case of some milliseconds
_MOST_ELEMENTS = 6e6
_FEWEST_ELEMENTS = 64
_KEPT = ("KH", "KW", "K")  # a filter stays a filter


class Row(Struct, frozen=True):
    """A kernel at given sizes: one line of the table."""

    case: Case
    label: str
    sizes: Sizes


def suite_rows(case: Case) -> Iterator[Row]:
    for label, sizes in case.sizes.items():
        yield Row(case, label, sizes)


def ragged_rows(case: Case) -> Iterator[Row]:
    """The suite's sizes, each above 8 lowered to the next prime: no tile divides them."""
    for label, sizes in case.sizes.items():
        lowered = {n: v if n in _KEPT[:2] or v <= 8 else _prime_below(v) for n, v in sizes.items()}
        yield Row(case, f"{label}~", lowered)


def random_rows(case: Case, count: int, seed: int) -> Iterator[Row]:
    """`count` different rows, the same for one seed and kernel whatever else is measured.

    Errors: ValueError if the case has too few measurable sizes.
    """
    rng = random.Random(f"{seed} {case.name}")
    seen: set[tuple[int, ...]] = set()
    for _ in range(1000 * count):
        if len(seen) == count:
            return
        sizes = _drawn(case, rng)
        key = tuple(sizes.values())
        if key in seen or not _is_measurable(case, sizes):
            continue
        seen.add(key)
        yield Row(case, f"{case.name}[{','.join(f'{n}={v}' for n, v in sizes.items())}]", sizes)
    raise ValueError(f"{case.name}: only {len(seen)} of {count} random sizes found")


def rows_of(cases: Iterable[Case], kind: str, count: int, seed: int) -> list[Row]:
    made: list[Row] = []
    for case in cases:
        if kind == "random":
            made += random_rows(case, count, seed)
        else:
            made += ragged_rows(case) if kind == "ragged" else suite_rows(case)
    return made


def _drawn(case: Case, rng: random.Random) -> dict[str, int]:
    """Log-uniform, so that small sizes are as frequent as large ones."""
    sizes: dict[str, int] = {}
    for name, rule in case.ranges.items():
        match rule:
            case int():
                sizes[name] = rule
            case str():
                sizes[name] = int(value_of(rule, sizes))
            case (low, high):
                sizes[name] = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    return sizes


def _is_measurable(case: Case, sizes: Sizes) -> bool:
    shapes = [i.shape(sizes) for i in case.inputs]
    elements = sum(map(math.prod, shapes))
    return case.n_flops(sizes) <= _MOST_FLOPS and _FEWEST_ELEMENTS <= elements <= _MOST_ELEMENTS


def _prime_below(n: int) -> int:
    """The largest prime < n, for n > 2."""
    return next(p for p in range(n - 1, 1, -1) if all(p % d for d in range(2, math.isqrt(p) + 1)))
