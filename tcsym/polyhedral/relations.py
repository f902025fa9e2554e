# SPDX-License-Identifier: Apache-2.0
"""Scop -> isl objects, made when a proof asks for them and kept.

The one mutable helper of this stage: a cache of domains and access relations in one isl context.
"""

from __future__ import annotations

from typing import assert_never

import islpy as isl
from msgspec import Struct, field

from tcsym.index.effort import Effort
from tcsym.index.expr import All, Any_, Condition, Index, IsZero, NonNegative, Not, all_of
from tcsym.index.presburger import Presburger
from tcsym.index.quasi_affine import is_quasi_affine
from tcsym.polyhedral.scop import Access, Scop, ScopStatement

IN, OUT = isl.dim_type.in_, isl.dim_type.out


class Relations(Struct):
    """isl objects of one scop. Every request is a step of the proof."""

    scop: Scop
    presburger: Presburger
    effort: Effort
    _accesses: dict[tuple[str, Access], isl.Map] = field(default_factory=dict)
    _domains: dict[str, isl.Set] = field(default_factory=dict)
    _context: isl.Set | None = None

    @property
    def context(self) -> isl.Set:
        """The sizes for which the program is defined."""
        if self._context is None:
            self._context = self.presburger.size_set(self.scop.context)
        return self._context

    def domain(self, s: ScopStatement) -> isl.Set:
        self.effort.step()
        if s.name not in self._domains:
            self._domains[s.name] = self.presburger.set(s.name, s.iterators, s.domain)
        return self._domains[s.name]

    def access(self, s: ScopStatement, a: Access) -> isl.Map:
        """{ s[iterators] -> tensor[position] }; over-approximated unless `is_exact`."""
        self.effort.step()
        key = (s.name, a)
        if key not in self._accesses:
            condition = all_of((s.domain, a.guard))
            self._accesses[key] = self.presburger.relation(
                s.name, s.iterators, a.tensor, a.subscripts, condition
            )
        return self._accesses[key]

    def is_exact(self, s: ScopStatement, a: Access) -> bool:
        """True if isl represents the instances and elements of that access exactly."""
        if s.given:
            return False
        sizes = self.scop.sizes
        known = [i for i in a.subscripts if i is not None]
        return len(known) == len(a.subscripts) and all(
            is_quasi_affine(e, sizes) for e in (*known, s.domain, a.guard)
        )

    def equal_for_all_sizes(self, a: Index, b: Index) -> bool:
        """a == b for all sizes of the context; False where isl cannot tell."""
        if a == b:
            return True
        sizes = frozenset(self.scop.sizes)
        if not (a.variables() <= sizes and b.variables() <= sizes):
            return False
        linear = all(isinstance(atom, str) for atom, _ in (a - b).terms)
        if linear and not _has_equality(self.scop.context):
            return False  # a linear function that is not 0 vanishes only on a plane
        self.effort.step()
        difference = self.presburger.pw_aff(a - b).non_zero_set()
        return bool(difference.params().intersect_params(self.context).is_empty())


def _has_equality(c: Condition) -> bool:
    match c:
        case IsZero():
            return True
        case All(parts) | Any_(parts):
            return any(map(_has_equality, parts))
        case NonNegative() | Not():
            return False
        case _:
            assert_never(c)
