# SPDX-License-Identifier: Apache-2.0
"""A contraction of very long sums -> parts of them, one after the other, added element by element.

    C(i,j) = sum over k < K of A(k,i) * B(k,j)
->  P(q,i,j) = 0
    for b: for t in Q blocks of k: P(t - b*Q,i,j) += sum over block t of A(k,i) * B(k,j)
    C(i,j) = sum over q < Q of P(q,i,j)

A register tile runs over its whole sum before it stores, so the panels of long sums leave every
cache: gradients of weights sum over all rows of a batch. Blocks of the sum are the outermost loop
of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, TOMS 2008, section
4.1). Where elements are few, blocks are what threads share. How many parts there are follows from
sizes alone, never from threads: so does the result.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import (
    ZERO,
    Condition,
    Index,
    all_of,
    any_of,
    ceildiv,
    floordiv,
    ge,
    maximum,
    minimum,
    var,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, block
from tcsym.ir.traverse import substitute_node
from tcsym.schedule.analysis.access import subscript_variables, value_variables
from tcsym.schedule.analysis.band import Band, band_of, factors
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import (
    chain_of,
    children,
    find_loop,
    replace_loop,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.stage.copy_operand import depend_on_sizes
from tcsym.schedule.version.versioning import duplicate

LONG_TERMS = 4097
FEW_TERMS = 1024  # are long where the result has at most
FEW_ELEMENTS = 4096  # which are too few tiles for threads to share
ELEMENTS_EACH = 125  # for each term at most: rounds load and store them all again
BLOCK_TERMS = 1024
WHOLE_STEPS = 16  # as transposing copies take at once
LEAST_ELEMENTS = 16  # of each side: with fewer, memory is what sums wait for
MOST_PARTS = 64
PARTS_BYTES = 1 << 22


class SplitDepth(Struct, frozen=True):
    """`sums`: the nest of the blocks, a batch of contractions, whose inner loops keep their names.
    `maps`: what fills the parts, and what combines them."""

    kernel: Kernel
    sums: str
    maps: tuple[str, str]


class _Blocks(Struct, frozen=True):
    """`count` blocks of `steps` iterations of the outermost loop of the sum. `parts`: blocks whose
    sums are kept apart."""

    count: Index
    steps: Index
    parts: Index


def is_long(kernel: Kernel, nest: str) -> Condition | None:
    """Where sums of the nest are worth splitting; None: they cannot be split."""
    band = band_of(find_loop(kernel.body, nest))
    chain = _sum(kernel, band)
    if chain is None:
        return None
    terms = product_of(maximum(ZERO, extent(x)) for x in chain)
    sides = (_elements(band, value_variables(r)) for x in _updates(chain) for r in factors(x))
    total = _elements(band, frozenset(band.variables))
    few = all_of((ge(terms, FEW_TERMS), ge(FEW_ELEMENTS, total)))
    long = any_of((ge(terms, LONG_TERMS), few)), ge(ELEMENTS_EACH * terms, total)
    return all_of((*long, *(ge(n, LEAST_ELEMENTS) for n in sides)))


def _elements(band: Band, loops: frozenset[str]) -> Index:
    return product_of(extent(x) for x in band.loops if x.variable in loops)


def _sum(kernel: Kernel, band: Band) -> tuple[Loop, ...] | None:
    """The loops of the band's only sum, if nothing but sizes bounds them and the band."""
    loops = [x for x in children(band.body) if not isinstance(x, Store | Update)]
    if len(loops) != 1 or not isinstance(loops[0], Loop):
        return None
    chain = chain_of(loops[0])
    inside, targets = children(chain[-1].body), {x.buffer for x in _updates(chain)}
    alone = len(_updates(chain)) == len(inside) == len(targets)
    private = all(_is_private(kernel, x, band, chain) for x in _updates(chain))
    plain = depend_on_sizes(kernel, (*band.loops, *chain)) and chain[0].lower == ZERO
    ordered = all(x.order == "reduction" for x in chain)
    return chain if alone and private and plain and ordered else None


def _updates(chain: tuple[Loop, ...]) -> list[Update]:
    return [x for x in children(chain[-1].body) if isinstance(x, Update)]


def _is_private(kernel: Kernel, x: Update, band: Band, chain: tuple[Loop, ...]) -> bool:
    moving = subscript_variables(x.subscripts) & {y.variable for y in chain}
    return not moving and kernel.buffer(x.buffer).private >= set(band.variables)


def split_k(kernel: Kernel, nest: str, names: Names) -> SplitDepth:
    """The nest in blocks. Contract: `is_long` is not None, and no loop is around."""
    top = find_loop(kernel.body, nest)
    band = band_of(top)
    blocks = _blocks(kernel, band)
    kernel, parts = _part_buffers(kernel, band, blocks, names)
    zeros = _zeros(band, _updates(_long_sum(kernel, band)), parts, blocks, names)
    kernel, total, last = duplicate(kernel, top, names)
    kernel, rounds, batch = _rounds(kernel, top, parts, blocks, names)
    split = block(zeros, rounds, _total(kernel, total, parts, blocks, names))
    body = replace_loop(kernel.body, nest, lambda _: split)
    return SplitDepth(replace(kernel, body=body), batch, (zeros.variable, last[nest]))


