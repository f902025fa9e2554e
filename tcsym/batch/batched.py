"""Program -> the program that runs it for each element of a batch, without a loop.

Each batched tensor has one more dimension in front, and each statement that writes one has one more
index, so what comes out is a program like any other: its loops fuse, tile and run on threads as
usual. A tensor is batched if anything that goes into it is. Example, for a batch of `X`:

    def f(float(N,K) X, float(K) w) -> (Y) { Y(n) +=! X(n,k) * w(k) }
    def f_batched(float(V,N,K) X, float(K) w) -> (Y) { Y(v,n) +=! X(v,n,k) * w(k) }
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from tcsym.frontend.names import Names, names_in, written_plainly
from tcsym.frontend.program import (
    Expr,
    Item,
    Program,
    Range,
    Read,
    Statement,
    Tensor,
    reads,
    statements,
)
from tcsym.frontend.rename import Rewriting
from tcsym.frontend.resolved import ResolvedItem
from tcsym.frontend.unparse import source_of
from tcsym.index.expr import ZERO, Index, var


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
    body = _Batching(batched, size, index).items(program.body)
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

    def __init__(self, batched: frozenset[str], size: str, index: str) -> None:
        self.batched, self.front = batched, (var(index),)
        self.whole = Range(index, ZERO, var(size), False)

    def _item(self, item: ResolvedItem | Item) -> ResolvedItem | Item:
        made = super()._item(item)
        if not isinstance(made, Statement) or made.target not in self.batched:
            return made
        domain = (self.whole, *made.domain)
        return replace(made, subscripts=(*self.front, *made.subscripts), domain=domain)

    def expression(self, e: Expr) -> Expr:
        made = super().expression(e)
        if not isinstance(made, Read) or made.tensor not in self.batched:
            return made
        front: tuple[Index | Expr, ...] = self.front
        return replace(made, subscripts=(*front, *made.subscripts))
