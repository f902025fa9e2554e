# SPDX-License-Identifier: Apache-2.0
"""Index expressions of a loop -> the same over parameters, numbered in the order of their use.

What is known outside the kernel's loops becomes a parameter; sums and products are put in an order
that does not depend on names. So expressions of alike loops become equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from tcsym.index.expr import (
    ONE,
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
    floordiv,
    maximum,
    minimum,
    mod,
    of_atom,
    var,
    weighted_sum,
)
from tcsym.index.values import map_condition, product_of

Terms = tuple[tuple[Atom, int], ...]


class Parameters:
    """`known`: sizes. `bound`: variables of the loop. `outer`: those of loops around it, as used.

    `numbers`: the parameters' names, in the order of `values`.
    """

    def __init__(self, known: frozenset[str], defined: Iterable[str]) -> None:
        self.known = known
        self.bound = {name: f"v{k}" for k, name in enumerate(dict.fromkeys(defined))}
        self.outer: dict[str, str] = {}
        self.shapes: dict[Index, str] = {}  # expressions share their parts
        self.indices: dict[tuple[str, Index], Index] = {}
        self.numbers: dict[object, str] = {}
        self.values: list[Index] = []
        self.role = ""  # the buffer or mask whose indices are being looked at

    def number(self, value: Index, position: object = None) -> Index:
        """A parameter for `value`: the same one for equal values of one buffer, or one position."""
        key = (self.role, value) if position is None else position
        if key not in self.numbers:
            self.numbers[key] = f"s{len(self.numbers)}"
            self.values.append(value)
        return var(self.numbers[key])

    def index(self, e: Index) -> Index:
        """`e` with the parts that are known outside the kernel's loops as parameters."""
        names = e.variables()
        if not names:
            return e
        if names <= self.known:
            return self.number(e)
        key = self.role, e
        found = self.indices.get(key)
        if found is None:
            found = self.indices[key] = self._parameterised(e)
        return found

    def _parameterised(self, e: Index) -> Index:
        fixed, moving = self.parted(e.terms)
        if len(moving) > 1:
            moving = tuple(sorted(moving, key=lambda t: (self.shape_of(t[0]), t[1])))
        parts = [(self.number(Index(fixed)), 1)] if fixed else []
        parts += [(self.atom(atom), coefficient) for atom, coefficient in moving]
        return weighted_sum(parts, e.constant)

    def parted(self, terms: Terms) -> tuple[Terms, Terms]:
        """Terms that are known outside the kernel's loops, and the others."""
        known = [self.is_known(atom) for atom, _ in terms]
        if not any(known):
            return (), terms
        fixed = tuple([t for t, is_known in zip(terms, known) if is_known])
        return fixed, tuple([t for t, is_known in zip(terms, known) if not is_known])

    def is_known(self, atom: Atom) -> bool:
        """True if it has the same value in all of the kernel's loops."""
        if isinstance(atom, str):
            return atom in self.known
        return of_atom(atom).variables() <= self.known

    def atom(self, atom: Atom) -> Index:
        match atom:
            case str():
                return var(self.variable(atom))
            case Product(factors):
                fixed = [of_atom(f) for f in factors if self.is_known(f)]
                moving = [f for f in factors if not self.is_known(f)]
                total = ONE
                if fixed:
                    sizes = product_of(fixed)
                    total = self.number(sizes)
                return total * product_of(map(self.atom, sorted(moving, key=self.shape_of)))
            case FloorDiv(a, b):
                return floordiv(self.index(a), self.index(b))
            case Mod(a, b):
                return mod(self.index(a), self.index(b))
            case Min(args):
                return minimum(*map(self.index, sorted(args, key=self.sum_shape)))
            case Max(args):
                return maximum(*map(self.index, sorted(args, key=self.sum_shape)))
            case Choose(c, a, b):
                return choose(self.condition(c), self.index(a), self.index(b))
            case _:
                assert_never(atom)

    def variable(self, name: str) -> str:
        if name in self.bound:
            return self.bound[name]
        if name not in self.outer:
            self.outer[name] = f"o{len(self.outer)}"
        return self.outer[name]

    def condition(self, c: Condition) -> Condition:
        return map_condition(c, self.index)

    def shape_of(self, atom: Atom) -> str:
        """The text of an atom without the names that alike loops may differ in."""
        match atom:
            case str():
                return "?" if atom in self.known else self.bound.get(atom, "!")
            case Product(factors):
                return "*".join(sorted(map(self.shape_of, factors)))
            case FloorDiv(a, b) | Mod(a, b):
                return f"{type(atom).__name__}({self.sum_shape(a)},{self.sum_shape(b)})"
            case Min(args) | Max(args):
                parts = ",".join(sorted(map(self.sum_shape, args)))
                return f"{type(atom).__name__}({parts})"
            case Choose(_, a, b):
                return f"Choose({self.sum_shape(a)},{self.sum_shape(b)})"
            case _:
                assert_never(atom)

    def sum_shape(self, e: Index) -> str:
        if e not in self.shapes:
            _, moving = self.parted(e.terms)
            parts = sorted([f"{c}{self.shape_of(a)}" for a, c in moving])
            self.shapes[e] = f"{'+'.join(parts)}+{e.constant}"
        return self.shapes[e]

    def apart(self, e: Index, role: str) -> Index:
        """As `index`, with parameters of its own: what is equal here may not be in a like loop."""
        self.role = role
        new = self.index(e)
        self.role = ""
        return new

    def limit(self, e: Index) -> Index:
        """A bound of a loop: a parameter of its own if it is the same in every iteration."""
        if e.is_constant or e.variables() & self.bound.keys():
            return self.index(e)
        return self.number(e, ("limit", len(self.numbers)))
