# SPDX-License-Identifier: Apache-2.0
"""Shapes of arguments, numbers or symbols of a library -> shapes of results, without any data.

Symbols stay symbols, so that what a library traces once serves all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from tcsym.index.fold import Fold
from tcsym.runtime.arguments import bind, initial_values, require_given, together
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.view import Library, View
from tcsym.types import DType

Size = Any  # an int or a library's symbol
Truth = Any  # a bool or a library's symbol


class Symbols(Fold[Size, Truth]):
    """Values of sizes that may be symbols: nothing here asks which of two is larger."""

    def __init__(self, values: Mapping[str, Size]) -> None:
        self.values = values

    def variable(self, name: str) -> Size:
        return self.values[name]

    def total(self, terms: Sequence[tuple[Size, int]], constant: int) -> Size:
        return reduce(lambda a, b: a + b, (value * c for value, c in terms), constant)

    def product(self, factors: Sequence[Size]) -> Size:
        return reduce(lambda a, b: a * b, factors)

    def nonnegative(self, value: Size) -> Truth:
        return value >= 0

    def zero(self, value: Size) -> Truth:
        return value == 0

    def every(self, truths: Iterator[Truth]) -> Truth:
        return reduce(lambda a, b: b if a is True else a if b is True else a & b, truths, True)

    def some(self, truths: Iterator[Truth]) -> Truth:
        return reduce(lambda a, b: b if a is False else a if b is False else a | b, truths, False)

    def near_root(self, n: Size) -> Size:
        """A power of two within a factor 1.5 of the square root of n >= 0, up to 2**16."""
        return reduce(
            lambda root, k: root + 2**k * self.minimum([n // (2 * 4**k), 1]), range(16), 1
        )

    def require(self, truth: Callable[[], Truth], text: str) -> None:
        """What a call checks: tracing goes on from it."""
        raise NotImplementedError


def shape_view(shape: tuple[Size, ...], dtype: DType | None, owner: Any, library: Library) -> View:
    """An array of which only this is known. owner: what errors speak of."""
    return View(library, dtype, shape, (), 0, True, True, True, owner)


def result_shapes(
    plan: CallPlan,
    views: Sequence[View],
    sizes: Mapping[str, Size],
    symbols: type[Symbols],
) -> tuple[tuple[Size, ...], ...]:
    """As the call would make them; `views` of inputs. Errors: those of the call, where sizes are
    numbers, else those of types and ranks."""
    extents = [*sizes.values(), *(e for v in views for e in v.shape)]
    known = all(isinstance(e, int) for e in extents)
    fits = [v.dtype is p.dtype and len(v.shape) == p.rank for v, p in zip(views, plan.inputs)]
    if known or not all(fits):
        if not known:
            views = [v._replace(shape=(1,) * len(v.shape)) for v in views]
        given = {n: e if known else 1 for n, e in sizes.items()}
        return bind(plan, together(plan, views), given or None, lambda view: view).shapes  # type: ignore[arg-type,return-value]
    return _symbolic_shapes(plan, [v.shape for v in views], sizes, symbols)


def given_sizes(plan: CallPlan, given: Any, symbol: type) -> tuple[Size, ...]:
    """Values of free sizes, of which some may be symbols. Errors: those of a call."""
    symbols: dict[str, Size] = {}
    if isinstance(given, Mapping):
        symbols = {n: x for n, x in given.items() if isinstance(x, symbol)}
        given = {n: _promised(plan, n) if n in symbols else x for n, x in given.items()}
    values = initial_values(plan, given)
    require_given(plan, values)
    return tuple([symbols.get(plan.sizes[slot], values[slot]) for slot in plan.free_slots])


def _promised(plan: CallPlan, name: str) -> int:
    """The least number that a size may be, in place of one that is not known."""
    known = plan.promises.get(plan.sizes.index(name)) if name in plan.sizes else None
    return 0 if known is None else -(-known.lo // known.multiple_of) * known.multiple_of


def _symbolic_shapes(
    plan: CallPlan,
    shapes: Sequence[tuple[Size, ...]],
    sizes: Mapping[str, Size],
    symbols: type[Symbols],
) -> tuple[tuple[Size, ...], ...]:
    values: list[Size] = list(plan.initial)
    for name, value in sizes.items():
        values[plan.sizes.index(name)] = value
    fold = symbols({})
    name = plan.program.name
    for p, shape in zip(plan.inputs, shapes):
        for axis, slot in enumerate(p.slots):
            known, extent = values[slot], shape[axis]
            if known is None:
                values[slot] = extent
                continue
            text = f"{name}: `{p.name}` has size {extent} on axis {axis}, expected {known}"
            fold.require(lambda a=known, b=extent: a == b, text)  # type: ignore[misc]
    fold.values = dict(zip(plan.sizes, values))
    for check in plan.program.checks:
        text = f"{name}: {check.message}"
        fold.require(lambda c=check.condition: fold.condition(c), text)  # type: ignore[misc]
    found = tuple(tuple(fold.index(e) for e in o.shape) for o in plan.outputs)
    for o, shape in zip(plan.outputs, found):
        for extent in shape:
            fold.require(lambda e=extent: e >= 0, f"{name}: `{o.name}` has a negative size")  # type: ignore[misc]
    return found
