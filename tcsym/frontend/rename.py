"""Resolved statements -> the same under new names: for inlining and for the canonical hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from msgspec.structs import replace

from tcsym.frontend.program import (
    Binary,
    Expr,
    Given,
    Read,
    rebuilt,
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
from tcsym.index.values import condition_substitute, substitute

Names = Mapping[str, str]


class Renaming:
    """Old name -> new name, for tensors, sizes, index and loop variables alike."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.values = {old: var(new) for old, new in names.items()}

    def name(self, old: str) -> str:
        return self.names.get(old, old)

    def index(self, e: Index) -> Index:
        return substitute(e, self.values)

    def items(self, items: tuple[ResolvedItem, ...]) -> tuple[ResolvedItem, ...]:
        return tuple([self._item(i) for i in items])

    def _item(self, item: ResolvedItem) -> ResolvedItem:
        match item:
            case ResolvedStatement():
                return self._statement(item)
            case Unify(tensor, dimensions):
                sizes = tuple(self.name(d) if isinstance(d, str) else d for d in dimensions)
                return replace(item, tensor=self.name(tensor), dimensions=sizes)
            case SizeArgument(name, value):
                return replace(item, name=self.name(name), value=self.index(value))
            case ResolvedFor(variable, lower, upper, body):
                return replace(
                    item,
                    variable=self.name(variable),
                    lower=self.index(lower),
                    upper=self.index(upper),
                    body=self.items(body),
                )
            case ResolvedIf(condition, then, orelse):
                return replace(
                    item,
                    condition=condition_substitute(condition, self.values),
                    then=self.items(then),
                    orelse=self.items(orelse),
                )
            case _:
                assert_never(item)

    def _statement(self, s: ResolvedStatement) -> ResolvedStatement:
        return replace(
            s,
            target=self.name(s.target),
            subscripts=tuple(map(self.index, s.subscripts)),
            variables=tuple(map(self._variable, s.variables)),
            value=self.expression(s.value),
            exists=tuple(map(self.expression, s.exists)),
            given=tuple(Given(self.name(g.name), self.expression(g.value)) for g in s.given),
        )

    def _variable(self, v: Variable) -> Variable:
        where = None if v.where is None else (self.index(v.where[0]), self.index(v.where[1]))
        at = v.at
        if at is not None:
            at = self.index(at) if isinstance(at, Index) else self.expression(at)
        return replace(v, name=self.name(v.name), where=where, at=at)

    def expression(self, e: Expr) -> Expr:
        if isinstance(e, Binary):
            return self._chain(e)
        made = rebuilt(e, self.expression, self.index)
        return replace(made, tensor=self.name(made.tensor)) if isinstance(made, Read) else made

    def _chain(self, e: Binary) -> Expr:
        """`a + b + c + …` from the left, in a loop: chains may be longer than the stack."""
        chain = [e]
        while isinstance(chain[-1].left, Binary):
            chain.append(chain[-1].left)
        left = self.expression(chain[-1].left)
        for node in reversed(chain):
            left = replace(node, left=left, right=self.expression(node.right))
        return left


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
