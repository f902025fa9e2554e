# SPDX-License-Identifier: Apache-2.0
"""Part + values of sizes + chunks -> the program of one block, and the blocks.

The program counts from where its block starts: dimensions of an axis are as long as their windows,
its index variables run over the part of their range that is in the block. So it is one program for
all blocks, in which where a block starts is a size if the text asks for it (guards, values). Where
it does not, and windows follow from the block, this is the program itself, at other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise, product
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.dask.axes import Axis, Place, Window
from tcsym.dask.parts import Part, fresh, with_sizes
from tcsym.frontend.program import (
    Expr,
    For,
    If,
    Item,
    Program,
    Read,
    Statement,
    Tensor,
    rewritten,
    statements,
)
from tcsym.index.expr import ONE, ZERO, Index, floordiv, maximum, minimum, var
from tcsym.index.values import condition_substitute, evaluate, holds, substitute
from tcsym.network.steps import sizes_in
from tcsym.process.recursion import depth_checked
from tcsym.rewrite.bind import bind_program

Sizes = Mapping[str, int]
Chunks = Callable[[Place], Sequence[int]]


class Cut(Struct, frozen=True):
    """An axis at work: `blocks` are starts and counts; windows have numbers.

    start, count: the sizes of the block's program that say these, where they are sizes of it.
    """

    axis: Axis
    blocks: tuple[tuple[int, int], ...]
    windows: Mapping[Place, tuple[int, int, int]]
    start: str
    count: str

    def span(self, place: Place, block: tuple[int, int]) -> tuple[int, int]:
        """From where to where a block's window goes, beyond the tensor, too."""
        (start, count), (scale, low, high) = block, self.windows[place]
        return scale * start + low, scale * (start + count - 1) + high + 1


class Blocks(Struct, frozen=True):
    """`program`: of one block. `cuts`: along axes of more than one block."""

    program: Program
    cuts: tuple[Cut, ...]


def blocks_of(part: Part, sizes: Sizes, chunks: Chunks, declared: Collection[str]) -> Blocks:
    """chunks: of a dimension of an input. declared: sizes of which something is promised."""
    program = part.program
    taken = sizes_in((program.tensors, program.body)) | {t.name for t in program.tensors}
    names = {*taken, *(v for a in part.axes for v in a.variables.values())}
    cuts = []
    for k, axis in enumerate(part.axes):
        numbers = {p: _numbers(w, sizes) for p, w in axis.windows.items()}
        blocks = _blocks(program, axis, numbers, sizes, chunks)
        if len(blocks) > 1 and all(count > 0 for _, count in blocks):
            start, count = fresh(f"start{k}", names), fresh(f"count{k}", names)
            cuts.append(Cut(axis, blocks, numbers, start, count))
    if cuts:
        program = _Rewriting(program, cuts, sizes, declared).program(names)
    return Blocks(_with_plain_inputs(program, names), tuple(cuts))


def _with_plain_inputs(program: Program, names: set[str]) -> Program:
    """What an earlier part made comes in: where its extents are formulas, they are sizes now."""
    made: dict[Index, str] = {}
    tensors = []
    for t in program.tensors:
        shape = list(t.shape)
        for d, e in enumerate(shape if t.role == "input" else ()):
            if not (e.is_constant or str(e).isidentifier()):
                if e not in made:
                    made[e] = fresh(f"{t.name}_{d}", names)
                shape[d] = var(made[e])
        tensors.append(replace(t, shape=tuple(shape)))
    if not made:
        return program
    return with_sizes(replace(program, tensors=tuple(tensors)), (*program.sizes, *made.values()))


def _numbers(w: Window, sizes: Sizes) -> tuple[int, int, int]:
    return w.scale, evaluate(w.low, sizes), evaluate(w.high, sizes)


