# SPDX-License-Identifier: Apache-2.0
"""Single assignment -> the same with the tangent of each value beside it: forward mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.differentiate.activity import Activity
from tcsym.differentiate.algebra import TRUTH, add, constant, converted, multiply, select, wide
from tcsym.differentiate.chain import contributions
from tcsym.differentiate.names import Names
from tcsym.differentiate.single import Single
from tcsym.differentiate.witness import shared, witness
from tcsym.frontend.positions import adding
from tcsym.frontend.program import Expr, For, If, Item, Read, Statement, Tensor, dtype_of


class Forward(Struct):
    """again: maxima and minima that are given, but computed again to find who won. tangents: of
    inputs, which are arguments, and of outputs, which are results."""

    single: Single
    names: Names
    activity: Activity
    again: frozenset[str] = frozenset()
    tangents: dict[str, Tensor] = field(default_factory=dict)

    def run(self, arguments: Mapping[str, Tensor]) -> tuple[Item, ...]:
        self.tangents = dict(arguments)
        return self._block(self.single.items)

    def _block(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        found: list[Item] = []
        for item in items:
            match item:
                case Statement():
                    found += [item, *self._statement(item)]
                case For():
                    found.append(replace(item, body=self._block(item.body)))
                case If():
                    then, orelse = self._block(item.then), self._block(item.orelse)
                    found.append(replace(item, then=then, orelse=orelse))
                case _:
                    assert_never(item)
        return tuple(found)

    def _statement(self, s: Statement) -> list[Statement]:
        if s.target not in self.activity.active:
            return []
        tensor = self.single.tensors[s.target]
        value = wide(s.value)
        result = value
        if s.op == "=":
            result = wide(Read(s.target, s.subscripts, tensor.dtype))
        adds = adding(s.op, value, tensor.dtype) if s.scattered else None
        adds = TRUTH if adds is None else adds
        tangent = self._tangent(value, result, adds)
        made = replace(s, target=self._name(tensor))
        if s.op in ("*=", "min=", "max="):
            again = s.target in self.again
            found = witness(s, self.single.tensors, self.names, again=again)
            share = converted(wide(found.share), dtype_of(tangent))
            value = converted(shared(tangent, share), tensor.dtype)
            return [*found.statements, replace(made, op="+=", value=_where(adds, value))]
        return [replace(made, value=_where(adds, converted(tangent, tensor.dtype)))]

    def _tangent(self, value: Expr, result: Expr, adds: Expr) -> Expr:
        """Where `adds` holds."""
        dtype = dtype_of(value)
        zero = constant(0.0, dtype)
        total: Expr = zero
        one = constant(1.0, dtype)
        for c in contributions(value, one, result, lambda r: r.tensor in self.activity.active):
            tensor = self.single.tensors[c.read.tensor]
            moved = Read(self._name(tensor), c.read.subscripts, tensor.dtype)
            term = multiply(converted(c.gradient, dtype), converted(wide(moved), dtype))
            total = add(total, select(TRUTH if c.guard == adds else c.guard, term, zero))
        return total

    def _name(self, tensor: Tensor) -> str:
        known = self.tangents.get(tensor.name)
        if known is None:
            name = self.names.fresh(f"d{tensor.name}")
            known = replace(tensor, name=name, role="temporary")
            self.tangents[tensor.name] = self.single.tensors[name] = known
        return known.name


def _where(adds: Expr, tangent: Expr) -> Expr:
    """It is 0 elsewhere, and has no position there."""
    return select(adds, tangent, constant(0.0, dtype_of(tangent)))
