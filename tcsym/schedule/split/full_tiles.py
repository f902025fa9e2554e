# SPDX-License-Identifier: Apache-2.0
"""Stores of a tile's points that may be ragged -> plain stores where the tile is full.

Without mask registers a masked vector is stored in up to three pieces, under branches, and a row
that may be absent costs a branch. With them a masked store of a whole line first reads the line, a
plain one does not. So a nest of unrolled and vector loops that writes memory is there for full
tiles without masks, for tiles of which exactly half of the vectors are used, and for ragged ones,
where only the vector at the edge is masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec.structs import replace

from tcsym.frontend.program import Call
from tcsym.index.expr import FALSE, TRUE, Condition, all_of, eq, ge
from tcsym.index.values import substitute
from tcsym.ir.bounds import eliminate, extent
from tcsym.ir.loops import Block, Branch, Kernel, Loop, Node, Store, Update, Value
from tcsym.ir.traverse import map_inner, map_node, subvalues, walk
from tcsym.schedule.analysis.loops import replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.version.versioning import Copies

LEAST_VECTORS = 2
CHEAP_CALLS = frozenset(("fabs", "fma", "fmax", "fmin", "sqrt"))


def full_tiles(kernel: Kernel, names: Names) -> Kernel:
    """Every nest of point loops that stores masked vectors gets a version without masks.

    Contract: point loops contain no other loops.
    """
    copies = Copies(kernel, names)
    body = _outside_tiles(copies, kernel.body)
    return replace(copies.kernel, body=body)


def _outside_tiles(copies: Copies, node: Node) -> Node:
    def inside(x: Node) -> Node:
        return _outside_tiles(copies, x)

    if isinstance(node, Loop) and node.kind in ("unrolled", "vector"):
        return _two_versions(node, copies) if _stores_masked(copies.kernel, node) else node
    return map_inner(node, inside)


def _stores_masked(kernel: Kernel, nest: Loop) -> bool:
    """Several masked vectors go to memory, and computing them is not most of the work."""
    n_vectors = 0
    for x, around in walk(nest):
        if isinstance(x, Loop | Block):
            continue
        if not isinstance(x, Store | Update) or not is_cheap(x.value):
            return False
        if kernel.buffer(x.buffer).space != "register":
            n_vectors += _masked_vectors(around)
    return n_vectors >= LEAST_VECTORS


def is_cheap(v: Value) -> bool:
    """No function of more than an instruction or two is called."""
    return all(x.function in CHEAP_CALLS for x in subvalues(v) if isinstance(x, Call))


def _masked_vectors(around: tuple[Loop, ...]) -> int:
    """How many vectors a statement inside these point loops stores; 0 if not masked ones."""
    if not any(x.kind == "vector" and x.mask is not None for x in around):
        return 0
    return math.prod(extent(x).as_int() or 1 for x in around if x.kind == "unrolled")


def _two_versions(nest: Loop, copies: Copies) -> Node:
    full = all_of(_is_full(x, around) for x, around in walk(nest) if isinstance(x, Loop))
    if full == TRUE:
        return map_node(nest, _without_mask)
    others = _ragged(copies.of(nest), copies)
    for half, fits in _halves(nest):
        others = Branch(fits, copies.of(map_node(half, _without_mask)), others)
    return Branch(full, map_node(nest, _without_mask), others)


def _with_loop(nest: Node, loop: Loop) -> Node:
    return replace_loop(nest, loop.variable, lambda _: loop)


def _halves(nest: Loop) -> Iterator[tuple[Loop, Condition]]:
    """The nest with half of its vectors, and when these are full and nothing is in the others."""
    for vectors in (x for x, _ in walk(nest) if isinstance(x, Loop) and x.kind == "unrolled"):
        n, lanes = extent(vectors).as_int(), vectors.body
        if not isinstance(lanes, Loop) or lanes.mask is None or not n or n % 2:
            continue
        first = replace(vectors, upper=vectors.lower + n // 2)
        beyond = substitute(lanes.mask, {vectors.variable: first.upper})
        half = _with_loop(nest, first)
        assert isinstance(half, Loop)
        full = all_of(_is_full(x, around) for x, around in walk(half) if isinstance(x, Loop))
        fits = all_of((full, eq(beyond, 0)))
        if lanes.kind == "vector" and vectors.variable in lanes.mask.variables() and fits != FALSE:
            yield half, fits


def _is_full(loop: Loop, around: tuple[Loop, ...]) -> Condition:
    """No point of `loop` is masked, whatever the point loops around it."""
    if loop.mask is None:
        return TRUE
    unmasked = tuple(replace(x, mask=None) for x in around)
    least = eliminate(loop.mask - loop.upper, unmasked, False)
    return FALSE if least is None else ge(least, 0)


def _without_mask(x: Node) -> Node:
    return replace(x, mask=None) if isinstance(x, Loop) else x


def _ragged(nest: Node, copies: Copies) -> Node:
    """Only vectors that are partly inside are masked; those outside do nothing."""

    def vector(x: Node) -> Node:
        if not (isinstance(x, Loop) and x.kind == "vector" and x.mask is not None):
            return x
        edge = Branch(ge(x.mask, 1), copies.of(x))
        return Branch(ge(x.mask, x.upper), replace(x, mask=None), edge)

    return map_node(nest, vector)
