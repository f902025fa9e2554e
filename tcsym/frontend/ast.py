# SPDX-License-Identifier: Apache-2.0
"""Text -> syntax tree: the nodes that `parser` builds and `check` resolves.

The tree is the text without spaces and comments: parentheses stay (`Paren`), so that printing it
and parsing it again gives an equal tree. Spans start at the first token and never compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, assert_never

from tcsym.errors import NOWHERE, Span
from tcsym.keyed import Keyed
from tcsym.types import DType


class Node(Keyed, frozen=True, kw_only=True):
    span: Span = NOWHERE


class Identifier(Node, frozen=True):
    name: str


# ---- expressions


class Number(Node, frozen=True):
    """Unsigned number as written; float if it has `.`, `e` or `E`."""

    text: str


class Constant(Node, frozen=True):
    name: Literal["true", "false", "INFINITY", "NAN"]


class Name(Node, frozen=True):
    """A name without arguments: index or loop variable, size, `let`, or 0-d tensor."""

    name: str


class Apply(Node, frozen=True):
    """`name(args)`: a read, a built-in, or (where allowed) a call."""

    name: str
    args: tuple[Expr, ...]


class Paren(Node, frozen=True):
    inner: Expr


class CastTo(Node, frozen=True):
    dtype: DType
    operand: Expr


class Extremum(Node, frozen=True):
    op: Literal["min", "max"]
    left: Expr
    right: Expr


class Prefix(Node, frozen=True):
    op: Literal["-", "!", "~"]
    operand: Expr


InfixOp = Literal[
    "+", "-", "*", "/", "%", "<<", ">>", "&", "^", "|", "<", ">", "<=", ">=", "==", "!=", "&&", "||"
]  # fmt: skip


class Infix(Node, frozen=True):
    op: InfixOp
    left: Expr
    right: Expr


class Ternary(Node, frozen=True):
    condition: Expr
    then: Expr
    orelse: Expr


Expr = Number | Constant | Name | Apply | Paren | CastTo | Extremum | Prefix | Infix | Ternary


# ---- statements


class RangeClause(Node, frozen=True):
    """`variable in lower : upper`"""

    variable: Identifier
    lower: Expr
    upper: Expr


class Let(Node, frozen=True):
    """`name = value` in a `where`."""

    name: Identifier
    value: Expr


class Exists(Node, frozen=True):
    value: Expr


Clause = RangeClause | Let | Exists


class Equivalent(Node, frozen=True):
    """`<=> name(args)`, which has no effect (LANGUAGE A7)."""

    name: str
    args: tuple[Expr, ...]


AssignOp = Literal["=", "+=", "*=", "min=", "max=", "+=!", "*=!", "min=!", "max=!"]


class Assign(Node, frozen=True):
    """`target(subscripts) op value where clauses`; without parentheses `subscripts` is None.

    Its span is the left name. A call with one target looks the same; `check` decides.
    """

    target: str
    subscripts: tuple[Expr, ...] | None
    op: AssignOp
    value: Expr
    equivalent: Equivalent | None = None
    clauses: tuple[Clause, ...] = ()


class CallStatement(Node, frozen=True):
    """`targets = function(args)` with two or more targets, or `function(args)` with none."""

    targets: tuple[Identifier, ...]
    function: Identifier
    args: tuple[Expr, ...]


class For(Node, frozen=True):
    """`for variable in lower : upper`; without `lower` it is 0."""

    variable: Identifier
    lower: Expr | None
    upper: Expr
    body: tuple[Item, ...]


class If(Node, frozen=True):
    condition: Expr
    then: tuple[Item, ...]
    orelse: tuple[Item, ...] = ()


Item = Assign | CallStatement | For | If


# ---- definitions


class Dimension(Node, frozen=True):
    """Size of an input: a name or an integer."""

    size: str | int


class Param(Node, frozen=True):
    """Its span is the name. `inout`: the caller's is updated in place."""

    dtype: DType
    dimensions: tuple[Dimension, ...]
    name: str
    inout: bool = False


class SizeParam(Node, frozen=True):
    """`size name`: a size that no tensor binds. Its span is the name."""

    name: str


Parameter = Param | SizeParam


class Result(Node, frozen=True):
    """Output: `name`, or with a declared type and shape. Its span is the name."""

    name: str
    dtype: DType | None = None
    dimensions: tuple[Expr, ...] = ()


class Def(Node, frozen=True):
    """Its span is the name."""

    name: str
    params: tuple[Parameter, ...]
    results: tuple[Result, ...]
    body: tuple[Item, ...]


class Module(Keyed, frozen=True):
    """All defs of a text."""

    aside: ClassVar[tuple[str, ...]] = ("source", "filename")

    defs: tuple[Def, ...]
    source: str = ""
    filename: str = "<tc>"


# ---- traversal


def children(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Number() | Constant() | Name():
            return ()
        case Apply(_, args):
            return args
        case Paren(x) | CastTo(_, x) | Prefix(_, x):
            return (x,)
        case Extremum(_, a, b) | Infix(_, a, b):
            return (a, b)
        case Ternary(c, a, b):
            return (c, a, b)
        case _:
            assert_never(e)


def subexpressions(e: Expr) -> Iterator[Expr]:
    """`e` and all below it in text order, parents first; without recursion."""
    todo = [e]
    while todo:
        top = todo.pop()
        yield top
        todo.extend(reversed(children(top)))


def unparenthesised(e: Expr) -> Expr:
    while isinstance(e, Paren):
        e = e.inner
    return e


def assignments(items: tuple[Item, ...]) -> Iterator[Assign | CallStatement]:
    """All statements and calls in text order."""
    for item in items:
        match item:
            case Assign() | CallStatement():
                yield item
            case For(_, _, _, body):
                yield from assignments(body)
            case If(_, then, orelse):
                yield from assignments(then)
                yield from assignments(orelse)
            case _:
                assert_never(item)
