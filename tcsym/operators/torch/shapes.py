"""Shapes of arguments, numbers or symbols of torch -> shapes of results, for tensors without data.

Symbols stay symbols, so that a graph of torch serves all sizes; what a call would check of them
becomes assumptions of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import torch

from tcsym.index.fold import Fold
from tcsym.runtime.arguments import bind, together
from tcsym.runtime.arrays import dense_view
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.torch_views import element_type

Size = Any  # an int or a torch.SymInt
Truth = Any  # a bool or a torch.SymBool


def result_shapes(
    plan: CallPlan, tensors: Sequence[torch.Tensor], sizes: Mapping[str, Size]
) -> tuple[tuple[Size, ...], ...]:
    """As the call would make them. Errors: those of the call, where sizes are numbers."""
    shapes = [tuple(x.shape) for x in tensors]
    known = all(isinstance(e, int) for e in (*sizes.values(), *(e for s in shapes for e in s)))
    fits = [
        element_type(x.dtype, torch) is p.dtype and x.dim() == p.rank
        for x, p in zip(tensors, plan.inputs)
    ]
    if known or not all(fits):
        stand_ins = [s if known else (1,) * len(s) for s in shapes]
        views = [
            dense_view(s, p.dtype)._replace(dtype=element_type(x.dtype, torch), owner=x)
            for s, x, p in zip(stand_ins, tensors, plan.inputs)
        ]
        given = {n: e if known else 1 for n, e in sizes.items()}
        return bind(plan, together(plan, views), given or None, lambda view: view).shapes  # type: ignore[arg-type,return-value]
    return _symbolic_shapes(plan, shapes, sizes)


def _symbolic_shapes(
    plan: CallPlan, shapes: Sequence[tuple[Size, ...]], sizes: Mapping[str, Size]
) -> tuple[tuple[Size, ...], ...]:
    values: list[Size] = list(plan.initial)
    for name, value in sizes.items():
        values[plan.sizes.index(name)] = value
    for p, shape in zip(plan.inputs, shapes):
        for axis, slot in enumerate(p.slots):
            if values[slot] is None:
                values[slot] = shape[axis]
            else:
                text = f"{plan.program.name}: `{p.name}` has another size on axis {axis}"
                torch._check(values[slot] == shape[axis], _said(text))
    fold = _Symbols(dict(zip(plan.sizes, values)))
    for check in plan.program.checks:
        text = f"{plan.program.name}: {check.message}"
        torch._check(fold.condition(check.condition), _said(text))
    found = tuple(tuple(fold.index(e) for e in o.shape) for o in plan.outputs)
    for o, shape in zip(plan.outputs, found):
        for extent in shape:
            torch._check(extent >= 0, _said(f"{plan.program.name}: `{o.name}` has a negative size"))
    return found


def _said(text: str) -> Callable[[], str]:
    return lambda: text


class _Symbols(Fold[Size, Truth]):
    """Values of sizes that may be symbols: nothing here asks which of two is larger."""

    def __init__(self, values: Mapping[str, Size]) -> None:
        self.values = values

    def variable(self, name: str) -> Size:
        return self.values[name]

    def total(self, terms: Sequence[tuple[Size, int]], constant: int) -> Size:
        return reduce(lambda a, b: a + b, (value * c for value, c in terms), constant)

    def product(self, factors: Sequence[Size]) -> Size:
        return reduce(lambda a, b: a * b, factors)

    def quotient(self, a: Size, b: Size) -> Size:
        if isinstance(b, int):
            return a // b if b else 0
        return torch.sym_ite(b == 0, 0, a // torch.sym_max(b, 1))

    def remainder(self, a: Size, b: Size) -> Size:
        if isinstance(b, int):
            return a % b if b else 0
        return torch.sym_ite(b == 0, 0, a % torch.sym_max(b, 1))

    def minimum(self, args: Sequence[Size]) -> Size:
        return reduce(torch.sym_min, args)

    def maximum(self, args: Sequence[Size]) -> Size:
        return reduce(torch.sym_max, args)

    def choose(self, c: Truth, a: Size, b: Size) -> Size:
        return torch.sym_ite(c, a, b)

    def nonnegative(self, value: Size) -> Truth:
        return value >= 0

    def zero(self, value: Size) -> Truth:
        return value == 0

    def negation(self, truth: Truth) -> Truth:
        return torch.sym_not(truth)

    def every(self, truths: Iterator[Truth]) -> Truth:
        return reduce(lambda a, b: b if a is True else a if b is True else a & b, truths, True)

    def some(self, truths: Iterator[Truth]) -> Truth:
        return reduce(lambda a, b: b if a is False else a if b is False else a | b, truths, False)