def _long_sum(kernel: Kernel, band: Band) -> tuple[Loop, ...]:
    chain = _sum(kernel, band)
    assert chain is not None
    return chain


def _blocks(kernel: Kernel, band: Band) -> _Blocks:
    """An even number of blocks of a single loop, as threads mostly are; the last may be empty."""
    chain = _long_sum(kernel, band)
    n = extent(chain[0])
    if len(chain) == 1:
        pairs = maximum(1, ceildiv(n, 2 * BLOCK_TERMS))
        steps = WHOLE_STEPS * ceildiv(n, 2 * WHOLE_STEPS * pairs)
        count = 2 * pairs
    else:
        terms = product_of(map(extent, chain[1:]))
        steps = maximum(1, floordiv(BLOCK_TERMS, maximum(1, terms)))
        count = ceildiv(n, steps)
    width = sum(kernel.buffer(x.buffer).dtype.bytes for x in _updates(chain))
    elements = _elements(band, frozenset(band.variables))
    fit = floordiv(PARTS_BYTES // width, maximum(1, elements))
    return _Blocks(count, steps, maximum(1, minimum(MOST_PARTS, count, fit)))


def _part_buffers(
    kernel: Kernel, band: Band, blocks: _Blocks, names: Names
) -> tuple[Kernel, tuple[Buffer, ...]]:
    """One for each element that the band accumulates."""
    found: list[Buffer] = []
    shape = (blocks.parts, *map(extent, band.loops))
    for x in _updates(_long_sum(kernel, band)):
        b = kernel.buffer(x.buffer)
        name = names.fresh(f"{b.name}_parts")
        found.append(Buffer(name, b.dtype, shape, "arena"))
        kernel = kernel.with_buffer(found[-1])
    return kernel, tuple(found)


def _zeros(
    band: Band, updates: list[Update], parts: tuple[Buffer, ...], blocks: _Blocks, names: Names
) -> Loop:
    new = {x.variable: names.fresh(x.variable) for x in band.loops}
    part = names.fresh(band.loops[0].variable)
    at = (var(part), *(var(new[x.variable]) - x.lower for x in band.loops))
    pairs = zip(updates, parts)
    node = block(*(Store(b.name, at, identity(x.op, b.dtype), x.name) for x, b in pairs))
    for x in reversed(band.loops):
        node = Loop(new[x.variable], x.lower, x.upper, node, "serial", "parallel")
    return Loop(part, ZERO, blocks.parts, node, "serial", "parallel")


def _rounds(
    kernel: Kernel, copy: Node, parts: tuple[Buffer, ...], blocks: _Blocks, names: Names
) -> tuple[Kernel, Loop, str]:
    """Rounds of blocks, each added to its part; and the loop of the blocks."""
    assert isinstance(copy, Loop)
    band = band_of(copy)
    chain = _long_sum(kernel, band)
    step = chain[0].variable
    turn, at = names.fresh(step), names.fresh(step)
    done = var(turn) * blocks.parts
    first = (done + var(at)) * blocks.steps
    upper = maximum(ZERO, minimum(blocks.steps, chain[0].upper - first))
    inside = substitute_node(chain[0].body, {step: first + var(step)})
    place = (var(at), *_position(band))
    pairs = tuple(zip(_updates(chain), parts))
    before = (Store(x.buffer, x.subscripts, identity(x.op, b.dtype), x.name) for x, b in pairs)
    after = (Update(b.name, place, x.op, _element(x, b), x.name) for x, b in pairs)
    node = block(*before, replace(chain[0], upper=upper, body=inside), *after)
    for loop in reversed(band.loops):
        node = replace(loop, body=node)
    most = minimum(blocks.parts, blocks.count - done)
    node = Loop(at, ZERO, most, node, "serial", "parallel")
    for x, _ in pairs:
        own = kernel.buffer(x.buffer)
        kernel = kernel.with_buffer(replace(own, private=own.private | {turn, at}))
    rounds = ceildiv(blocks.count, blocks.parts)
    return kernel, Loop(turn, ZERO, rounds, node, "serial", "sequential"), at


def _total(
    kernel: Kernel, copy: Node, parts: tuple[Buffer, ...], blocks: _Blocks, names: Names
) -> Node:
    """The nest as it was, but that it sums parts."""
    assert isinstance(copy, Loop)
    band = band_of(copy)
    chain = _long_sum(kernel, band)
    part = names.fresh(chain[0].variable)
    at = (var(part), *_position(band))
    pairs = zip(_updates(chain), parts)
    sums = block(*(replace(x, value=Read(b.name, at, b.dtype)) for x, b in pairs))
    loop = Loop(part, ZERO, blocks.parts, sums, "serial", "reduction")
    return replace_loop(copy, chain[0].variable, lambda _: loop)


def _position(band: Band) -> tuple[Index, ...]:
    return tuple(var(x.variable) - x.lower for x in band.loops)


def _element(x: Update, part: Buffer) -> Read:
    return Read(x.buffer, x.subscripts, part.dtype)
