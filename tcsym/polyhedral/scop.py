# SPDX-License-Identifier: Apache-2.0
"""Program -> scop: statements with iteration domains and accesses, and their original order.

A program statement becomes up to three scop statements: `S.exists…` (run-time checks only),
`S.init` (stores the identity of a reduction) and `S`. Everything here is plain data; `Relations`
makes isl objects from it when a proof asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.errors import NOWHERE, Span
from tcsym.frontend.affine import Meanings
from tcsym.frontend.program import (
    Binary,
    Cast,
    Const,
    Expr,
    For,
    Given,
    If,
    Item,
    Program,
    Range,
    Read,
    Select,
    Statement,
    Tensor,
    children,
    dtype_of,
    reads,
)
from tcsym.index.expr import (
    TRUE,
    Condition,
    Index,
    all_of,
    condition_variables,
    ge,
    lt,
    negate,
    var,
)
from tcsym.index.text import condition_text
from tcsym.ir.loops import ReduceOp
from tcsym.keyed import Keyed
from tcsym.trees import preorder
from tcsym.types import DType

Role = Literal["assign", "init", "update", "check"]
REDUCE_OPS: dict[str, ReduceOp] = {"+=": "add", "*=": "mul", "min=": "min", "max=": "max"}


class Access(Struct, frozen=True):
    """Element of a tensor touched at a point; a subscript None may be any position (gather).

    `guard`: the access happens at most where it holds.
    """

    tensor: str
    subscripts: tuple[Index | None, ...]
    guard: Condition = TRUE

    def __str__(self) -> str:
        if not self.subscripts:
            return self.tensor
        return f"{self.tensor}[{', '.join('?' if s is None else str(s) for s in self.subscripts)}]"


class ScopStatement(Keyed, frozen=True, dict=True):
    """One scheduled unit. Its iteration vector is `outer` (`for` variables) then `ranges`.

    role: `assign` and `init` store `value`, `update` combines with `op`, `check` only verifies
    reads. partner: of an init its update and the other way round. `condition`: the enclosing `if`s.
    reads: elements read by value at a point, each once; an update also reads what it updates.
    Ranges of scattered subscripts (`Range.at`) count with all of their values, so what is written
    there is what may be written.
    given: scalars that bounds of the ranges use. To proofs, what such a bound moves runs over all
    integers.
    """

    name: str
    role: Role
    outer: tuple[Range, ...]
    ranges: tuple[Range, ...]
    condition: Condition
    value: Expr
    target: str = ""
    subscripts: tuple[Index, ...] = ()
    op: ReduceOp = "add"
    partner: str = ""
    reads: tuple[Access, ...] = ()
    span: Span = NOWHERE
    given: tuple[Given, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)  # names are unique in a scop; hashing expressions is slow

    @property
    def by_iterator(self) -> dict[str, Range]:
        """Ranges in order; found once."""
        found: dict[str, Range] | None = self.__dict__.get("by_iterator")
        if found is None:
            found = {r.variable: r for r in (*self.outer, *self.ranges)}
            self.__dict__["by_iterator"] = found
        return found

    @property
    def iterators(self) -> tuple[str, ...]:
        return tuple(self.by_iterator)

    @property
    def positions(self) -> frozenset[str]:
        """Iterators that stand for scattered subscripts."""
        return frozenset([r.variable for r in self.ranges if r.at is not None])

    @property
    def reduced(self) -> frozenset[str]:
        """Iterators over which this update accumulates."""
        found: frozenset[str] | None = self.__dict__.get("reduced")
        if found is None:
            own = [r.variable for r in self.ranges if r.reduced and self.role == "update"]
            found = self.__dict__["reduced"] = frozenset(own)
        return found

    def range_of(self, iterator: str) -> Range:
        return self.by_iterator[iterator]

    def iterator(self, value: Index) -> str | None:
        """The iterator that `value` is, if it is one."""
        name = value.terms[0][0] if len(value.terms) == 1 else None
        plain = isinstance(name, str) and value.terms[0][1] == 1 and not value.constant
        return name if plain and name in self.by_iterator else None

    def position(self, value: Index) -> int:
        """Of the iterator that `value` is, else -1."""
        found = self.iterator(value)
        return -1 if found is None else self.iterators.index(found)

    @property
    def domain(self) -> Condition:
        names = {g.name for g in self.given}
        bounds = [
            c
            for r in (*self.outer, *self.ranges)
            for c in (ge(var(r.variable), r.lower), lt(var(r.variable), r.upper))
            if names.isdisjoint(condition_variables(c))
        ]
        return all_of((*bounds, self.condition))

    def follows(self, iterator: str) -> frozenset[str]:
        """Iterators that its range uses, also through what is given."""
        return self.following[iterator]

    @property
    def following(self) -> dict[str, frozenset[str]]:
        """What each iterator follows; found once."""
        found: dict[str, frozenset[str]] | None = self.__dict__.get("following")
        if found is None:
            found = {}
            for v, r in self.by_iterator.items():
                used = r.lower.variables() | r.upper.variables()
                used = used.union(*(g.variables() for g in self.given if g.name in used))
                found[v] = used & self.by_iterator.keys()
            self.__dict__["following"] = found
        return found

    @property
    def write(self) -> Access | None:
        return Access(self.target, self.subscripts) if self.target else None

    def __str__(self) -> str:
        bounds = ", ".join(
            f"{r.variable} in {r.lower}:{r.upper}" for r in (*self.outer, *self.ranges)
        )
        guard = "" if self.condition == TRUE else f" if {condition_text(self.condition)}"
        head = f"{self.name}({', '.join(self.iterators)})"
        return f"{head}: {self.role}{' for ' + bounds if bounds else ''}{guard}"


class ScopLoop(Struct, frozen=True):
    """A `for` of the program around `items`."""

    range: Range
    items: tuple[ScopItem, ...]


ScopItem = str | ScopLoop


def is_ragged(s: ScopStatement, iterator: str) -> bool:
    """Tensors are read for an end of its range."""
    r = s.range_of(iterator)
    names = {g.name for g in s.given}
    return not names.isdisjoint(r.lower.variables() | r.upper.variables())


class Scop(Struct, frozen=True, dict=True):
    """`statements` in text order; `items`: their nesting in `for` loops; `context`: of sizes."""

    sizes: tuple[str, ...]
    context: Condition
    tensors: tuple[Tensor, ...]
    statements: tuple[ScopStatement, ...]
    items: tuple[ScopItem, ...]

    def statement(self, name: str) -> ScopStatement:
        named: dict[str, ScopStatement] | None = self.__dict__.get("named")
        if named is None:
            named = self.__dict__["named"] = {s.name: s for s in self.statements}
        return named[name]

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    @property
    def written(self) -> frozenset[str]:
        return frozenset(s.target for s in self.statements if s.target)

    def __str__(self) -> str:
        lines = [f"sizes {', '.join(self.sizes)}"]
        if self.context != TRUE:
            lines.append(f"context {condition_text(self.context)}")
        for s in self.statements:
            lines.append(str(s))
            if s.write is not None:
                lines.append(f"  write {s.write}")
            lines.extend(f"  read {a}" for a in s.reads)
        return "\n".join(lines)


def program_to_scop(program: Program, context: Condition = TRUE) -> Scop:
    """`context`: of the sizes that calls have, beside what they are checked for."""
    statements: list[ScopStatement] = []
    items = _items(program, program.body, (), TRUE, statements)
    context = all_of((*(c.condition for c in program.checks), context))
    return Scop(program.sizes, context, program.tensors, tuple(statements), items)


def _items(
    program: Program,
    body: tuple[Item, ...],
    outer: tuple[Range, ...],
    condition: Condition,
    out: list[ScopStatement],
) -> tuple[ScopItem, ...]:
    items: list[ScopItem] = []
    for item in body:
        match item:
            case Statement():
                made = tuple(_scop_statements(program, item, outer, condition))
                out.extend(made)
                items.extend(s.name for s in made)
            case For(variable, lower, upper, inner):
                r = Range(variable, lower, upper, reduced=False)
                inside = _items(program, inner, (*outer, r), condition, out)
                items.append(ScopLoop(r, inside))
            case If(test, then, orelse):
                yes, no = all_of((condition, test)), all_of((condition, negate(test)))
                items.extend(_items(program, then, outer, yes, out))
                items.extend(_items(program, orelse, outer, no, out))
            case _:
                assert_never(item)
    return tuple(items)


def _scop_statements(
    program: Program, s: Statement, outer: tuple[Range, ...], condition: Condition
) -> Iterator[ScopStatement]:
    given_reads = _given_accesses(s)
    for k, e in enumerate(s.exists):
        if any(any(r.checked) for r in reads(e)):
            name = f"{s.name}.exists{k or ''}"
            touched = tuple(dict.fromkeys((*_read_accesses(e), *given_reads)))
            check = ScopStatement(name, "check", outer, s.domain, condition, e, reads=touched)
            yield replace(check, given=s.given)
    whole = ScopStatement(
        s.name, "assign", outer, s.domain, condition, s.value, s.target, s.subscripts, span=s.span
    )
    at = _read_accesses(*s.read_positions)
    if s.op == "=":
        yield replace(whole, reads=_read_accesses(*s.read_positions, s.value))
        return
    dtype = program.tensor(s.target).dtype
    op = REDUCE_OPS[s.op]
    init = f"{s.name}.init" if s.initialise else ""
    if init:
        neutral = Const(identity(op, dtype), dtype)
        first = replace(whole, name=init, role="init", ranges=s.image, value=neutral, op=op)
        yield replace(first, partner=s.name, reads=at if any(r.at for r in s.image) else ())
    value = s.value if dtype_of(s.value) is dtype else Cast(s.value, dtype)
    own = Access(s.target, s.subscripts)
    touched = tuple(dict.fromkeys((*at, *_read_accesses(value), own, *given_reads)))
    update = replace(whole, role="update", value=value, op=op, partner=init, reads=touched)
    yield replace(update, given=s.given)


def _given_accesses(s: Statement) -> list[Access]:
    """What scalars are read from; at a subscript that is one, anywhere."""
    names = {g.name for g in s.given}
    return [
        replace(
            a,
            subscripts=tuple(
                None if i is None or names & i.variables() else i for i in a.subscripts
            ),
            guard=TRUE,
        )
        for g in s.given
        for a in _read_accesses(g.value)
    ]


def identity(op: ReduceOp, dtype: DType) -> int | float:
    """Neutral element of a reduction (LANGUAGE B5); on bool `add` is or, `mul` is and."""
    if op in ("add", "mul"):
        return 0 if op == "add" else 1
    if dtype.is_float:
        return float("inf") if op == "min" else float("-inf")
    return dtype.highest if op == "min" else dtype.lowest


# ---- accesses


def _read_accesses(*values: Expr) -> tuple[Access, ...]:
    return tuple(
        dict.fromkeys(
            Access(r.tensor, tuple(x if isinstance(x, Index) else None for x in r.subscripts), g)
            for e in values
            for r, g in guarded_reads(e)
        )
    )


def guarded_reads(e: Expr, guard: Condition = TRUE) -> Iterator[tuple[Read, Condition]]:
    """Every read in `e` with the affine part of the conditions on the way to it (LANGUAGE C7)."""
    meanings = Meanings()

    def below(at: tuple[Expr, Condition]) -> list[tuple[Expr, Condition]]:
        x, around = at
        guards = [around] * max(3, len(children(x)))
        match x:
            case Binary("and" | "or" as op, a):
                guards[1] = all_of((around, meanings.of(a).known(op == "and")))
            case Select(c):
                known = meanings.of(c)
                guards[1:] = (all_of((around, known.known(holds))) for holds in (True, False))
        return list(zip(children(x), guards))

    for x, around in preorder((e, guard), below):
        if isinstance(x, Read):
            yield x, around
