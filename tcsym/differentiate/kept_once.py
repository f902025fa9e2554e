# SPDX-License-Identifier: Apache-2.0
"""Tables that are set and then filled -> the same with each element kept once, as its last write.

Of `h(t) = X(t) where t in 0:T+1` before `for t in T { h(t+1) = f(h(t)) }` only `h(0)` is ever read:
nothing goes back through the rest, and no value is needed twice. A statement that makes what is
read before another one replaces it has a tensor of its own for that, which holds an element once,
too; a constant needs none. What remains to be copied for each iteration are tensors of which one
statement writes the same elements in several.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from tcsym.differentiate.accumulate import Tensors
from tcsym.differentiate.activity import smooth_reads
from tcsym.differentiate.algebra import compared, constant, exactly, index_value, select, truth
from tcsym.differentiate.last_writes import (
    Found,
    LastWrites,
    Placed,
    Source,
    Undecided,
    left_ranges,
    placed_statements,
    position_name,
)
from tcsym.differentiate.names import Names
from tcsym.frontend.program import (
    Binary,
    Const,
    Expr,
    For,
    If,
    IndexValue,
    Item,
    Read,
    Statement,
    dtype_of,
    rewritten,
)
from tcsym.frontend.rename import Rewriting
from tcsym.index.expr import Index, var
from tcsym.types import DType


def kept_once(
    items: tuple[Item, ...],
    of: Collection[str],
    tensors: Tensors,
    sizes: Sequence[str],
    names: Names,
) -> tuple[tuple[Item, ...], frozenset[str]]:
    """The items, and the tensors among `of` of which they now write each element once, with those
    that are new and are added to `tensors`."""
    done = set[str]()
    for name in of:
        placed = tuple(placed_statements(items))
        known = LastWrites(name, placed, tuple(sizes))
        try:
            found = known.found()
            made = _Once(name, known.writes, found, tensors, names)
            items = made.items(items)
        except Undecided:
            continue
        done |= {name, *made.layers.values()}
        for layer in made.layers.values():
            tensors[layer] = replace(tensors[name], name=layer, role="temporary")
    return items, frozenset(done)


class _Once:
    """layers: of writes, by number, the tensors for what is read before it is replaced."""

    def __init__(
        self,
        tensor: str,
        writes: Sequence[Placed],
        found: Found,
        tensors: Tensors,
        names: Names,
    ) -> None:
        self.tensor, self.writes, self.found, self.names = tensor, writes, found, names
        self.dtype = tensors[tensor].dtype
        self.numbers = {id(w.statement): k for k, w in enumerate(writes)}
        early = dict.fromkeys(s.write for sources in found.sources.values() for s in sources)
        self.layers = {
            k: names.version(tensor)
            for k in sorted(early)
            if not isinstance(writes[k].statement.value, Const)
        }

    def items(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        made: list[Item] = []
        for item in items:
            match item:
                case Statement():
                    made += self._statement(item)
                case For():
                    made.append(replace(item, body=self.items(item.body)))
                case If():
                    then, orelse = self.items(item.then), self.items(item.orelse)
                    made.append(replace(item, then=then, orelse=orelse))
        return tuple(made)

    def _statement(self, s: Statement) -> list[Item]:
        k = self.numbers.get(id(s))
        sources = {r: x for (number, r), x in self.found.sources.items() if number == id(s)}
        if sources:
            (s,) = _Sourced(sources, self._value).items((s,))
        if k is None:
            return [s]
        made: list[Item] = []
        layer = self.layers.get(k)
        if layer is not None:
            made.append(replace(s, target=layer))
            value = Read(layer, s.subscripts, self.dtype)
            s = replace(s, op="=", initialise=False, domain=left_ranges(s), value=value, given=())
        if smooth_reads(s.value):  # through nothing else a derivative goes
            nothing = constant(0.0, dtype_of(s.value))
            s = replace(s, value=select(truth(self.found.lasting[k]), s.value, nothing))
        return [*made, s]

    def _value(self, k: int, r: Read) -> Expr:
        """What the k-th write made, where `r` reads it."""
        layer = self.layers.get(k)
        return self.writes[k].statement.value if layer is None else replace(r, tensor=layer)


class _Sourced(Rewriting):
    def __init__(
        self, sources: Mapping[Read, tuple[Source, ...]], value: Callable[[int, Read], Expr]
    ) -> None:
        self.sources, self.value = sources, value

    def changed(self, e: Expr, before: Expr) -> Expr:
        found = self.sources.get(before) if isinstance(before, Read) else None
        if not found or not isinstance(e, Read):
            return e
        total: Expr = e
        for x in found:
            value = self.value(x.write, e)
            if x.always:
                return value
            total = select(_at(truth(x.where), e), value, total)
        return total


def _at(condition: Expr, r: Read) -> Expr:
    """A condition with the positions that `r` has in place of their names."""
    return rewritten(
        condition, lambda e, _: _with_positions(e, r) if isinstance(e, IndexValue) else e
    )


def _with_positions(e: IndexValue, r: Read) -> Expr:
    total, found = e.index, list[tuple[int, Expr]]()
    for d, at in enumerate(r.subscripts):
        name = position_name(d)
        if name not in total.variables():
            continue
        factor = total.coefficient(name)
        total = total - var(name) * factor
        if not factor or name in total.variables():
            raise Undecided
        found.append((factor, index_value(at) if isinstance(at, Index) else at))
    if not found:
        return e
    if total == Index((), 0) and len(found) == 1 and found[0][0] == 1:
        return compared(found[0][1])
    value: Expr = exactly(index_value(total))
    for factor, at in found:
        times = Binary("mul", Const(factor, DType.INT64), exactly(at), DType.INT64, True)
        value = Binary("add", value, times, DType.INT64, True)
    return value
