# SPDX-License-Identifier: Apache-2.0
"""Statements, resolved or typed -> the same rewritten: under new names, for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, assert_never, cast

from msgspec.structs import replace

from tcsym.frontend.program import (
    Expr,
    For,
    Given,
    If,
    Item,
    Range,
    Read,
    Statement,
    rewritten,
)
from tcsym.frontend.resolved import (
    ResolvedFor,
    ResolvedIf,
    ResolvedItem,
    ResolvedStatement,
    SizeArgument,
    Unify,
    Variable,
)
from tcsym.index.expr import Index, var
from tcsym.index.values import map_condition, substitute

Names = Mapping[str, str]
S = TypeVar("S", ResolvedStatement, Statement)
Kind = TypeVar("Kind", bound=ResolvedItem | Item)


class Rewriting:
    """Statements part by part: who rewrites them overrides what changes."""

    def name(self, old: str) -> str:
        """Of a tensor, size, index or loop variable."""
        return old

    def index(self, e: Index) -> Index:
        return e

    def items(self, items: tuple[Kind, ...]) -> tuple[Kind, ...]:
        return cast("tuple[Kind, ...]", tuple([self._item(i) for i in items]))

    def _item(self, item: ResolvedItem | Item) -> ResolvedItem | Item:
        match item:
            case ResolvedStatement():
                variables = tuple(map(self._variable, item.variables))
                return replace(self.statement(item), variables=variables)
            case Statement():
                return replace(self.statement(item), domain=tuple(map(self.range, item.domain)))
            case Unify(tensor, dimensions):
                sizes = tuple(self.name(d) if isinstance(d, str) else d for d in dimensions)
                return replace(item, tensor=self.name(tensor), dimensions=sizes)
            case SizeArgument(name, value):
                return replace(item, name=self.name(name), value=self.index(value))
            case ResolvedFor() | For():
                return replace(
                    item,
                    variable=self.name(item.variable),
                    lower=self.index(item.lower),
                    upper=self.index(item.upper),
                    body=self.items(item.body),
                )
            case ResolvedIf() | If():
                return replace(
                    item,
                    condition=map_condition(item.condition, self.index),
                    then=self.items(item.then),
                    orelse=self.items(item.orelse),
                )
            case _:
                assert_never(item)

    def statement(self, s: S) -> S:
        return replace(
            s,
            target=self.name(s.target),
            subscripts=tuple(map(self.index, s.subscripts)),
            value=self.expression(s.value),
            exists=tuple(map(self.expression, s.exists)),
            given=tuple(Given(self.name(g.name), self.expression(g.value)) for g in s.given),
        )

    def _variable(self, v: Variable) -> Variable:
        where = None if v.where is None else (self.index(v.where[0]), self.index(v.where[1]))
        return replace(v, name=self.name(v.name), where=where, at=self.position(v.at))

    def range(self, r: Range) -> Range:
        lower, upper = self.index(r.lower), self.index(r.upper)
        at = self.position(r.at)
        return replace(r, variable=self.name(r.variable), lower=lower, upper=upper, at=at)

    def position(self, at: Index | Expr | None) -> Index | Expr | None:
        if at is None:
            return None
        return self.index(at) if isinstance(at, Index) else self.expression(at)

    def expression(self, e: Expr) -> Expr:
        return rewritten(e, self.changed, self.index)

    def changed(self, e: Expr, before: Expr) -> Expr:
        """`e`, of which the parts are done; `before`: as it was."""
        return replace(e, tensor=self.name(e.tensor)) if isinstance(e, Read) else e


class Renaming(Rewriting):
    """Old name -> new name, for tensors, sizes, index and loop variables alike."""

    def __init__(self, names: Names, around: Renaming | None = None) -> None:
        """around: what is renamed, too, but for these names."""
        values = {old: var(new) for old, new in names.items()}
        self.names: Names = names if around is None else {**around.names, **names}
        self.values: dict[str, Index] = values if around is None else {**around.values, **values}

    def name(self, old: str) -> str:
        return self.names.get(old, old)

    def index(self, e: Index) -> Index:
        return substitute(e, self.values)


def index_variables(items: tuple[ResolvedItem, ...]) -> dict[str, None]:
    """Names of all index and loop variables and of given scalars, in text order."""
    found: dict[str, None] = {}
    for item in items:
        match item:
            case ResolvedStatement():
                found.update(dict.fromkeys(v.name for v in item.variables))
                found.update(dict.fromkeys(g.name for g in item.given))
            case Unify() | SizeArgument():
                pass
            case ResolvedFor(variable, _, _, body):
                found[variable] = None
                found.update(index_variables(body))
            case ResolvedIf(_, then, orelse):
                found.update(index_variables(then) | index_variables(orelse))
            case _:
                assert_never(item)
    return found
