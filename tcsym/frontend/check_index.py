# SPDX-License-Identifier: Apache-2.0
"""Integer expressions with restricted names -> `Index` or `Condition`.

Left positions, ranges, loop bounds, `if` conditions and output dimensions (LANGUAGE C2-C5, E7):
each may use only some names, and each misuse has its own error and place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from tcsym.errors import (
    AffineError,
    CallError,
    ConditionError,
    DuplicateError,
    LoopError,
    Span,
    TCNameError,
    TCTypeError,
)
from tcsym.frontend import ast
from tcsym.frontend.affine import as_condition, as_index
from tcsym.frontend.bit_operations import BIT_OPERATORS
from tcsym.frontend.check_expressions import integer_expression, is_pure, value_of
from tcsym.frontend.idioms import name_hint
from tcsym.frontend.literals import is_float_text
from tcsym.frontend.program import Binary, Expr, Read, dtype_of, subexpressions
from tcsym.frontend.scope import Context, Scope, StatementNames, a_kind
from tcsym.index.expr import (
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Product,
    atom_parts,
    index,
    of_atom,
    var,
)
from tcsym.types import DType

_NAMES_HINT = "it may use sizes, integers and enclosing loop variables"


def named(e: ast.Expr) -> Iterable[ast.Name | ast.Apply]:
    """Names in `e` in text order."""
    return (x for x in ast.subexpressions(e) if isinstance(x, ast.Name | ast.Apply))


def is_affine(e: Index, names: frozenset[str]) -> bool:
    """True if `e` is linear in `names`, with coefficients over other variables."""
    for atom, _ in e.terms:
        match atom:
            case str():
                continue
            case Product(factors):
                moving = [f for f in factors if f not in names and of_atom(f).variables() & names]
                if moving or sum(f in names for f in factors) > 1:
                    return False
            case _:
                if of_atom(atom).variables() & names:
                    return False
    return True


def loop_names(c: Context) -> frozenset[str]:
    return frozenset(c.scope.loops.values())


# ---- left subscripts


def left_subscript(e: ast.Expr, op: str, c: Context) -> Index | Expr:
    """An index variable, which must be new on this left side, or a position (LANGUAGE C3, F4).

    An `Index` that mentions index variables, or an expression: a scattered subscript.
    """
    inner = ast.unparenthesised(e)
    if isinstance(inner, ast.Name) and not (_is_plain(inner, c) or _is_scalar(inner, c)):
        return _left_variable(inner, c)
    if not all(_is_plain(x, c) for x in named(e)):
        return _scattered(e, op, c)
    position = _affine(value_of(e, c.with_exact(True)), c) if _is_integer_text(e) else None
    if position is None:
        raise _not_affine(e, "=")
    return position


def _is_plain(x: ast.Name | ast.Apply, c: Context) -> bool:
    return isinstance(x, ast.Name) and c.scope.kind(x.name) in ("size", "loop variable")


def _is_scalar(x: ast.Name | ast.Apply, c: Context) -> bool:
    """A tensor without dimensions."""
    tensor = c.scope.tensors.get(x.name) if c.scope.kind(x.name) == "tensor" else None
    return tensor is not None and tensor.rank == 0


def _affine(value: Expr, c: Context) -> Index | None:
    position = as_index(value) if dtype_of(value).is_integer and is_pure(value) else None
    names = loop_names(c) | c.names.variables.keys()
    return position if position is not None and is_affine(position, names) else None


def _scattered(e: ast.Expr, op: str, c: Context) -> Index | Expr:
    """A position that reads tensors, or that index variables move (LANGUAGE F4)."""
    if op == "=" and not all(_is_plain(x, c) or _is_scalar(x, c) for x in named(e)):
        raise _not_affine(e, op)
    value = integer_expression(e, c, "a left subscript")
    if any(isinstance(x, Read) for x in subexpressions(value)):
        return value
    position = _affine(value, c)
    if position is None:
        raise _not_affine(e, op)
    only = next((v for v in c.names.variables if position == var(v)), None)
    return position if only is None else _left_variable(ast.Name(only, span=e.span), c)


def _not_affine(e: ast.Expr, op: str) -> AffineError:
    if op == "=":
        return AffineError(
            "a left subscript must be an index variable, or affine in sizes and loop variables",
            span=e.span,
            hint="compute the position on the right, name the range with `where`, or scatter "
            "with a reduction (`+=!`)",
        )
    return AffineError(
        "a left subscript must read a tensor, or be affine in index variables, loop variables and "
        "sizes",
        span=e.span,
    )


def _is_integer_text(e: ast.Expr) -> bool:
    return not any(
        isinstance(x, ast.CastTo | ast.Constant)
        or (isinstance(x, ast.Number) and is_float_text(x.text))
        for x in ast.subexpressions(e)
    )


def _left_variable(e: ast.Name, c: Context) -> Index:
    kind = c.scope.kind(e.name)
    if kind is not None:
        raise TCNameError(
            f"`{e.name}` is {a_kind(kind)}; it cannot be an index variable", span=e.span
        )
    if e.name in c.names.left:
        raise DuplicateError(f"index variable `{e.name}` appears twice on the left", span=e.span)
    c.names.left[e.name] = None
    c.names.see(e.name, e.span)
    return var(e.name)


# ---- loop bounds


def is_range_affine(e: Index, names: frozenset[str], scope: Scope) -> bool:
    """True if `e` is linear in `names`, also under `min`, `max`, and `/` and `%` by positive
    constants and size parameters, which must not be 0 then."""
    note_divisors(e, scope)
    return all(_is_range_atom(atom, names, scope) for atom, _ in e.terms)


def note_divisors(e: Index, scope: Scope) -> None:
    """Size parameters that `e` divides by must not be 0."""
    for atom, _ in e.terms:
        if isinstance(atom, FloorDiv | Mod):
            scope.divides(atom.divisor)
        for part in () if isinstance(atom, Product) else atom_parts(atom):
            note_divisors(part, scope)
        for f in atom.factors if isinstance(atom, Product) else ():
            note_divisors(of_atom(f), scope)


def _is_range_atom(atom: Atom, names: frozenset[str], scope: Scope) -> bool:
    if not of_atom(atom).variables() & names:
        return True
    match atom:
        case str():
            return True
        case Product(factors):
            moving = [f for f in factors if of_atom(f).variables() & names]
            return len(moving) == 1 and moving[0] in names
        case FloorDiv(a, b) | Mod(a, b):
            return _is_divisor(b, scope) and is_range_affine(a, names, scope)
        case Min(args) | Max(args):
            return all(is_range_affine(a, names, scope) for a in args)
        case Choose():
            return False
        case _:
            assert_never(atom)


def _is_divisor(e: Index, scope: Scope) -> bool:
    """A positive constant or a product of size parameters."""
    return (e.as_int() or 0) > 0 or scope.divides(e)


def loop_bound(e: ast.Expr, scope: Scope) -> Index:
    c = Context(scope, StatementNames(closed=True))
    for x in named(e):
        kind = scope.kind(x.name)
        if kind == "tensor":
            raise LoopError(
                f"a loop bound reads the tensor `{x.name}`", span=x.span, hint=_NAMES_HINT
            )
        if kind not in ("size", "loop variable", "built-in function"):
            hint = name_hint("range", ()) if x.name == "range" else _NAMES_HINT
            raise TCNameError(f"undefined name `{x.name}` in a loop bound", span=x.span, hint=hint)
    return _bound(e, "a loop bound", c)


def _bound(e: ast.Expr, what: str, c: Context) -> Index:
    value = integer_expression(e, c, what)
    bound = as_index(value) if is_pure(value) else None
    if bound is None or not is_range_affine(bound, loop_names(c), c.scope):
        raise AffineError(f"{what} must be affine in the loop variables", span=e.span)
    return bound


# ---- conditions of `if`


def condition(e: ast.Expr, scope: Scope) -> Condition:
    for x in named(e):
        kind = scope.kind(x.name)
        if kind == "tensor" or (isinstance(x, ast.Apply) and x.name in scope.assigned):
            message = f"the condition of an `if` reads the tensor `{x.name}`"
        elif kind not in ("size", "loop variable"):
            message = f"`{x.name}` is no loop variable or size"
        else:
            continue
        hint = "choose between values with `condition ? a : b` instead"
        raise ConditionError(message, span=x.span, hint=hint)
    if any(_is_bit_operation(x) for x in ast.subexpressions(e)):
        raise AffineError("the condition of an `if` uses bit operations", span=e.span)
    value = value_of(e, Context(scope, StatementNames(closed=True), exact=True))
    if dtype_of(value) is not DType.BOOL:
        raise ConditionError(
            f"the condition of an `if` must be boolean, not {dtype_of(value)}",
            span=e.span,
            hint="compare it with something, e.g. `… != 0`",
        )
    test = as_condition(value) if is_pure(value) else None
    if test is None or not _compares_affine(value, scope):
        raise ConditionError(
            "the condition of an `if` must compare affine expressions of loop variables and sizes",
            span=e.span,
        )
    return test


def _is_bit_operation(x: ast.Expr) -> bool:
    return isinstance(x, ast.Infix | ast.Prefix) and x.op in (*BIT_OPERATORS, "~")


def _compares_affine(e: Expr, scope: Scope) -> bool:
    """No product of loop variables in `e`, and divisions only by constants and size parameters
    (LANGUAGE C5, F1)."""
    names = frozenset(scope.loops.values())
    for x in subexpressions(e):
        if isinstance(x, Binary) and x.op in ("mul", "div", "mod"):
            left, right = as_index(x.left), as_index(x.right)
            if left is None or right is None:
                return False
            moving = right.variables() & names
            if x.op == "mul" and moving and left.variables() & names:
                return False
            if x.op != "mul" and not (right.is_constant or scope.divides(right)):
                return False
    return True


# ---- dimensions of outputs


def size_argument(e: ast.Expr, whose: str, scope: Scope) -> Index:
    """What a call in a text gives for the size parameter `whose` (LANGUAGE F5)."""
    for x in named(e):
        if scope.kind(x.name) == "tensor" or x.name in scope.assigned:
            message = f"the argument for the size {whose} reads the tensor `{x.name}`"
            raise CallError(message, span=e.span, hint="it may use sizes and integers")
    return dimension(e, scope, "the argument for a size")


def dimension(e: ast.Expr, scope: Scope, what: str = "a dimension") -> Index:
    """A declared dimension over known sizes (LANGUAGE E7)."""
    c = Context(scope, StatementNames(closed=True))
    for x in ast.subexpressions(e):
        _check_dimension_part(x, e.span, what, c)
    size = as_index(value_of(e, c.with_exact(True)))
    assert size is not None
    note_divisors(size, scope)
    return size


def _check_dimension_part(x: ast.Expr, span: Span, what: str, c: Context) -> None:
    match x:
        case ast.Number(text) if not is_float_text(text):
            allowed = True
        case ast.Number() | ast.Constant("INFINITY" | "NAN"):
            raise TCTypeError(f"{what} must be an integer, not a float", span=span)
        case ast.Name(name):
            allowed = name in c.scope.sizes
        case ast.Infix("/" | "%", _, divisor):
            allowed = _divides_dimension(divisor, what, c)
        case ast.Infix(op):
            allowed = op in ("+", "-", "*")
        case ast.Prefix(op):
            allowed = op == "-"
        case _:
            allowed = isinstance(x, ast.Paren | ast.Extremum)
    if not allowed:
        raise AffineError(
            f"{what} must be an affine expression of known sizes and integers",
            span=span,
            hint="allowed are + - *, / and % by positive constants and size parameters, min and "
            "max; a size of its own is introduced by a bare name",
        )


def _divides_dimension(e: ast.Expr, what: str, c: Context) -> bool:
    allowed = ast.Number | ast.Infix | ast.Prefix | ast.Paren
    for x in ast.subexpressions(e):
        is_size = isinstance(x, ast.Name) and x.name in c.scope.size_parameters
        if not (is_size or isinstance(x, allowed)):
            return False
    if not _is_integer_text(e):
        raise TCTypeError(f"{what} must be an integer, not a float", span=e.span)
    return _is_divisor(as_index(value_of(e, c.with_exact(True))) or index(0), c.scope)
