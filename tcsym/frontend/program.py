# SPDX-License-Identifier: Apache-2.0
"""The typed program: what the front end hands to the interpreter and to the compiler.

Everything is resolved: names, types (every conversion is an explicit `Cast`), literals, `let`s,
calls (inlined with fresh names), ranges (`domain` of each statement), shapes, and which checks
remain for the call or for the running kernel. Iteration domains are boxes whose bounds depend on
sizes and enclosing loop variables, and reduction ranges inside them whose bounds may depend on what
stands before them in the domain, and on scalars that are read (`Range`, `Given`). All integer work
in subscripts, bounds and conditions is exact (`Index`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, ClassVar, Literal, Protocol, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.errors import NOWHERE, Span
from tcsym.index.expr import Condition, Index
from tcsym.keyed import Keyed, key_fields
from tcsym.trees import fold, preorder
from tcsym.types import DType

# ---- expressions. Spans never take part in equality.


class Const(Struct, frozen=True):
    """A literal of its final type: exact int (bool: 0 or 1), or float already rounded to it."""

    value: int | float
    dtype: DType


class IndexValue(Struct, frozen=True):
    """An exact index expression as a value: wrapped to `dtype` (int32; int64 inside subscripts)."""

    index: Index
    dtype: DType


class Read(Keyed, frozen=True):
    """Element of a tensor.

    A subscript is an `Index` over index variables, loop variables and sizes, or, for a gather, an
    int64 expression. `checked[d]` asks the running kernel to verify 0 <= subscript d < extent at
    every executed point; unchecked dimensions are proved, or covered by `Program.checks`.
    `unwritten`, if given, holds at the points where the element was not written before: reading
    there is an `init` error. What a subscript that is no `Index` gives is `position_name` in it.
    `places`: spans of the subscripts.
    """

    aside: ClassVar[tuple[str, ...]] = ("span", "places")

    tensor: str
    subscripts: tuple[Index | Expr, ...]
    dtype: DType
    checked: tuple[bool, ...] = ()
    unwritten: Condition | None = None
    span: Span = NOWHERE
    places: tuple[Span, ...] = ()


def position_name(k: int) -> str:
    """Stands for what the k-th of the subscripts gives that are no `Index`."""
    return f'{k}"'


def is_position_name(name: str) -> bool:
    return name.endswith('"')


class Cast(Keyed, frozen=True):
    """Conversion by the rules of LANGUAGE B8 (saturating float to integer, wrapping integers).

    `exact`: of a uint64 to int64 inside a subscript; beyond int64 is a `size` error, not a wrap.
    """

    operand: Expr
    dtype: DType
    exact: bool = False
    span: Span = NOWHERE


class Unary(Keyed, frozen=True):
    aside: ClassVar[tuple[str, ...]] = ()

    op: Literal["neg", "not"]
    operand: Expr
    dtype: DType


BitOp = Literal["bitand", "bitor", "bitxor", "shl", "shr"]
BinaryOp = Literal["add", "sub", "mul", "div", "mod", "min", "max", "and", "or"] | BitOp


class Binary(Keyed, frozen=True):
    """Operands have type `dtype` (`and`/`or`: bool, and they stop early).

    `div`/`mod` round down for integers and give 0 for a zero divisor; float `mod` is
    a - b*floor(a/b); `min`/`max` propagate NaN. On bool `add`,`max` are or, `mul`,`min` are and.
    `shl`/`shr`: the count is the right operand read as unsigned; from the width on, all bits go.
    `exact`: int64 arithmetic inside a subscript; overflow is a `size` error, not a wrap.
    """

    op: BinaryOp
    left: Expr
    right: Expr
    dtype: DType
    exact: bool = False
    span: Span = NOWHERE


class Compare(Keyed, frozen=True):
    """bool. Operands have one type, or are integers of any two types, compared by value: those of
    index expressions of int64 are integers of mathematics (LANGUAGE E4)."""

    op: Literal["lt", "le", "gt", "ge", "eq", "ne"]
    left: Expr
    right: Expr
    span: Span = NOWHERE


class Select(Keyed, frozen=True):
    """`then` where `condition` (bool) holds, else `orelse`; the other arm is not evaluated.

    `eager`: a pass has proved that both arms may be evaluated wherever the statement runs.
    """

    aside: ClassVar[tuple[str, ...]] = ()

    condition: Expr
    then: Expr
    orelse: Expr
    dtype: DType
    eager: bool = False


class Call(Keyed, frozen=True):
    """A built-in on arguments of type `dtype` (a floating type), giving `dtype`."""

    aside: ClassVar[tuple[str, ...]] = ()

    function: str
    args: tuple[Expr, ...]
    dtype: DType


Expr = Const | IndexValue | Read | Cast | Unary | Binary | Compare | Select | Call


def dtype_of(e: Expr) -> DType:
    return DType.BOOL if isinstance(e, Compare) else e.dtype


# ---- statements


class Range(Keyed, frozen=True):
    """Index variable `lower <= variable < upper`; bounds over sizes and enclosing loop variables.

    Those of a reduction variable also over left index variables, reduction variables that stand
    before it in the domain, and what is `given`. `upper <= lower` is empty. `reduced`: the variable
    does not occur on the left. `at`: the variable stands for a scattered left subscript (LANGUAGE
    F4), over the whole dimension, and a point runs only where it equals this: an affine `Index`,
    proved or covered by checks to lie inside, or an int64 expression that reads tensors, which the
    kernel checks to lie inside; or a choice of such a one or `NO_POSITION`: then the point does not
    run (`positions`). `places`: spans of the ends, or of the position.
    """

    aside: ClassVar[tuple[str, ...]] = ("places",)

    variable: str
    lower: Index
    upper: Index
    reduced: bool
    at: Index | Expr | None = None
    places: tuple[Span, ...] = ()


NO_POSITION = Const(1 << 63, DType.INT64)  # beyond int64, so that no text can say it
MOST_GIVEN = 1 << 40
ROOM = 1 << 48  # of formulas in usual code (runtime.limits): those of given ends are below it


class Given(Struct, frozen=True):
    """An end of a range that reads tensors (LANGUAGE F3): `name` has that `value`, an exact int64
    of at most the magnitude MOST_GIVEN: no tensor has as many elements, and formulas have room.

    Its reads have subscripts over sizes, loop variables and left index variables; it varies with
    these and with the index variables that stand in `value` beside them.
    """

    name: str
    value: Expr

    def variables(self) -> frozenset[str]:
        """What the value varies with, sizes too."""
        return variables_of(self.value)


def far_end(tensor: str) -> str:
    """What is wrong with a larger one."""
    return f"the end of a range that is read from `{tensor}` is beyond 2**40"


AssignOp = Literal["=", "+=", "*=", "min=", "max="]


class Statement(Keyed, frozen=True):
    """`target(subscripts) op value` at every point of `domain`, simultaneously (LANGUAGE B10).

    `initialise`: elements in the domain's image are first set to the identity of `op`, also where
    the reduction is empty; a scattered dimension is in the image as a whole, unless its position
    is fixed. Left subscripts are an index variable or an affine expression of sizes and loop
    variables. `value` has the target's type, except that a reduction's term keeps its own type and
    is converted when accumulated. `exists` reads are only bounds-checked at every point. `given`:
    scalars that bounds of the domain use.
    """

    name: str
    target: str
    subscripts: tuple[Index, ...]
    op: AssignOp
    initialise: bool
    domain: tuple[Range, ...]
    value: Expr
    exists: tuple[Expr, ...] = ()
    span: Span = NOWHERE
    given: tuple[Given, ...] = ()

    @property
    def is_box(self) -> bool:
        """The ranges of its domain do not depend on each other, nor on what is read."""
        names = {r.variable for r in self.domain}
        ends = (e for r in self.domain for e in (r.lower, r.upper))
        return not self.given and all(names.isdisjoint(e.variables()) for e in ends)

    @property
    def scattered(self) -> tuple[Range, ...]:
        """The ranges of left subscripts that are positions (LANGUAGE F4)."""
        return tuple(r for r in self.domain if r.at is not None)

    @property
    def walked(self) -> tuple[Range, ...]:
        """The ranges whose points run: all others."""
        return tuple(r for r in self.domain if r.at is None)

    @property
    def read_positions(self) -> tuple[Expr, ...]:
        """The positions that read tensors."""
        places = (r.at for r in self.domain)
        return tuple(p for p in places if p is not None and not isinstance(p, Index))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All that reads tensors."""
        given = (g.value for g in self.given)
        return (*self.read_positions, self.value, *self.exists, *given)

    @property
    def image(self) -> tuple[Range, ...]:
        """The ranges of what `initialise` sets: scattered dimensions as a whole, at fixed
        positions only these."""
        moving = frozenset(r.variable for r in self.walked)
        return tuple(
            r if r.at is None or is_fixed(r.at, moving) else replace(r, at=None)
            for r in self.domain
            if not r.reduced
        )


