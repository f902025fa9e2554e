# SPDX-License-Identifier: Apache-2.0
"""Program -> the program that runs it for each element of a batch, without a loop.

Each batched tensor has one more dimension in front, and each statement that writes one has one more
index, so what comes out is a program like any other: its loops fuse, tile and run on threads as
usual. A tensor is batched if anything that goes into it is. Example, for a batch of `X`:

    def f(float(N,K) X, float(K) w) -> (Y) { Y(n) +=! X(n,k) * w(k) }
    def f_batched(float(V,N,K) X, float(K) w) -> (Y) { Y(v,n) +=! X(v,n,k) * w(k) }
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import cast

from msgspec.structs import replace

from tcsym.frontend.interpret_values import identity
from tcsym.frontend.names import Names, names_in, written_plainly
from tcsym.frontend.program import (
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Item,
    Program,
    Range,
    Read,
    Select,
    Statement,
    Tensor,
    dtype_of,
    reads,
    statements,
    variables_of,
)
from tcsym.frontend.rename import Kind, Rewriting
from tcsym.frontend.resolved import ResolvedItem
from tcsym.frontend.unparse import source_of
from tcsym.index.expr import ZERO, Index, var
from tcsym.types import DType


def batched_program(program: Program, inputs: Collection[str]) -> Program:
    """`<name>_batched`, for a batch of the parameters `inputs`, as its text is read back."""
    program = written_plainly(program)
    names = Names({*names_in(program)})
    size, index = names.fresh("V"), names.fresh("v")
    batched = _batched_tensors(program, inputs)

    def whole(t: Tensor) -> Tensor:
        return replace(t, shape=(var(size), *t.shape)) if t.name in batched else t

    program = replace(program, tensors=tuple(map(whole, program.tensors)))
    bound = (
        [v for e in p.shape for v in e.variables()] if isinstance(p, Tensor) else [p.name]
        for p in program.parameters
    )
    sizes = dict.fromkeys((*(n for names in bound for n in names), *program.sizes))
    tensors = {t.name: t for t in program.tensors}
    body = _Batching(batched, tensors, size, index).items(program.body)
    name = names.fresh(f"{program.name}_batched")
    return source_of(replace(program, name=name, sizes=tuple(sizes), body=body, checks=()))


def _batched_tensors(program: Program, inputs: Collection[str]) -> frozenset[str]:
    """What batched ones go into, again and again."""
    found, known = {*inputs}, -1
    while known != len(found):
        known = len(found)
        for s in statements(program.body):
            if any(r.tensor in found for e in s.expressions for r in reads(e)):
                found.add(s.target)
    return frozenset(found)


class _Batching(Rewriting):
    """Statements with the batch's index where tensors are `batched`."""

    def __init__(
        self, batched: frozenset[str], tensors: Mapping[str, Tensor], size: str, index: str
    ) -> None:
        self.batched, self.tensors, self.front = batched, tensors, (var(index),)
        self.whole = Range(index, ZERO, var(size), False)

    def items(self, items: tuple[Kind, ...]) -> tuple[Kind, ...]:
        found = (made for item in items for made in self._made(item))
        return cast("tuple[Kind, ...]", tuple(found))

    def _made(self, item: ResolvedItem | Item) -> Iterator[ResolvedItem | Item]:
        made = self._item(item)
        if not isinstance(made, Statement) or made.target not in self.batched:
            yield made
            return
        made = replace(
            made, subscripts=(*self.front, *made.subscripts), domain=(self.whole, *made.domain)
        )
        moved = self._moved(made)
        if not moved or not (made.op == "=" or made.initialise):
            yield made
            return
        yield self._placed(made, moved)
        if made.op != "=":
            yield replace(made, initialise=False)

    def _moved(self, s: Statement) -> dict[str, Expr]:
        """The positions that were fixed, but for the batch."""
        others = frozenset(r.variable for r in s.walked) - self.front[0].variables()
        found: dict[str, Expr] = {}
        for r in s.scattered:
            at = r.at
            if at is None or isinstance(at, Index) or not others.isdisjoint(variables_of(at)):
                continue
            read = [x.subscripts for x in reads(at)]
            if self.front in read and all(x in ((), self.front) for x in read):
                found[r.variable] = at
        return found

    def _placed(self, s: Statement, at: Mapping[str, Expr]) -> Statement:
        """What `s` sets, where the position of an element of the batch is, and the rest as it was:
        for the whole batch, positions are not fixed ones (LANGUAGE F4)."""
        dtype = self.tensors[s.target].dtype
        long = dtype.accumulator

        def wide(e: Expr) -> Expr:
            return e if dtype_of(e) is long else Cast(e, long)

        none = identity(s.op, long)
        none = float(none) if long.is_float else none
        value: Expr = wide(s.value) if s.op == "=" else Const(none, long)
        old = Read(s.target, s.subscripts, dtype)
        for name, place in at.items():
            here = Compare("eq", IndexValue(var(name), DType.INT64), place)
            value = Select(here, value, wide(old), long)
        places = tuple([at.get(str(e), e) for e in s.subscripts])
        there = replace(old, subscripts=places)
        return replace(
            s,
            op="=",
            initialise=False,
            domain=s.image,
            value=value if long is dtype else Cast(value, dtype),
            exists=(*s.exists, wide(there)),
        )

    def changed(self, e: Expr, before: Expr) -> Expr:
        made = super().changed(e, before)
        if not isinstance(made, Read) or made.tensor not in self.batched:
            return made
        front: tuple[Index | Expr, ...] = self.front
        return replace(made, subscripts=(*front, *made.subscripts))