def _blocks(
    program: Program,
    axis: Axis,
    windows: Mapping[Place, tuple[int, int, int]],
    sizes: Sizes,
    chunks: Chunks,
) -> tuple[tuple[int, int], ...]:
    """As inputs are chunked: by all that are read block by block, else by the first one."""
    inputs = {t.name for t in program.inputs}
    outputs = {t.name: t for t in program.outputs}
    places = [p for p in axis.windows if p[0] in inputs and len(chunks(p)) > 1]
    plain = [p for p in places if axis.windows[p].is_block] or places[:1]
    firsts = [evaluate(low, sizes) for low, _ in axis.sums.values()]
    lasts = [evaluate(high, sizes) for _, high in axis.sums.values()]
    extents = [evaluate(outputs[t].shape[d], sizes) for t, d in axis.windows if t in outputs]
    first, last = min([*firsts, *(0 for _ in extents)]), max([*(x + 1 for x in lasts), *extents])
    edges = {first, last}
    for place in plain:
        scale, low, high = windows[place]
        shift = min(max(low, 0), high)  # as near as may be: chunks of results as of inputs
        at = 0
        for n in chunks(place)[:-1]:
            at += n
            edges.add(min(max(-((shift - at) // scale), first), last))
    found = sorted(edges)
    return tuple((a, b - a) for a, b in pairwise(found))


class _Rewriting:
    """A program whose indices count from the start of a block. declared: names to keep clear of."""

    def __init__(
        self, program: Program, cuts: Sequence[Cut], sizes: Sizes, declared: Collection[str]
    ) -> None:
        self.whole, self.cuts, self.sizes, self.declared = program, cuts, sizes, declared
        self.cut_of = {p: c for c in cuts for p in c.axis.windows}
        self.sums = {
            s.target: c for s in statements(program.body) for c in cuts if s.name in c.axis.sums
        }

    @depth_checked
    def program(self, names: set[str]) -> Program:
        """names: those that are taken."""
        before = {*names} - {n for c in self.cuts for n in (c.start, c.count)}
        tensors = tuple(map(self._tensor, self.whole.tensors))
        body = tuple(map(self._item, self.whole.body))
        made = self._measured(replace(self.whole, tensors=tensors, body=body), names)
        if made == self.whole and self._pass_checks():
            return self.whole
        return with_sizes(replace(made, checks=()), (*self.whole.sizes, *sorted(names - before)))

    def _pass_checks(self) -> bool:
        """What the program asks of its sizes holds for those of every block."""
        of_cuts: list[list[Sizes]] = []
        for cut in self.cuts:
            spans = {
                str(t.shape[d]): (t.name, d)
                for t in self.whole.inputs
                for d in range(len(t.shape))
                if (t.name, d) in cut.windows
            }
            each = [{n: _length(cut.span(p, b)) for n, p in spans.items()} for b in cut.blocks]
            of_cuts.append(list({tuple(x.items()): x for x in each}.values()))
        for lengths in product(*of_cuts):
            sizes = {**self.sizes, **{n: v for x in lengths for n, v in x.items()}}
            if not all(holds(check.condition, sizes) for check in self.whole.checks):
                return False
        return True

    # ---- how long dimensions are

    def _extent(self, place: Place) -> Index:
        cut = self.cut_of[place]
        w = cut.axis.windows[place]
        return (var(cut.count) - ONE) * w.scale + (w.high - w.low) + ONE

    def _tensor(self, t: Tensor) -> Tensor:
        places = [(t.name, d) for d in range(len(t.shape))]
        shape = [self._extent(p) if p in self.cut_of else e for p, e in zip(places, t.shape)]
        if t.role == "output":
            shape = [self._result_extent(p, e) for p, e in zip(places, t.shape)]
        dtype = t.dtype.accumulator if t.name in self.sums else t.dtype
        return replace(t, shape=tuple(shape), dtype=dtype)

    def _result_extent(self, place: Place, extent: Index) -> Index:
        """Results of one axis need not be of one length: one may end within a block, or before."""
        cut = self.cut_of.get(place)
        if cut is None:
            return extent
        start, count = var(cut.start), var(cut.count)
        if self._is_always(cut, extent - start - count):
            return count
        return maximum(minimum(extent - start, count), ZERO)

    def _measured(self, made: Program, names: set[str]) -> Program:
        """Windows of inputs are sizes. The first one of an axis says how long the block is."""
        inputs = {t.name: list(t.shape) for t in self.whole.inputs}
        others = [
            e for t, s in inputs.items() for d, e in enumerate(s) if (t, d) not in self.cut_of
        ]
        results = [t for t in made.tensors if t.role != "input"]
        ends = [e for w in _all_windows(self.cuts) for e in (w.low, w.high)]
        used = {*sizes_in((made.body, results, others, ends)), *self.declared}
        counts: dict[str, Index] = {}
        for cut in self.cuts:
            windows = {p: w for p, w in cut.axis.windows.items() if p[0] in inputs}
            block: Index | None = None  # the size of all windows that are as long as the block
            for place in sorted(windows, key=lambda p: not windows[p].is_block):
                w, (name, d) = windows[place], place
                if block is not None and w.is_block:
                    inputs[name][d] = block
                    continue
                plain = str(inputs[name][d])
                is_free = plain.isidentifier() and plain not in used
                size = plain if is_free else fresh(f"{name}_{d}", names)
                used.add(size)
                inputs[name][d] = var(size)
                block = block or (var(size) if w.is_block else None)
                if cut.count not in counts:
                    spread = w.high - w.low
                    counts[cut.count] = floordiv(var(size) - ONE - spread, w.scale) + ONE
        made = bind_program(made, counts)
        shaped = [
            replace(t, shape=tuple(inputs[t.name])) if t.name in inputs else t for t in made.tensors
        ]
        return replace(made, tensors=tuple(shaped))

    # ---- what runs

    def _item(self, item: Item) -> Item:
        match item:
            case Statement():
                return self._statement(item)
            case For():
                return replace(item, body=tuple(map(self._item, item.body)))
            case If():
                arms = [tuple(map(self._item, arm)) for arm in (item.then, item.orelse)]
                return replace(item, then=arms[0], orelse=arms[1])
            case _:
                assert_never(item)

    def _statement(self, s: Statement) -> Statement:
        values: dict[str, Index] = {}
        own: dict[str, tuple[Cut, Index, Index]] = {}
        for cut in self.cuts:
            variable = cut.axis.variables[s.name]
            base, extent = var(cut.start), var(cut.count)
            if s.name not in cut.axis.sums:
                place = s.target, s.subscripts.index(var(variable))
                base, extent = self._base(place), self._extent(place)
            values[variable] = var(variable) + base
            own[variable] = cut, base, extent
        moved = _Moved(values, self._base)
        domain = []
        for r in s.domain:
            lower, upper = moved.index(r.lower), moved.index(r.upper)
            if r.variable in own:
                lower, upper = self._clipped(lower, upper, *own[r.variable])
            domain.append(replace(r, lower=lower, upper=upper, at=moved.position(r.at)))
        return replace(
            s,
            domain=tuple(domain),
            value=moved.expression(s.value),
            exists=tuple(map(moved.expression, s.exists)),
            given=tuple(replace(g, value=moved.expression(g.value)) for g in s.given),
        )

    def _base(self, place: Place) -> Index:
        cut = self.cut_of.get(place)
        if cut is None:
            return ZERO
        w = cut.axis.windows[place]
        return var(cut.start) * w.scale + w.low

    def _clipped(
        self, lower: Index, upper: Index, cut: Cut, base: Index, extent: Index
    ) -> tuple[Index, Index]:
        """The part of a range that is in the block, counted from its start."""
        lower, upper = lower - base, upper - base
        first = ZERO if self._is_always(cut, -lower) else maximum(lower, ZERO)
        last = extent if self._is_always(cut, upper - extent) else minimum(upper, extent)
        return first, last if self._is_always(cut, last - first) else maximum(last, first)

    def _is_always(self, cut: Cut, e: Index) -> bool:
        """Not negative, in every block."""
        if not e.variables() <= {*self.sizes, cut.start, cut.count}:
            return False
        blocks = [{cut.start: start, cut.count: count} for start, count in cut.blocks]
        return all(evaluate(e, {**self.sizes, **block}) >= 0 for block in blocks)


def _all_windows(cuts: Sequence[Cut]) -> list[Window]:
    return [w for cut in cuts for w in cut.axis.windows.values()]


def _length(span: tuple[int, int]) -> int:
    return span[1] - span[0]


class _Moved(Struct, frozen=True):
    """Index variables have other `values`; what they subscript begins at its `base`."""

    values: Mapping[str, Index]
    base: Callable[[Place], Index]

    def index(self, e: Index) -> Index:
        return substitute(e, self.values)

    def position(self, at: Index | Expr | None) -> Index | Expr | None:
        if at is None:
            return None
        return self.index(at) if isinstance(at, Index) else self.expression(at)

    def expression(self, e: Expr) -> Expr:
        return rewritten(e, self._changed, self.index)

    def _changed(self, made: Expr, _: Expr) -> Expr:
        if not isinstance(made, Read):
            return made
        subscripts = [
            s - self.base((made.tensor, d)) if isinstance(s, Index) else s
            for d, s in enumerate(made.subscripts)
        ]
        unwritten = made.unwritten
        if unwritten is not None:
            unwritten = condition_substitute(unwritten, self.values)
        return replace(made, subscripts=tuple(subscripts), unwritten=unwritten)