class For(Keyed, frozen=True):
    """Ordered iterations lower <= variable < upper. Loop variables are unique in the program.
    `places`: spans of the ends."""

    aside: ClassVar[tuple[str, ...]] = ("span", "places")

    variable: str
    lower: Index
    upper: Index
    body: tuple[Item, ...]
    span: Span = NOWHERE
    places: tuple[Span, ...] = ()


class If(Keyed, frozen=True):
    """`place`: span of the condition."""

    aside: ClassVar[tuple[str, ...]] = ("span", "place")

    condition: Condition
    then: tuple[Item, ...]
    orelse: tuple[Item, ...] = ()
    span: Span = NOWHERE
    place: Span = NOWHERE


Item = Statement | For | If


# ---- the program


class _HasPlace(Protocol):
    @property
    def place(self) -> int: ...


T = TypeVar("T")
S = TypeVar("S", bound=_HasPlace)
Role = Literal["input", "inout", "output", "temporary"]


class Tensor(Keyed, frozen=True):
    """`shape` over sizes; `dimension_spans`: the dimensions in the header, for errors."""

    aside: ClassVar[tuple[str, ...]] = ("span", "dimension_spans")

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    role: Role
    span: Span = NOWHERE
    dimension_spans: tuple[Span, ...] = ()


