# SPDX-License-Identifier: Apache-2.0
"""Grammar rules -> syntax tree nodes: one method a rule of grammar.lark, called while parsing."""

from __future__ import annotations

from typing import Any, TypeVar

from lark import Token, Transformer, v_args
from msgspec.structs import replace

from tcsym.errors import Span, TCSyntaxError
from tcsym.frontend import ast
from tcsym.frontend.tokens import span_of
from tcsym.types import NAMES

T = TypeVar("T")


def _cover(first: Span, last: Span) -> Span:
    """From `first` to the end of `last`; if that is on another line, `first` alone."""
    if first.line != last.line:
        return first
    return Span(first.line, first.column, last.column + last.length - first.column)


def _identifier(token: Token) -> ast.Identifier:
    return ast.Identifier(str(token), span=span_of(token))


def _tuple(*items: T) -> tuple[T, ...]:
    return tuple(i for i in items if i is not None)


@v_args(inline=True)
class TreeBuilder(Transformer[Token, Any]):
    """Stateless; every method gets the parts of its rule, plain punctuation left out."""

    # -- definitions

    def start(self, *items: Any) -> tuple[Any, ...]:
        return _tuple(*items)

    params = dimensions = arguments = results = body = targets = where = start

    def definition(self, header: ast.Def, body: tuple[ast.Item, ...]) -> ast.Def:
        return replace(header, body=body)

    def header(
        self,
        _keyword: Token,
        name: Token,
        params: tuple[ast.Parameter, ...],
        results: tuple[ast.Result, ...],
        end: Token,
    ) -> ast.Def:
        if not results and not any(isinstance(p, ast.Param) and p.inout for p in params):
            message = "unexpected `)`, expected a type or an identifier"
            hint = "a def without results has an `inout` parameter: `inout float(N) Y`"
            raise TCSyntaxError(message, span=span_of(end), hint=hint)
        return ast.Def(str(name), params, results, (), span=span_of(name))

    def param(
        self,
        inout: Token | None,
        scalar: Token,
        dimensions: tuple[ast.Dimension, ...] | None,
        name: Token,
    ) -> ast.Param:
        is_inout = inout is not None
        return ast.Param(NAMES[scalar], dimensions or (), str(name), is_inout, span=span_of(name))

    def size_param(self, _keyword: Token, name: Token) -> ast.SizeParam:
        return ast.SizeParam(str(name), span=span_of(name))

    def dimension(self, token: Token) -> ast.Dimension:
        size = int(token) if token.type == "INTEGER" else str(token)
        return ast.Dimension(size, span=span_of(token))

    def plain_result(self, name: Token) -> ast.Result:
        return ast.Result(str(name), span=span_of(name))

    def typed_result(
        self, scalar: Token, dimensions: tuple[ast.Expr, ...] | None, name: Token
    ) -> ast.Result:
        return ast.Result(str(name), NAMES[scalar], dimensions or (), span=span_of(name))

    # -- statements

    def statement(
        self,
        name: Token,
        subscripts: tuple[ast.Expr, ...] | None,
        op: Any,
        value: ast.Expr,
        equivalent: ast.Equivalent | None,
        clauses: tuple[ast.Clause, ...] | None,
    ) -> ast.Assign:
        return ast.Assign(
            str(name), subscripts, op, value, equivalent, clauses or (), span=span_of(name)
        )

    def assign(self, token: Token) -> str:
        return str(token)

    def subscripts(self, args: tuple[ast.Expr, ...]) -> tuple[ast.Expr, ...]:
        return args

    def equivalent(self, name: Token, args: tuple[ast.Expr, ...]) -> ast.Equivalent:
        return ast.Equivalent(str(name), args, span=span_of(name))

    def range(self, name: Token, lower: ast.Expr, upper: ast.Expr) -> ast.RangeClause:
        span = _cover(span_of(name), upper.span)
        return ast.RangeClause(_identifier(name), lower, upper, span=span)

    def let(self, name: Token, value: ast.Expr) -> ast.Let:
        return ast.Let(_identifier(name), value, span=_cover(span_of(name), value.span))

    def exists(self, keyword: Token, value: ast.Expr) -> ast.Exists:
        return ast.Exists(value, span=_cover(span_of(keyword), value.span))

    def call(
        self, targets: tuple[Token, ...], name: Token, args: tuple[ast.Expr, ...], end: Token
    ) -> ast.CallStatement:
        names = tuple(_identifier(t) for t in targets)
        span = _cover(names[0].span, span_of(end))
        return ast.CallStatement(names, _identifier(name), args, span=span)

    def bare_call(self, name: Token, args: tuple[ast.Expr, ...]) -> ast.CallStatement:
        return ast.CallStatement((), _identifier(name), args, span=span_of(name))

    def loop(
        self,
        keyword: Token,
        variable: Token,
        lower: ast.Expr,
        upper: ast.Expr | None,
        body: tuple[ast.Item, ...],
    ) -> ast.For:
        span = span_of(keyword)
        if upper is None:
            return ast.For(_identifier(variable), None, lower, body, span=span)
        return ast.For(_identifier(variable), lower, upper, body, span=span)

    def conditional(
        self,
        keyword: Token,
        condition: ast.Expr,
        then: tuple[ast.Item, ...],
        orelse: tuple[ast.Item, ...] | None,
    ) -> ast.If:
        return ast.If(condition, then, orelse or (), span=span_of(keyword))

    def otherwise(self, items: ast.If | tuple[ast.Item, ...]) -> tuple[ast.Item, ...]:
        return (items,) if isinstance(items, ast.If) else items

    # -- expressions

    def ternary(self, condition: ast.Expr, then: ast.Expr, orelse: ast.Expr) -> ast.Ternary:
        return ast.Ternary(condition, then, orelse, span=_cover(condition.span, orelse.span))

    def infix(self, left: ast.Expr, op: Any, right: ast.Expr) -> ast.Infix:
        return ast.Infix(str(op), left, right, span=_cover(left.span, right.span))  # type: ignore[arg-type]

    def prefix(self, op: Any, operand: ast.Expr) -> ast.Prefix:
        return ast.Prefix(str(op), operand, span=_cover(span_of(op), operand.span))  # type: ignore[arg-type]

    def number(self, token: Token) -> ast.Number:
        return ast.Number(str(token), span=span_of(token))

    def constant(self, token: Any) -> ast.Constant:
        return ast.Constant(str(token), span=span_of(token))  # type: ignore[arg-type]

    def paren(self, left: Token, inner: ast.Expr, right: Token) -> ast.Paren:
        return ast.Paren(inner, span=_cover(span_of(left), span_of(right)))

    def cast(self, scalar: Token, operand: ast.Expr, end: Token) -> ast.CastTo:
        return ast.CastTo(NAMES[scalar], operand, span=_cover(span_of(scalar), span_of(end)))

    def extremum(self, op: Any, left: ast.Expr, right: ast.Expr, end: Token) -> ast.Extremum:
        return ast.Extremum(str(op), left, right, span=_cover(span_of(op), span_of(end)))  # type: ignore[arg-type]

    def name(self, token: Token) -> ast.Name:
        return ast.Name(str(token), span=span_of(token))

    def apply(self, name: Token, args: tuple[ast.Expr, ...], end: Token) -> ast.Apply:
        return ast.Apply(str(name), args, span=_cover(span_of(name), span_of(end)))
