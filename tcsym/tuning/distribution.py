# SPDX-License-Identifier: Apache-2.0
"""What to tune for: given sizes with weights, or sizes drawn from declared ranges."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tcsym.errors import SizeError
from tcsym.frontend.program import Program
from tcsym.index.values import holds
from tcsym.sizes.dims import Dim, declared_size
from tcsym.sizes.values import size_value
from tcsym.sizes.work import estimated_work, n_elements

Values = tuple[int, ...]
DRAWN = 6
UNBOUNDED = 1024
MOST_WORK, SHORT_WORK, MOST_ELEMENTS = 2.0**29, 2.0**25, 2**24  # of sizes that are drawn
SMALL = 8
_ATTEMPTS, _EACH, _POOL = 20000, 100, 200


class Distribution(Struct, frozen=True):
    """Sizes to tune at, in the order of `Program.sizes`, with weights that sum to 1.

    ranges: what sizes other than these may be drawn from (lo, hi, multiple of). is_drawn: the
    sizes stand for their ranges; nobody asked for them.
    """

    weights: Mapping[Values, float]
    ranges: tuple[tuple[int, int, int], ...]
    is_drawn: bool = False

    @property
    def sizes(self) -> tuple[Values, ...]:
        return tuple(self.weights)

    @property
    def n_places(self) -> int:
        """How many sizes lie in the ranges."""
        return math.prod(1 + (high - low) // step for low, high, step in self.ranges)

    def draw(self, program: Program, n: int, seed: int) -> tuple[Values, ...]:
        """Up to `n` further sizes that the program allows, log-uniform in the ranges."""
        return self._drawn(program, n, seed, lambda _: False, lambda _: False)

    def visited(self, program: Program, n: int, seed: int) -> tuple[Values, ...]:
        """As `draw`; every third lies in a corner, where some extents are at most `SMALL`.

        Options differ most where an extent does not fill a vector or a register tile. Three of
        four are calls of up to a millisecond: more of them can be visited, and options differ less
        in long ones.
        """
        return self._drawn(program, n, seed, lambda k: k % 3 == 2, lambda k: k % 4 != 3)

    def covering(self, program: Program, n: int, seed: int) -> tuple[Values, ...]:
        """`n` of many such sizes, such that the others are near one of them."""
        pool = self.visited(program, _POOL, seed)
        away = {c: [distance(c, v) for v in pool] for c in pool}
        chosen: list[Values] = []
        nearest = [math.inf] * len(pool)
        while away and len(chosen) < n:
            best = min(away, key=lambda c: sum(map(min, away[c], nearest)))
            chosen.append(best)
            nearest = list(map(min, away.pop(best), nearest))
        return tuple(chosen)

    def _drawn(
        self,
        program: Program,
        n: int,
        seed: int,
        is_corner: Callable[[int], bool],
        is_short: Callable[[int], bool],
    ) -> tuple[Values, ...]:
        rng = random.Random(seed)
        found: dict[Values, None] = {}
        most = min(n, self.n_places)
        for _ in range(min(_ATTEMPTS, _EACH * most)):
            if len(found) >= most:
                break
            small = is_corner(len(found))
            values = tuple(_draw(rng, *(_corner(rng, r) if small else r)) for r in self.ranges)
            is_new = values not in self.weights and values not in found
            work = SHORT_WORK if is_short(len(found)) else MOST_WORK
            if is_new and _allowed(program, values) and _is_handy(program, values, work):
                found[values] = None
        return tuple(found)


def distance(a: Sequence[int], b: Sequence[int]) -> float:
    """Between sizes: Euclidean, in factors of two."""
    return math.sqrt(sum((math.log2((x + 1) / (y + 1))) ** 2 for x, y in zip(a, b)))


def distribution_of(
    program: Program,
    given: object,
    declared: Mapping[str, Dim | int],
    weights: Sequence[float] | None,
    seed: int,
) -> Distribution:
    """From a list of mappings, a mapping of ranges (`Sizes`, `Dim`), or None: as declared.

    Errors: SizeError for whatever does not fit the program.
    """
    if given is None or isinstance(given, Mapping):
        ranges = tuple(
            _range(name, (given or {}).get(name, declared.get(name, Dim())))
            for name in program.sizes
        )
        empty = Distribution({}, ranges)
        sizes = empty.covering(program, DRAWN, seed)
        if not sizes:
            raise SizeError("no sizes in the ranges satisfy the program's conditions")
        return Distribution({v: 1 / len(sizes) for v in sizes}, ranges, True)
    if not isinstance(given, Iterable) or isinstance(given, str):
        message = f"`sizes` is {given!r}, expected a list of mappings, or ranges"
        raise SizeError(message, hint=_as_mapping(program, ()))
    each = list(given)
    if each and all(size_value(x) is not None for x in each):  # one choice of sizes
        raise _no_mapping(program, given)
    listed = [_listed(program, x, declared) for x in each]
    if not listed:
        raise SizeError("`sizes` is empty, expected at least one mapping")
    shares = [1.0] * len(listed) if weights is None else [float(w) for w in weights]
    if len(shares) != len(listed) or not all(w >= 0 for w in shares) or not sum(shares) > 0:
        raise SizeError(f"`weights` is {weights!r}, expected {len(listed)} numbers >= 0")
    merged: dict[Values, float] = {}
    for values, share in zip(listed, shares):
        merged[values] = merged.get(values, 0.0) + share / sum(shares)
    columns = zip(program.sizes, zip(*listed))
    return Distribution(merged, tuple(_around(declared.get(n), c) for n, c in columns))


def _around(declared: Dim | int | None, listed: Sequence[int]) -> tuple[int, int, int]:
    """The declared range of a size, if it has an end; else that of the sizes listed."""
    if isinstance(declared, Dim) and declared.hi is not None:
        return _range("", declared)
    return min(listed), max(listed), 1


def _no_mapping(program: Program, given: object) -> SizeError:
    """The error shows the mapping that was meant, if it has numbers."""
    numbers = given if isinstance(given, Sequence) and not isinstance(given, str) else ()
    message = f"sizes {given!r} are no mapping of names to numbers"
    return SizeError(message, hint=_as_mapping(program, numbers))


def _as_mapping(program: Program, numbers: Sequence[object]) -> str:
    if not program.sizes:
        return f"{program.name} has no sizes: `tune()`"
    values = [*numbers, *[8] * len(program.sizes)]
    shown = ", ".join(f'"{n}": {v!r}' for n, v in zip(program.sizes, values))
    return f"as in `tune([{{{shown}}}])`"


def _listed(program: Program, given: Any, declared: Mapping[str, Dim | int]) -> Values:
    if not isinstance(given, Mapping):
        raise _no_mapping(program, given)
    unknown = [n for n in given if n not in program.sizes]
    if unknown:
        hint = f"sizes of {program.name} are {', '.join(program.sizes) or 'none'}"
        raise SizeError(f"`{unknown[0]}` is no size of {program.name}", hint=hint)
    values: list[int] = []
    for name in program.sizes:
        value = size_value(given.get(name, declared.get(name)))
        if value is None or value < 0:
            raise SizeError(f"size `{name}` of {program.name} is not given in {dict(given)!r}")
        values.append(value)
    if not _allowed(program, tuple(values)):
        raise SizeError(f"sizes {dict(given)!r} break a condition of {program.name}")
    return tuple(values)


def _allowed(program: Program, values: Values) -> bool:
    named = dict(zip(program.sizes, values, strict=True))
    return all(holds(c.condition, named) for c in program.checks)


def _is_handy(program: Program, values: Values, most_work: float) -> bool:
    """Calls of some milliseconds at most, in memory that several of them may take."""
    named = dict(zip(program.sizes, values, strict=True))
    is_quick = estimated_work(program, named) <= most_work
    return is_quick and n_elements(program, named) <= MOST_ELEMENTS


def _range(name: str, given: object) -> tuple[int, int, int]:
    given = declared_size(given)
    if isinstance(given, Dim):
        low = max(1, given.lo)
        high = max(low, UNBOUNDED) if given.hi is None else given.hi
        return low, max(low, high), given.multiple_of
    if given is None:
        raise SizeError(f"`{name}` is no integer, range or tcsym.Dim")
    return given, given, 1


def _corner(rng: random.Random, given: tuple[int, int, int]) -> tuple[int, int, int]:
    """Every second range ends at `SMALL`, if it starts there."""
    low, high, step = given
    return (low, min(high, SMALL), step) if low <= SMALL and rng.random() < 0.5 else given


def _draw(rng: random.Random, low: int, high: int, step: int) -> int:
    value = round(math.exp(rng.uniform(math.log(max(1, low)), math.log(max(1, high)))))
    rounded = max(step, round(value / step) * step) if step > 1 else value
    least, most = -(-low // step) * step, high // step * step
    return min(max(rounded, least), max(least, most))