class Check(Keyed, frozen=True):
    """`condition` over the sizes must hold at the call, else an error of `kind` at `span`."""

    kind: str
    condition: Condition
    message: str
    hint: str = ""
    span: Span = NOWHERE


class Trap(Struct, frozen=True):
    """What the text says and its author may not mean (LANGUAGE F9): a warning of `define`."""

    kind: str
    message: str
    hint: str = ""
    span: Span = NOWHERE


class SizeParameter(Keyed, frozen=True):
    """A size that is given at the call like an argument: the one at `place` among the parameters.

    `divides`: the end of a range, a loop or a dimension is divided by it, so that it is not 0.
    """

    aside: ClassVar[tuple[str, ...]] = ("span",)

    name: str
    place: int
    divides: bool = False
    span: Span = NOWHERE


def in_order(tensors: Sequence[T], sizes: Sequence[S]) -> tuple[T | S, ...]:
    """Parameters as the header has them. sizes: with their places, ascending."""
    found: list[T | S] = list(tensors)
    for p in sizes:
        found.insert(p.place, p)
    return tuple(found)


class Program(Keyed, frozen=True, dict=True):
    """One def, ready to run.

    `sizes`: all size names, in order of appearance; `free_sizes` of them come from the caller only,
    and of these `size_parameters` like arguments.
    `checks` are in the order in which a call reports them. Tensors are in declaration order:
    parameters (inputs, and `inout`: those that are updated), outputs, then temporaries in order of
    first assignment. `canonical` is the hash of its meaning, equal for programs that differ in
    names only: the key of what tuning learned. `constants`: inputs that are the same for many
    calls.
    """

    aside: ClassVar[tuple[str, ...]] = ("source", "filename", "span", "canonical", "traps")

    name: str
    sizes: tuple[str, ...]
    free_sizes: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    body: tuple[Item, ...]
    checks: tuple[Check, ...]
    source: str = ""
    filename: str = "<tc>"
    span: Span = NOWHERE
    canonical: str = ""
    traps: tuple[Trap, ...] = ()
    size_parameters: tuple[SizeParameter, ...] = ()
    constants: tuple[str, ...] = ()

    def __repr__(self) -> str:  # trees may be deeper than Python can print
        head = f"name={self.name!r}, sizes={self.sizes!r}, free_sizes={self.free_sizes!r}"
        return f"Program({head}, tensors={self.tensors!r})"

    def tensor(self, name: str) -> Tensor:
        named: dict[str, Tensor] | None = self.__dict__.get("named")
        if named is None:
            named = self.__dict__["named"] = {t.name: t for t in self.tensors}
        return named[name]

    def by_role(self, *roles: Role) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.role in roles)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The parameters, those that are updated, too."""
        return self.by_role("input", "inout")

    @property
    def inouts(self) -> tuple[Tensor, ...]:
        return self.by_role("inout")

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return self.by_role("output")

    @property
    def parameters(self) -> tuple[Tensor | SizeParameter, ...]:
        """What a call is given, in order."""
        return in_order(self.inputs, self.size_parameters)

    def arguments(
        self, inputs: Sequence[Any], sizes: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any] | None]:
        """What a call of these inputs and sizes is given in order, and as `sizes=`."""
        given = list(inputs)
        for p in self.size_parameters:
            given.insert(p.place, sizes[p.name])
        known = {p.name for p in self.size_parameters}
        return given, {n: v for n, v in sizes.items() if n not in known} or None


# ---- traversal


def same_index(i: Index) -> Index:
    return i


def children(e: Expr) -> tuple[Expr, ...]:
    """Direct subexpressions; for a read, its data-dependent subscripts."""
    match e:
        case Const() | IndexValue():
            return ()
        case Read(_, subscripts):
            return tuple(s for s in subscripts if not isinstance(s, Index))
        case Cast(x, _) | Unary(_, x, _):
            return (x,)
        case Binary(_, a, b) | Compare(_, a, b):
            return (a, b)
        case Select(c, a, b):
            return (c, a, b)
        case Call(_, args):
            return args
        case _:
            assert_never(e)


def rebuilt(
    e: Expr, f: Callable[[Expr], Expr], of_index: Callable[[Index], Index] = same_index
) -> Expr:
    """`e` with `f` applied to its direct parts, and `of_index` to its index expressions."""
    return with_children(e, [f(x) for x in children(e)], of_index)


def with_children(
    e: Expr, parts: Sequence[Expr], of_index: Callable[[Index], Index] = same_index
) -> Expr:
    """`e` with other direct parts, as `children` has them, and `of_index` of its index expressions;
    itself if nothing changes."""
    match e:
        case Const():
            return e
        case IndexValue(i, _):
            new = of_index(i)
            return e if new is i else replace(e, index=new)
        case Read(_, subscripts):
            others = iter(parts)
            made = [of_index(s) if isinstance(s, Index) else next(others) for s in subscripts]
            return e if all(map(is_, made, subscripts)) else replace(e, subscripts=tuple(made))
        case Cast(x, _) | Unary(_, x, _):
            return e if parts[0] is x else replace(e, operand=parts[0])
        case Binary(_, a, b) | Compare(_, a, b):
            left, right = parts
            return e if left is a and right is b else replace(e, left=left, right=right)
        case Select(c, a, b):
            condition, then, orelse = parts
            if condition is c and then is a and orelse is b:
                return e
            return replace(e, condition=condition, then=then, orelse=orelse)
        case Call(_, args):
            return e if all(map(is_, parts, args)) else replace(e, args=tuple(parts))
        case _:
            assert_never(e)


def rewritten(
    e: Expr,
    change: Callable[[Expr, Expr], Expr],
    of_index: Callable[[Index], Index] = same_index,
    below: Callable[[Expr], Sequence[Expr]] = children,
) -> Expr:
    """`e` with each expression in it, inner ones first, replaced by what `change` has for it: of
    what it is made of by now, and of what it was. below: `children`, or () where those stay."""

    def value(x: Expr, parts: list[Expr]) -> Expr:
        return change(with_children(x, parts or children(x), of_index), x)

    return fold(e, below, value)


def subexpressions(e: Expr) -> Iterator[Expr]:
    """`e` and all below it, parents first."""
    return preorder(e, children)


def reads(e: Expr) -> tuple[Read, ...]:
    return tuple(x for x in subexpressions(e) if isinstance(x, Read))


def is_fixed(at: Index | Expr, variables: frozenset[str]) -> bool:
    """True for a position that reads tensors without dimensions only, and none of the index
    `variables`."""
    if isinstance(at, Select) and at.orelse == NO_POSITION:
        return False
    plain = isinstance(at, Index) or not any(r.subscripts for r in reads(at))
    return plain and variables.isdisjoint(variables_of(at))


def variables_of(e: Index | Expr) -> frozenset[str]:
    """Sizes, loop and index variables in an expression, in subscripts of its reads, too."""
    if isinstance(e, Index):
        return e.variables()
    found = [x.index for x in subexpressions(e) if isinstance(x, IndexValue)]
    found += [i for r in reads(e) for i in r.subscripts if isinstance(i, Index)]
    return frozenset[str]().union(*(i.variables() for i in found))


def indices_in(part: object) -> Iterator[Index]:
    """All index expressions in a part of a program, those of conditions too."""
    waiting = [part]
    while waiting:
        x = waiting.pop()
        match x:
            case Index():
                yield x
            case tuple() | list():
                waiting.extend(x)
            case Struct():
                waiting.extend([getattr(x, name) for name in key_fields(type(x))])
            case _:
                pass


def statements(items: tuple[Item, ...]) -> Iterator[Statement]:
    """All statements in text order."""
    for item in items:
        match item:
            case Statement():
                yield item
            case For(_, _, _, body):
                yield from statements(body)
            case If(_, then, orelse):
                yield from statements(then)
                yield from statements(orelse)
            case _:
                assert_never(item)
