# SPDX-License-Identifier: Apache-2.0
"""Sizes that are promised to be multiples -> kernels in their quotients, and back.

A size `K` that is a multiple of 16 is written `16*q` while a kernel is mapped: ends of tiles and
vectors cancel, so no masks, minima and remainders are made where nothing remains. Afterwards `q` is
`K/16` again, or `16*q` is `K`. Code made so is right for multiples only: calls are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.index.expr import (
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Product,
    choose,
    factors_of,
    floordiv,
    index,
    maximum,
    minimum,
    mod,
    of_atom,
    var,
)
from tcsym.index.straight_line import of_multiples
from tcsym.index.values import map_condition, substitute
from tcsym.ir.loops import Buffer, Kernel
from tcsym.ir.traverse import map_node
from tcsym.sizes.context import Known

Steps = Mapping[str, tuple[str, int]]  # quotient: the size, and what it is a multiple of


def in_quotients(kernel: Kernel) -> Kernel:
    """The kernel with quotients for sizes, where its context promises multiples."""
    steps = _steps(kernel)
    if not steps:
        return kernel
    values = {size: var(q) * step for q, (size, step) in steps.items()}
    names = {size: q for q, (size, _) in steps.items()}
    changed = _rewritten(kernel, lambda e: substitute(e, values))
    context = tuple(_of_quotient(known, names) for known in kernel.context)
    return replace(changed, sizes=tuple(names.get(n, n) for n in kernel.sizes), context=context)


def in_sizes(kernel: Kernel, original: Kernel) -> Kernel:
    """A kernel that was made from `in_quotients(original)`, in the sizes of `original`."""
    steps = _steps(original)
    if not steps:
        return kernel
    changed = _rewritten(kernel, _Restore(steps).index)
    choices = tuple(replace(c, costs=of_multiples(c.costs, steps)) for c in kernel.choices)
    return replace(changed, sizes=original.sizes, context=original.context, choices=choices)


def condition_in_sizes(condition: Condition, original: Kernel) -> Condition:
    """A condition on the sizes of `in_quotients(original)`, on those of `original`."""
    steps = _steps(original)
    return map_condition(condition, _Restore(steps).index) if steps else condition


def index_in_sizes(e: Index, original: Kernel) -> Index:
    """An expression in the sizes of `in_quotients(original)`, in those of `original`."""
    steps = _steps(original)
    return _Restore(steps).index(e) if steps else e


def quotients(sizes: Iterable[str]) -> dict[str, Index]:
    """The values of sizes that are written in quotients, which are among these."""
    parts = ((q, q.rpartition("/")) for q in sizes if "/" in q)
    return {size: var(q) * int(step) for q, (size, _, step) in parts}


def _steps(kernel: Kernel) -> Steps:
    return {f"{k.name}/{k.step}": (k.name, k.step) for k in kernel.context if k.step > 1}


def _of_quotient(known: Known, names: Mapping[str, str]) -> Known:
    if known.step == 1:
        return known
    high = None if known.high is None else known.high // known.step
    return Known(names[known.name], -(-known.low // known.step), high)


def _rewritten(kernel: Kernel, change: Callable[[Index], Index]) -> Kernel:
    def buffer(b: Buffer) -> Buffer:
        strides = None if b.strides is None else tuple(map(change, b.strides))
        scanned = map_condition(b.scanned, change)
        shape = tuple(map(change, b.shape))
        return replace(b, shape=shape, strides=strides, scanned=scanned)

    body = map_node(kernel.body, on_index=change)
    left_out = map_condition(kernel.left_out, change)
    buffers = tuple(map(buffer, kernel.buffers))
    return replace(kernel, buffers=buffers, body=body, left_out=left_out)


class _Restore(Struct, frozen=True):
    """found: expressions in sizes by those in quotients, as these share parts."""

    steps: Steps
    found: dict[Index, Index] = field(default_factory=dict)

    def index(self, e: Index) -> Index:
        if e not in self.found:
            self.found[e] = self._sum(e)
        return self.found[e]

    def _sum(self, e: Index) -> Index:
        total = index(e.constant)
        for atom, c in e.terms:
            factors = factors_of(atom)
            part = index(1)
            for f in factors:
                size, step = self.steps.get(f, ("", 1)) if isinstance(f, str) else ("", 1)
                if not size:
                    part = part * self._atom(f)
                elif c % step == 0:
                    c, part = c // step, part * var(size)
                else:
                    part = part * floordiv(var(size), step)
            total = total + part * c
        return total

    def _atom(self, atom: Atom) -> Index:
        go = self.index
        match atom:
            case FloorDiv(a, b):
                return floordiv(go(a), go(b))
            case Mod(a, b):
                return mod(go(a), go(b))
            case Min(args):
                return minimum(*map(go, args))
            case Max(args):
                return maximum(*map(go, args))
            case Choose(c, a, b):
                return choose(map_condition(c, go), go(a), go(b))
            case str() | Product():
                return of_atom(atom)
