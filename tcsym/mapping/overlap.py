# SPDX-License-Identifier: Apache-2.0
"""Ragged tiles that begin farther back, so that they are whole: some results are made twice.

Where a loop has as many iterations as a tile, no tile has masks then. What is in registers is of
the tile; only places in memory begin farther back.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import IndexValue, Read
from tcsym.index.expr import ZERO, Condition, Index, all_of, ge, minimum, var
from tcsym.index.values import substitute
from tcsym.ir.loops import Holds, Loop, Node, Store, Update, Value
from tcsym.ir.traverse import loads, map_node, map_value, substitute_value, walk
from tcsym.mapping.plan import Refused
from tcsym.mapping.tree import Mapping_, accessed, moved, variables_of


class Overlap(Struct, frozen=True):
    """masks: loops of points, each with how many are left for the last of a tile's copies."""

    m: Mapping_
    masks: tuple[tuple[Loop, Index], ...]

    @property
    def fits(self) -> Condition:
        """There are as many iterations as a tile has."""
        first = dict.fromkeys(self._tiles, ZERO)
        return all_of(ge(substitute(n, first), x.upper) for x, n in self.masks)

    def shifted(self, node: Node) -> Node:
        """A tile without masks, as far back as it has to begin."""
        self._check(node)
        shift = {x.variable: var(x.variable) + self._back(x, n) for x, n in self.masks}

        def value(v: Value) -> Value:
            if isinstance(v, Read):
                of_all = variables_of(v.subscripts) & self._tiles
                return v if self._is_own(v.tensor) and not of_all else moved(v, shift)
            return substitute_value(v, shift) if isinstance(v, IndexValue | Holds) else v

        def statement(s: Node) -> Node:
            if not isinstance(s, Store | Update):
                return s
            s = replace(s, value=map_value(s.value, value, lambda i: i))
            if self._is_own(s.buffer):
                return s
            return replace(s, subscripts=tuple(substitute(i, shift) for i in s.subscripts))

        return map_node(node, statement)

    @property
    def _tiles(self) -> frozenset[str]:
        return frozenset(v for v, end in self.m.ends.items() if end == "overlap")

    def _back(self, x: Loop, left: Index) -> Index:
        start = substitute(left, dict.fromkeys(self._tiles, ZERO)) - left
        return minimum(start, start + left - x.upper) - start

    def _is_own(self, buffer: str) -> bool:
        return buffer in self.m.own or buffer in self.m.made

    def _check(self, node: Node) -> None:
        """Results may be made twice, and temporaries do not move from tile to tile."""
        written = {x.buffer for x, _ in walk(node) if isinstance(x, Store | Update)}
        for x, _ in walk(self.m.node):
            if isinstance(x, Store | Update):
                again = {r.tensor for r in loads(x.value)} & written
                again |= {x.buffer} & written if isinstance(x, Update) else set()
                far = sorted(b for b in again if not self._is_own(b))
                if far:
                    raise Refused(f"{far[0]} would be changed twice where tiles overlap")
        for v in sorted(variables_of(n for _, n in self.masks) - self.m.sizes - self._tiles):
            raise Refused(f"tiles that overlap are of one size, and {v} moves it")
        for b, at, *_ in accessed(node):
            if b in written and self._is_own(b) and variables_of(at) & self._tiles:
                raise Refused(f"{b} has a place for each tile, which overlap")
