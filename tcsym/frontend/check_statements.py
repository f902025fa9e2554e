# SPDX-License-Identifier: Apache-2.0
"""One assignment as written -> `ResolvedStatement`: its names, then its types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar, assert_never

from msgspec import Struct, field

from tcsym.errors import (
    DuplicateError,
    ImmutableError,
    InitError,
    RankError,
    ReductionError,
    Span,
    TCError,
    TCNameError,
    TCTypeError,
    n_dimensions,
)
from tcsym.frontend import ast
from tcsym.frontend.check_expressions import typed_expression, value_of
from tcsym.frontend.check_index import left_subscript, named
from tcsym.frontend.check_ranges import GivenRanges
from tcsym.frontend.idioms import accumulated_hint, reduced_hint
from tcsym.frontend.literals import Literal, default_type, literal_to_const, stored_literal
from tcsym.frontend.program import AssignOp, Cast, Expr, dtype_of, is_fixed
from tcsym.frontend.promotion import Typed
from tcsym.frontend.resolved import ResolvedStatement, Variable
from tcsym.frontend.scope import Context, Scope, StatementNames, Tensor, Unresolved, a_kind, kind_in
from tcsym.frontend.traps import literal_trap, traps_of
from tcsym.index.expr import ZERO, Index, var
from tcsym.types import DType, holds

P = ParamSpec("P")
T = TypeVar("T")


class Findings(Struct):
    """Errors of the parts of one statement; the first in text order is raised."""

    errors: list[TCError] = field(default_factory=list)
    unresolved: bool = False

    def attempt(self, part: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return part(*args, **kwargs)
        except TCError as e:
            self.errors.append(e)
        except Unresolved:
            self.unresolved = True
        return None

    def raise_first(self) -> None:
        if self.errors:
            raise min(self.errors, key=lambda e: (e.line, e.column))
        if self.unresolved:
            raise Unresolved


class Where(Struct):
    """What the clauses of a statement say."""

    ranges: GivenRanges = field(default_factory=GivenRanges)
    exists: list[Expr] = field(default_factory=list)


def statement(s: ast.Assign, scope: Scope) -> ResolvedStatement:
    """Resolve `s` and note in `scope` that its target is written."""
    tensor = scope.tensors.get(s.target)
    with failing_target(scope, s.target, s.span):
        resolved = _resolve(s, scope, Findings())
    if tensor is None:
        rank, dtype = len(s.subscripts or ()), dtype_of(resolved.value)
        scope.tensors[s.target] = Tensor(
            s.target, "temporary", dtype, rank, written=True, span=s.span
        )
    else:
        if tensor.dtype is None:
            tensor.dtype = dtype_of(resolved.value)
        tensor.rank, tensor.written = len(s.subscripts or ()), True
    return resolved


@contextmanager
def failing_target(scope: Scope, target: str, span: Span) -> Iterator[None]:
    """If the statement fails, its target counts as written, with a type that may be unknown."""
    try:
        yield
    except (TCError, Unresolved):
        fail_target(scope, target, span)
        raise


def fail_target(scope: Scope, target: str, span: Span) -> None:
    kind = scope.kind(target)
    if kind is None:
        scope.tensors[target] = Tensor(target, "temporary", failed=True, span=span)
    elif kind == "tensor":
        tensor = scope.tensors[target]
        tensor.written, tensor.failed = True, tensor.failed or tensor.dtype is None


def check_target(scope: Scope, name: str, span: Span) -> None:
    """`name` may be assigned."""
    kind = scope.kind(name)
    if kind == "built-in function":
        raise TCNameError(f"`{name}` is a built-in function and cannot be redefined", span=span)
    if kind == "tensor" and scope.tensors[name].role == "input":
        kind = "input"
    if kind is not None and kind != "tensor":
        raise ImmutableError(f"`{name}` is immutable: it is {a_kind(kind)}", span=span)


def _resolve(s: ast.Assign, scope: Scope, found: Findings) -> ResolvedStatement:
    names = StatementNames()
    tensor = scope.tensors.get(s.target)
    is_declared = tensor is not None and tensor.is_declared
    c = Context(scope, names, wide=tensor.dtype if tensor is not None and is_declared else None)
    found.attempt(check_target, scope, s.target, s.span)
    places = [found.attempt(left_subscript, e, s.op, c) for e in s.subscripts or ()]
    where = _clauses(s.clauses, c, found)
    value = found.attempt(typed_expression, s.value, c)
    if s.equivalent is not None:
        found.attempt(_check_equivalent, s.equivalent, c)
    found.raise_first()
    assert value is not None
    subscripts, positions = _positions(s, places, names)
    op, initialise = _operator(s, names, positions)
    found.attempt(_check_target_state, s, tensor, scope)
    found.attempt(_check_reduction, op, names)
    stored = found.attempt(_stored, value, op, tensor, s)
    found.raise_first()
    assert stored is not None
    resolved = ResolvedStatement(
        s.target,
        subscripts,
        op,
        initialise,
        (*_variables(names, where), *positions),
        stored,
        tuple(where.exists),
        s.span,
        tuple(e.span for e in s.subscripts or ()),
        tuple(where.ranges.given),
    )
    dtype = tensor.dtype if tensor is not None and tensor.dtype else dtype_of(stored)
    scope.traps += traps_of(resolved, s.value, dtype, is_declared)
    if isinstance(value, Literal):
        kept = tensor is None or tensor.role == "temporary"
        scope.traps += literal_trap(value, dtype.accumulator if kept else dtype)
    return resolved


def _variables(names: StatementNames, where: Where) -> tuple[Variable, ...]:
    ranges = where.ranges.ends
    uses = {name: _used(ends) for name, (ends, *_) in ranges.items()}
    return tuple(
        Variable(name, name not in names.left, None, names.variables[name])
        if name not in ranges
        else Variable(
            name,
            name not in names.left,
            ranges[name][0],
            names.variables[name],
            ranges[name][1],
            places=ranges[name][2],
        )
        for name in ordered(names.variables, uses)
    )


def ordered(names: Iterable[str], uses: Mapping[str, frozenset[str]]) -> list[str]:
    """Index variables in the order of the text, those with ranges behind what these use."""
    found = dict.fromkeys(names)
    for name, used in uses.items():
        if not found.keys().isdisjoint(used):
            del found[name]
            found[name] = None
    return list(found)


def _positions(
    s: ast.Assign, places: Sequence[Index | Expr | None], names: StatementNames
) -> tuple[tuple[Index, ...], tuple[Variable, ...]]:
    """The left subscripts, and a variable for each that is scattered (LANGUAGE F4)."""
    subscripts: list[Index] = []
    positions: list[Variable] = []
    for d, (e, place) in enumerate(zip(s.subscripts or (), places, strict=True)):
        assert place is not None
        if isinstance(place, Index) and _is_left_or_fixed(place, names):
            subscripts.append(place)
            continue
        name = f"{s.target}.{d}"
        positions.append(Variable(name, False, span=e.span, at=place, places=(e.span,)))
        subscripts.append(var(name))
    return tuple(subscripts), tuple(positions)


def _is_left_or_fixed(place: Index, names: StatementNames) -> bool:
    return place.variables().isdisjoint(names.variables) or any(place == var(v) for v in names.left)


def _used(ends: tuple[Index, Index]) -> frozenset[str]:
    return ends[0].variables() | ends[1].variables()


# ---- clauses


def _clauses(clauses: tuple[ast.Clause, ...], c: Context, found: Findings) -> Where:
    where = Where()
    for clause in clauses:
        match clause:
            case ast.RangeClause():
                found.attempt(_range, clause, c, where)
            case ast.Let():
                found.attempt(_let, clause, c)
            case ast.Exists(value):
                checked = Context(c.scope, c.names, exists=True)
                exists = found.attempt(value_of, value, checked)
                where.exists += [exists] if exists is not None else []
            case _:
                assert_never(clause)
    return where


def _range(r: ast.RangeClause, c: Context, where: Where) -> None:
    name, span = r.variable.name, r.variable.span
    kind = kind_in(c, name)
    if kind is not None and kind != "index variable":
        message = f"`{name}` is {a_kind(kind)}, not an index variable; it has no range"
        raise TCNameError(message, span=span)
    if name in where.ranges.ends:
        raise DuplicateError(f"index variable `{name}` has two ranges", span=span)
    c.names.see(name, span)
    where.ranges.ends[name] = ((ZERO, ZERO), r.span, ())
    where.ranges.read(r, c)


def _let(let: ast.Let, c: Context) -> None:
    name, span = let.name.name, let.name.span
    kind = kind_in(c, name)
    if kind == "built-in function":
        raise TCNameError(f"`{name}` is a built-in function and cannot be redefined", span=span)
    if kind is not None:
        raise DuplicateError(f"`{name}` is already the name of {a_kind(kind)}", span=span)
    try:
        value_of(let.value, c)
    except (TCError, Unresolved):
        c.names.lets[name] = None
        raise
    if name in c.names.variables:
        raise TCNameError(f"`{name}` is used in its own definition", span=span)
    c.names.lets[name] = let.value


def _check_equivalent(e: ast.Equivalent, c: Context) -> None:
    for arg in e.args:
        for x in named(arg):
            if kind_in(c, x.name) is None and x.name not in c.scope.assigned:
                raise TCNameError(f"undefined name `{x.name}`", span=x.span)


# ---- target and types


def _operator(
    s: ast.Assign, names: StatementNames, positions: tuple[Variable, ...]
) -> tuple[AssignOp, bool]:
    """Operator and whether it initialises; `+=!` without reduction variables is `=`, unless it is
    scattered."""
    if s.op == "=":
        return "=", False
    initialise = s.op.endswith("!")
    op: AssignOp = s.op.rstrip("!")  # type: ignore[assignment]
    indices = frozenset(names.variables)
    fixed = all(v.at is None or is_fixed(v.at, indices) for v in positions)
    if op == "+=" and initialise and fixed and names.variables.keys() == names.left.keys():
        return "=", False
    return op, initialise


def _check_target_state(s: ast.Assign, tensor: Tensor | None, scope: Scope) -> None:
    rank = len(s.subscripts or ())
    if tensor is not None and tensor.failed:
        raise Unresolved
    if tensor is not None and tensor.rank not in (None, rank):
        raise RankError(
            f"tensor `{s.target}` has {n_dimensions(tensor.rank)} but is assigned with {rank}",
            span=s.span,
        )
    if s.op == "=" or s.op.endswith("!") or (tensor is not None and tensor.written):
        return
    if tensor is None or not (tensor.is_declared and scope.loops):
        raise InitError(
            f"`{s.op}` accumulates into `{s.target}` before anything is written to it",
            span=s.span,
            hint=accumulated_hint(s.op, s.target),
        )


def _check_reduction(op: AssignOp, names: StatementNames) -> None:
    reduced = [(n, span) for n, span in names.variables.items() if n not in names.left]
    if op == "=" and reduced:
        name, span = min(reduced, key=lambda v: (v[1].line, v[1].column))
        raise ReductionError(
            f"`{name}` is not on the left, so this is a reduction: `=` needs an operator",
            span=span,
            hint=reduced_hint(name),
        )


def _stored(value: Typed, op: AssignOp, tensor: Tensor | None, s: ast.Assign) -> Expr:
    """The value with the target's type; a reduction's or update's term keeps its own (E3)."""
    target = tensor.dtype if tensor is not None else None
    if isinstance(value, Literal):
        if target is None:
            return literal_to_const(value, default_type(value))
        if target.is_float or not value.is_float:
            kept = tensor is None or tensor.role == "temporary"  # in float32
            return (literal_to_const if kept else stored_literal)(value, target)
    dtype = default_type(value) if isinstance(value, Literal) else dtype_of(value)
    if tensor is not None and target is not None and not holds(target, dtype):
        raise narrower(tensor, dtype, s.span)
    assert not isinstance(value, Literal)
    return value if op != "=" or target in (None, dtype) else Cast(value, target or dtype)


def narrower(tensor: Tensor, dtype: DType, span: Span) -> TCTypeError:
    name, target = tensor.name, tensor.dtype
    wider = f"declare `{name}` as {dtype}"
    if tensor.role == "temporary":
        wider = f"have `{name}` begin as `{dtype}(…)`"
    return TCTypeError(
        f"`{name}` has the narrower type {target}; it cannot hold {dtype}",
        span=span,
        hint=f"convert explicitly with `{target}(…)`, or {wider}",
    )
