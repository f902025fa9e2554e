"""Text of a def -> text of the same def with new tensors in place of what it updates.

    def f(inout float(N) Y, float(N) X) -> (s) { Y(i) += X(i)  s +=! Y(i) }
    def f(float(N) Y, float(N) X) -> (s, float(N) Y_new) {
      Y_new(i0) = Y(i0)
      Y_new(i) += X(i)
      s +=! Y_new(i)
    }

Other defs of the text stay: what they update is then a tensor of this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from msgspec.structs import replace

from tcsym.batch.source import identifiers
from tcsym.frontend import ast
from tcsym.frontend.format import format_program
from tcsym.frontend.parser import parse


def functional_source(source: str, name: str) -> str:
    """The text, with def `name` changed; it was checked."""
    module = parse(source)
    taken = set(identifiers(module))
    defs = [_functional(d, taken) if d.name == name else d for d in module.defs]
    return format_program(ast.Module(tuple(defs)))


def _functional(d: ast.Def, taken: set[str]) -> ast.Def:
    tensors = [p for p in d.params if isinstance(p, ast.Param)]
    new = {p.name: _fresh(f"{p.name}_new", taken) for p in tensors if p.inout}
    index = [_fresh(f"i{k}", taken) for k in range(max([len(p.dimensions) for p in tensors]))]
    first, results = list[ast.Item](), list(d.results)
    for p in tensors:
        if p.inout:
            at = tuple(map(ast.Name, index[: len(p.dimensions)]))
            whole = ast.Apply(p.name, at) if at else ast.Name(p.name)
            first.append(ast.Assign(new[p.name], at or None, "=", whole))
            shape = tuple(_extent(x) for x in p.dimensions)
            results.append(ast.Result(new[p.name], p.dtype, shape))
    params = tuple(replace(p, inout=False) if isinstance(p, ast.Param) else p for p in d.params)
    body = (*first, *(_item(x, new) for x in d.body))
    return replace(d, params=params, results=tuple(results), body=body)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _extent(d: ast.Dimension) -> ast.Expr:
    return ast.Name(d.size) if isinstance(d.size, str) else ast.Number(str(d.size))


Names = Mapping[str, str]


def _item(x: ast.Item, new: Names) -> ast.Item:
    match x:
        case ast.Assign():
            left = None if x.subscripts is None else _all(x.subscripts, new)
            clauses = tuple(_clause(c, new) for c in x.clauses)
            target, value = new.get(x.target, x.target), _expression(x.value, new)
            return replace(
                x, target=target, subscripts=left, value=value, clauses=clauses, equivalent=None
            )
        case ast.CallStatement():
            targets = tuple(replace(t, name=new.get(t.name, t.name)) for t in x.targets)
            return replace(x, targets=targets, args=_all(x.args, new))
        case ast.For():
            return replace(x, body=tuple(_item(y, new) for y in x.body))
        case ast.If():
            arms = (tuple(_item(y, new) for y in arm) for arm in (x.then, x.orelse))
            return replace(x, then=next(arms), orelse=next(arms))
        case _:
            assert_never(x)


def _clause(c: ast.Clause, new: Names) -> ast.Clause:
    match c:
        case ast.RangeClause():
            return replace(c, lower=_expression(c.lower, new), upper=_expression(c.upper, new))
        case ast.Let() | ast.Exists():
            return replace(c, value=_expression(c.value, new))
        case _:
            assert_never(c)


def _all(es: tuple[ast.Expr, ...], new: Names) -> tuple[ast.Expr, ...]:
    return tuple(_expression(e, new) for e in es)


def _expression(e: ast.Expr, new: Names) -> ast.Expr:
    match e:
        case ast.Number() | ast.Constant():
            return e
        case ast.Name(name):
            return replace(e, name=new.get(name, name))
        case ast.Apply(name, args):
            return replace(e, name=new.get(name, name), args=_all(args, new))
        case ast.Paren(x):
            return replace(e, inner=_expression(x, new))
        case ast.CastTo(_, x) | ast.Prefix(_, x):
            return replace(e, operand=_expression(x, new))
        case ast.Extremum(_, a, b) | ast.Infix(_, a, b):
            return replace(e, left=_expression(a, new), right=_expression(b, new))
        case ast.Ternary(c, a, b):
            parts = _all((c, a, b), new)
            return replace(e, condition=parts[0], then=parts[1], orelse=parts[2])
        case _:
            assert_never(e)
