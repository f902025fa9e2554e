# SPDX-License-Identifier: Apache-2.0
"""What a contraction is: sums whose terms rows and columns of the result share."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, ZERO, Index
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Loop, Update, Value
from tcsym.ir.traverse import loads
from tcsym.mapping.nest import Access, Nest, Statement, places, runs_on
from tcsym.mapping.stage import largest_part
from tcsym.mapping.tree import variables_of


class Sum(Struct, frozen=True):
    """update: what is added. loops: of its terms, outermost first. reads: its operands; wide, tall:
    what columns move of them, and what rows do."""

    update: Update
    loops: tuple[Loop, ...]
    reads: tuple[Access, ...]
    wide: tuple[Access, ...]
    tall: tuple[Access, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(x.variable for x in self.loops)

    @property
    def terms(self) -> Index:
        return product_of(map(extent, self.loops))

    def is_computed(self, a: Access) -> bool:
        """What is read is a part of a larger value, which moves as it does."""
        return not isinstance(self.part(a), Read)

    def part(self, a: Access) -> Value:
        inside = {x.variable for x in self.loops}
        bands = variables_of(s for r in loads(self.update.value) for s in places(r))
        return largest_part(self.update.value, a.buffer, inside | bands)

    def apart(self, side: tuple[Access, ...]) -> list[Access]:
        """Without operands that are in the part of another one."""
        parts = {a: self.part(a) for a in side}

        def is_inside(a: Access, k: int) -> bool:
            return any(
                a.buffer in {r.tensor for r in loads(part)} and (part != parts[a] or n < k)
                for n, (b, part) in enumerate(parts.items())
                if b != a
            )

        return [a for k, a in enumerate(side) if not is_inside(a, k)]


class Contraction(Struct, frozen=True):
    """columns: the loop of the band along which results lie nearest; rows: another, or None.
    joined: columns and loops right around them that go on as they do, outermost first."""

    columns: str
    rows: str | None
    sums: tuple[Sum, ...]
    joined: tuple[str, ...]

    @property
    def in_registers(self) -> int:
        """Sums that a tile has for each of its elements."""
        return len({x.update.buffer for x in self.sums})

    @property
    def is_window(self) -> bool:
        """Columns share elements of their operand, which a panel would have several times."""
        return any(
            {self.columns} < s.variables() and s.variables() & {x.variable for x in sum_.loops}
            for sum_ in self.sums
            for a in sum_.wide
            for s in a.subscripts
        )


def contraction(nest: Nest, wanted: str | None = None) -> Contraction | None:
    """The nest as a contraction, if it is one as a whole. wanted: the loop of rows, if it can be
    one."""
    updates = [s for s in nest.statements if isinstance(s.node, Update)]
    if not updates or _other_loops(nest, updates):
        return None
    steps = {v: nest.stride(nest.result, v) or ZERO for v in nest.names}
    known = sorted((x.constant, v) for v, x in steps.items() if x.is_constant and x.constant > 0)
    if not known or known[0][0] in [x for x, _ in known[1:]]:
        return None
    columns, sums = known[0][1], tuple(_sums(nest, updates, known[0][1]))
    if len(sums) != len(updates):
        return None
    rows = [v for v in nest.names if all(_is_row(nest, v, x) for x in sums)]
    if not rows and not all(x.tall for x in sums):
        return None
    chosen = wanted if wanted in rows else _along(nest, sums, rows)
    if chosen is not None:
        sums = tuple(replace(x, tall=_moved(nest, x.tall, chosen)) for x in sums)
    return Contraction(columns, chosen, sums, _joined(nest, sums, columns))


def _other_loops(nest: Nest, updates: list[Statement]) -> bool:
    """There are loops inside of the band that are not of a sum."""
    own = {x.variable for s in updates for x in s.around[len(nest.band) :]}
    inner = nest.inner
    return own != {x.variable for x in inner} or any(x.order != "reduction" for x in inner)


def _sums(nest: Nest, updates: list[Statement], columns: str) -> Iterator[Sum]:
    for s in updates:
        loops, reads = s.around[len(nest.band) :], tuple(dict.fromkeys(s.accesses[1:]))
        wide = _moved(nest, reads, columns)
        if loops and wide and isinstance(s.node, Update):
            yield Sum(s.node, loops, reads, wide, tuple(a for a in reads if a not in wide))


def _moved(nest: Nest, reads: tuple[Access, ...], v: str) -> tuple[Access, ...]:
    return tuple(a for a in reads if nest.moves(a, v))


def _is_row(nest: Nest, v: str, x: Sum) -> bool:
    """It moves something that columns do not, and leaves in place what they move."""
    return bool(_moved(nest, x.tall, v)) and not _moved(nest, x.wide, v)


def _along(nest: Nest, sums: tuple[Sum, ...], rows: list[str]) -> str | None:
    """Of several loops of rows the one along which their operands lie, so that a tile finds what
    it needs side by side; or the last one."""
    moved = {v: [a for x in sums for a in _moved(nest, x.tall, v)] for v in reversed(rows)}
    near = (v for v, reads in moved.items() if all(nest.stride(a, v) == ONE for a in reads))
    return next(near, rows[-1] if rows else None)


def _joined(nest: Nest, sums: tuple[Sum, ...], v: str) -> tuple[str, ...]:
    """Loops right around `v` that move only what it moves, and along which results run on."""
    found, k = [v], nest.names.index(v)
    written = (s.accesses[0] for s in nest.statements)
    lasting = [a for a in written if nest.lasts(a.buffer)]
    while k:
        other, inner = nest.names[k - 1], nest.band[k]
        own = all(_moved(nest, x.wide, other) and not _moved(nest, x.tall, other) for x in sums)
        go_on = (
            runs_on(nest.buffers[a.buffer], a.subscripts, other, inner.variable, extent(inner))
            for a in lasting
        )
        if not own or not all(go_on):
            break
        found.insert(0, other)
        k -= 1
    return tuple(found)
