# SPDX-License-Identifier: Apache-2.0
"""Program -> the same program for padded memory: which ranges may run into the padding.

Every size `N` to be padded becomes two: `N`, the extent of memory, which the caller makes a number,
and `N_true`, the size that was meant. Ranges, values, conditions and checks keep the true sizes; so
the result is exact for every program. Where it is proved that nothing is lost, a range takes the
padded extent instead, and its trip count is a number:
- of a left variable, if the points beyond write beyond the true extent of the target;
- of a reduced variable, if the term is the identity beyond, thanks to the value inputs are padded
  with: 0 for a dot product, -inf for a maximum.
Extents that guard a gather stay true: an index into the padding must remain an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import (
    Check,
    For,
    If,
    Item,
    Program,
    Range,
    Read,
    Statement,
    Tensor,
    reads,
    statements,
)
from tcsym.index.expr import Condition, Index, all_of, any_of, ge, lt, var
from tcsym.index.presburger import Presburger
from tcsym.index.values import condition_substitute, substitute
from tcsym.rewrite.bind import bind_program
from tcsym.rewrite.pad_values import Fill, fills_that_cancel


class PaddedProgram(Struct, frozen=True):
    """`program` over its sizes and `true` sizes: size -> name of the size that was meant.

    `fill`: input -> what its padding must hold (0 where nothing depends on it). `notes`: one line
    for each range that involves padded sizes, saying whether it is padded, and why not.
    """

    program: Program
    true: Mapping[str, str]
    fill: Mapping[str, Fill]
    notes: tuple[str, ...]


def pad_program(program: Program, padded: tuple[str, ...]) -> PaddedProgram:
    """`program` with memory for larger values of the sizes `padded`."""
    taken = _names(program)
    true = {name: _fresh(f"{name}_true", taken) for name in padded}
    meant = {name: var(t) for name, t in true.items()}
    bound = bind_program(program, meant)
    checks = [replace(c, condition=_meant(c.condition, meant)) for c in program.checks]
    checks += [_larger(name, t) for name, t in true.items()]
    made = replace(
        bound,
        sizes=(*program.sizes, *true.values()),
        free_sizes=(*program.free_sizes, *true.values()),
        tensors=tuple(_tensor(program, t, meant) for t in program.tensors),
        checks=tuple(checks),
    )
    ranges = _Ranges(program, made, meant)
    body = tuple(ranges.item(old, new, ()) for old, new in zip(program.body, made.body))
    fill = {t.name: ranges.fill.get(t.name, 0) for t in program.inputs}
    return PaddedProgram(replace(made, body=body), true, fill, tuple(ranges.notes))


def _names(program: Program) -> set[str]:
    names = {*program.sizes, *(t.name for t in program.tensors)}
    for s in statements(program.body):
        names |= {r.variable for r in s.domain}
    return names | set(_loop_variables(program.body))


def _loop_variables(items: tuple[Item, ...]) -> Iterator[str]:
    for item in items:
        if isinstance(item, For):
            yield item.variable
            yield from _loop_variables(item.body)
        elif isinstance(item, If):
            yield from _loop_variables((*item.then, *item.orelse))


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _meant(condition: Condition, meant: Mapping[str, Index]) -> Condition:
    return condition_substitute(condition, meant)


def _larger(name: str, true: str) -> Check:
    return Check("size", ge(var(name), var(true)), f"`{name}` is padded")


def _tensor(program: Program, t: Tensor, meant: Mapping[str, Index]) -> Tensor:
    """Memory of inputs and of outputs whose extents are plain sizes grows; gathered stays true."""
    gathered = _gathered(program, t.name)
    shape = tuple(
        e if _is_size(e) and d not in gathered else substitute(e, meant)
        for d, e in enumerate(t.shape)
    )
    return replace(t, shape=shape)


def _is_size(e: Index) -> bool:
    return len(e.terms) == 1 and isinstance(e.terms[0][0], str) and e == var(e.terms[0][0])


def _gathered(program: Program, tensor: str) -> set[int]:
    """Dimensions that the running kernel checks an access against."""
    found: set[int] = set()
    for s in statements(program.body):
        if s.target == tensor:
            places = [var(r.variable) for r in s.scattered]
            found |= {d for d, e in enumerate(s.subscripts) if e in places}
        for value in s.expressions:
            for r in reads(value):
                if r.tensor == tensor:
                    found |= {d for d, c in enumerate(r.checked) if c}
    return found


class _Ranges:
    """Decides for each range of each statement: the padded extent, or the true one."""

    def __init__(self, old: Program, new: Program, meant: Mapping[str, Index]) -> None:
        self.old = old
        self.new = new
        self.meant = meant
        self.fill: dict[str, Fill] = {}
        self.notes: list[str] = []
        self.presburger = Presburger(new.sizes)
        self.context = all_of(c.condition for c in new.checks)

    def item(self, old: Item, new: Item, outer: tuple[Range, ...]) -> Item:
        match new:
            case Statement():
                assert isinstance(old, Statement)
                return self._statement(old, new, outer)
            case For(variable, lower, upper, body):
                assert isinstance(old, For)
                inside = (*outer, Range(variable, lower, upper, reduced=False))
                return replace(new, body=self._items(old.body, body, inside))
            case If(_, then, orelse):
                assert isinstance(old, If)
                return replace(
                    new,
                    then=self._items(old.then, then, outer),
                    orelse=self._items(old.orelse, orelse, outer),
                )
            case _:
                assert_never(new)

    def _items(
        self, old: tuple[Item, ...], new: tuple[Item, ...], outer: tuple[Range, ...]
    ) -> tuple[Item, ...]:
        return tuple(self.item(a, b, outer) for a, b in zip(old, new))

    def _statement(self, old: Statement, new: Statement, outer: tuple[Range, ...]) -> Statement:
        if not new.is_box:
            self.notes.append(f"{new.name}: true bounds, ranges depend on each other")
            return new
        for k, r in enumerate(old.domain):
            if new.domain[k].upper == r.upper:
                continue
            grown = (*new.domain[:k], replace(new.domain[k], upper=r.upper), *new.domain[k + 1 :])
            why = self._obstacle(old, replace(new, domain=grown), k, outer)
            if not why:
                new = replace(new, domain=grown)
            told = f"padded to {r.upper}" if not why else f"true bound, {why}"
            self.notes.append(f"{new.name}: {r.variable} {told}")
        return new

    def _obstacle(self, old: Statement, new: Statement, k: int, outer: tuple[Range, ...]) -> str:
        """Why range `k` of `new` must not be the padded one; '' if it may."""
        r = old.domain[k]
        if not _is_size(r.upper):
            return f"{r.upper} is no plain size"
        if r.lower != new.domain[k].lower:
            return "it begins at a size"
        if _is_checked(old):
            return "it checks accesses or writes"
        if not r.reduced and not self._writes_beyond(old, new, r):
            return f"it is not the whole extent of `{old.target}`"
        if r.reduced and not self._is_identity(old, new, r):
            return "the term is not known to be the identity beyond"
        return "" if self._stays_inside(new, outer) else "it would read outside of the padding"

    def _writes_beyond(self, old: Statement, new: Statement, r: Range) -> bool:
        """True if points of `r` beyond its true end write what is cropped, and inside of memory."""
        before, after = self.old.tensor(old.target).shape, self.new.tensor(old.target).shape
        return any(
            s == var(r.variable) and before[d] == r.upper and after[d] == r.upper
            for d, s in enumerate(old.subscripts)
        )

    def _is_identity(self, old: Statement, new: Statement, r: Range) -> bool:
        found = fills_that_cancel(self.new, new, r, self.fill)
        if found is None:
            return False
        self.fill |= found
        return True

    def _stays_inside(self, new: Statement, outer: tuple[Range, ...]) -> bool:
        """True if all reads lie in padded memory, also at the points added; guards do not count."""
        ranges = (*outer, *new.domain)
        variables = [r.variable for r in ranges]
        domain = [ge(var(r.variable), r.lower) for r in ranges]
        domain += [lt(var(r.variable), r.upper) for r in ranges]
        for read in _affine_reads(new):
            shape = self.new.tensor(read.tensor).shape
            outside = [
                condition
                for s, extent in zip(read.subscripts, shape)
                if isinstance(s, Index)
                for condition in (lt(s, 0), ge(s, extent))
            ]
            wrong = all_of([self.context, *domain, any_of(outside)])
            if not self.presburger.set("p", variables, wrong).is_empty():
                return False
        return True


def _affine_reads(s: Statement) -> Iterator[Read]:
    for value in s.expressions:
        yield from reads(value)


def _is_checked(s: Statement) -> bool:
    return bool(s.scattered) or any(
        any(r.checked) or r.unwritten is not None for r in _affine_reads(s)
    )
