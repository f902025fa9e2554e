"""Text -> syntax tree: the nodes that `parser` builds and `check` resolves.

The tree is the text without spaces and comments: parentheses stay (`Paren`), so that printing it
and parsing it again gives an equal tree. Spans start at the first token and never compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, assert_never

from tcsym.errors import NOWHERE, Span
from tcsym.types import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Identifier(Node):
    name: str


# ---- expressions


@dataclass(frozen=True, slots=True)
class Number(Node):
    """Unsigned number as written; float if it has `.`, `e` or `E`."""

    text: str


@dataclass(frozen=True, slots=True)
class Constant(Node):
    name: Literal["true", "false", "INFINITY", "NAN"]


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A name without arguments: index or loop variable, size, `let`, or 0-d tensor."""

    name: str


@dataclass(frozen=True, slots=True)
class Apply(Node):
    """`name(args)`: a read, a built-in, or (where allowed) a call."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Paren(Node):
    inner: Expr


@dataclass(frozen=True, slots=True)
class CastTo(Node):
    dtype: DType
    operand: Expr


@dataclass(frozen=True, slots=True)
class Extremum(Node):
    op: Literal["min", "max"]
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Prefix(Node):
    op: Literal["-", "!", "~"]
    operand: Expr


InfixOp = Literal[
    "+", "-", "*", "/", "%", "<<", ">>", "&", "^", "|", "<", ">", "<=", ">=", "==", "!=", "&&", "||"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Infix(Node):
    op: InfixOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Ternary(Node):
    condition: Expr
    then: Expr
    orelse: Expr


Expr = Number | Constant | Name | Apply | Paren | CastTo | Extremum | Prefix | Infix | Ternary


# ---- statements


@dataclass(frozen=True, slots=True)
class RangeClause(Node):
    """`variable in lower : upper`"""

    variable: Identifier
    lower: Expr
    upper: Expr


@dataclass(frozen=True, slots=True)
class Let(Node):
    """`name = value` in a `where`."""

    name: Identifier
    value: Expr


@dataclass(frozen=True, slots=True)
class Exists(Node):
    value: Expr


Clause = RangeClause | Let | Exists


@dataclass(frozen=True, slots=True)
class Equivalent(Node):
    """`<=> name(args)`, which has no effect (LANGUAGE A7)."""

    name: str
    args: tuple[Expr, ...]


AssignOp = Literal["=", "+=", "*=", "min=", "max=", "+=!", "*=!", "min=!", "max=!"]


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """`target(subscripts) op value where clauses`; without parentheses `subscripts` is None.

    Its span is the left name. A call with one target looks the same; `check` decides.
    """

    target: str
    subscripts: tuple[Expr, ...] | None
    op: AssignOp
    value: Expr
    equivalent: Equivalent | None = None
    clauses: tuple[Clause, ...] = ()


@dataclass(frozen=True, slots=True)
class CallStatement(Node):
    """`targets = function(args)` with two or more targets."""

    targets: tuple[Identifier, ...]
    function: Identifier
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class For(Node):
    """`for variable in lower : upper`; without `lower` it is 0."""

    variable: Identifier
    lower: Expr | None
    upper: Expr
    body: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class If(Node):
    condition: Expr
    then: tuple[Item, ...]
    orelse: tuple[Item, ...] = ()


Item = Assign | CallStatement | For | If


# ---- definitions


@dataclass(frozen=True, slots=True)
class Dimension(Node):
    """Size of an input: a name or an integer."""

    size: str | int


@dataclass(frozen=True, slots=True)
class Param(Node):
    """Its span is the name."""

    dtype: DType
    dimensions: tuple[Dimension, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Result(Node):
    """Output: `name`, or with a declared type and shape. Its span is the name."""

    name: str
    dtype: DType | None = None
    dimensions: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Def(Node):
    """Its span is the name."""

    name: str
    params: tuple[Param, ...]
    results: tuple[Result, ...]
    body: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Module:
    """All defs of a text."""

    defs: tuple[Def, ...]
    source: str = field(default="", compare=False, repr=False)
    filename: str = field(default="<tc>", compare=False, repr=False)


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
