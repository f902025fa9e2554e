# SPDX-License-Identifier: Apache-2.0
"""Kernel of a device -> the same with numbers of 32 bits in its grids, where sizes let them fit.

A device adds and multiplies 64 bits in several instructions, and divides them in a hundred. Sums
and products may wrap, as long as what comes of them fits: what is compared and divided, ends of
loops, and each part of an address in bytes. So a bound of each such number is a condition on sizes;
those for which one does not hold are left to another kernel. Numbers that tensors hold keep 64
bits, and so does what is made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import is_position_name
from tcsym.index.expr import (
    ONE,
    ZERO,
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Product,
    all_of,
    any_of,
    ceildiv,
    condition_parts,
    condition_variables,
    ge,
    index,
    maximum,
    of_atom,
    var,
)
from tcsym.index.values import conjuncts, product_of
from tcsym.ir.bounds import extent
from tcsym.ir.compiled import ARENA_LINE
from tcsym.ir.device import MOST_STAYING
from tcsym.ir.loops import Kernel, Loop
from tcsym.ir.traverse import grids, map_node, walk
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.loops import conditions_around, loops_in
from tcsym.sizes.context import Interval, interval

LIMIT = 1 << 31  # the first number that is no index of 32 bits


def narrowed(kernel: Kernel) -> Kernel:
    """With what it leaves out."""
    strides = frozenset[str]().union(
        *(s.variables() for b in kernel.buffers for s in b.strides or ())
    )
    sizes = {n: Interval(0) for n in kernel.sizes if n not in strides}
    sizes |= {b.phase: Interval(0, ARENA_LINE) for b in kernel.buffers if b.phase}
    loops = {x.variable: x for x in loops_in(kernel.body)}
    left: list[Condition] = [kernel.left_out]
    for region, under in _regions(kernel):
        found = _Bounds(strides, sizes, loops)
        found.note_all(region, kernel)
        left.append(all_of((*under, any_of([ge(e, LIMIT) for e in _largest(found.needed)]))))
    return replace(kernel, left_out=any_of(left), narrow=True)


def _regions(kernel: Kernel) -> Iterator[tuple[Loop, list[Condition]]]:
    """Launched grids, and what sizes tell of when they run."""
    found = (next((y for y in a if y.kind == "grid"), x) for x, a in grids(kernel.body))
    for region in {x.variable: x for x in found}.values():
        around = conditions_around(kernel.body, region.variable)
        parts = (x for c in around for x in conjuncts(c))
        yield region, [x for x in parts if condition_variables(x) <= {*kernel.sizes}]


class _Bounds(Struct):
    """Of the size of numbers, as expressions in sizes. What tensors decide counts as 1, as it is
    not added in 32 bits. needed: what must be below the limit."""

    strides: frozenset[str]
    ranges: dict[str, Interval]
    loops: dict[str, Loop]
    needed: dict[Index, None] = field(default_factory=dict)
    known: dict[Index | str, Index] = field(default_factory=dict)
    intervals: dict[Index, Interval] = field(default_factory=dict)

    def note_all(self, region: Loop, kernel: Kernel) -> None:
        def noted(e: Index) -> Index:
            self.note(e)
            return e

        map_node(region, on_index=noted)
        for nest, _ in grids(region):
            blocks = [x for x, _ in walk(nest) if isinstance(x, Loop) and x.kind == "block"]
            staying = MOST_STAYING * (region.kind == "grid")
            self.note(product_of(map(extent, blocks)) + staying)
        for a in accesses(region):
            b = kernel.buffer(a.buffer)
            steps = zip(a.subscripts, b.element_strides(), strict=True)
            self.note(sum((s * n for s, n in steps if isinstance(s, Index)), ZERO), b.dtype.bytes)

    def note(self, e: Index, times: int = 1) -> None:
        most = self.of(e) * times
        if most.terms:
            self.needed[most] = None

    def of(self, e: Index) -> Index:
        if e not in self.known:
            whole = interval(e, self.ranges, self.intervals)
            if whole.low is not None and whole.high is not None:
                return index(max(-whole.low, whole.high))
            parts = (self.of_atom(atom) * abs(c) for atom, c in e.terms)
            self.known[e] = sum(parts, index(abs(e.constant)))
        return self.known[e]

    def of_atom(self, atom: Atom) -> Index:
        match atom:
            case str():
                return self.of_variable(atom)
            case Product(factors):
                whole = ONE
                for f in factors:  # a product of three may not even fit 64 bits
                    whole = whole * self.of(of_atom(f))
                    self.needed[whole] = None
                return whole
            case FloorDiv(a, b):
                self.note(b)
                self.note(a)
                by = b.as_int() or 1
                return ceildiv(self.of(a), by) if by > 1 else self.of(a)
            case Mod(a, b):
                self.note(a)
                self.note(b)
                return self.of(b)
            case Min(args) | Max(args):
                return self.greatest(*args)
            case Choose(c, a, b):
                for x in condition_parts(c):
                    self.note(x)
                return self.greatest(a, b)

    def greatest(self, *args: Index) -> Index:
        for x in args:
            self.note(x)
        bounds = list(_largest(dict.fromkeys(self.of(x) for x in args)))
        return maximum(*bounds) if bounds else ZERO

    def of_variable(self, v: str) -> Index:
        if is_position_name(v):
            return ONE
        loop = self.loops.get(v)
        if loop is None:
            return maximum(var(v), -var(v)) if v in self.strides else var(v)
        if loop.value is not None or loop.at is not None:
            return ONE
        if v not in self.known:
            most = self.greatest(loop.lower, loop.upper)
            self.known[v] = most if loop.below is None else self.of(loop.below)
        return self.known[v]


def _largest(bounds: Iterable[Index]) -> Iterator[Index]:
    """Without those that another is never less than."""
    kept: list[Index] = []
    for e in bounds:
        if not any(_is_within(e, other) for other in kept):
            kept = [other for other in kept if not _is_within(other, e)]
            kept.append(e)
    yield from kept


def _is_within(e: Index, other: Index) -> bool:
    """Plainly, as all parts of bounds are not negative."""
    rest = other - e
    return rest.constant >= 0 and all(c > 0 for _, c in rest.terms)
