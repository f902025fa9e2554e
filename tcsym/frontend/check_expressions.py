# SPDX-License-Identifier: Apache-2.0
"""Expression as written -> typed expression: names, ranks, types; every conversion explicit.

`typed_expression` walks the text; the type rules are in `promotion`. Inside subscripts (`exact`)
integers are exact int64 values; under a cast or built-in, and everywhere else, int32 (LANGUAGE E4).
"""

from __future__ import annotations

from collections.abc import Set
from typing import assert_never, get_args

from msgspec.structs import replace

from tcsym.builtins import ARITY
from tcsym.errors import (
    AffineError,
    CallError,
    InitError,
    RankError,
    Span,
    TCNameError,
    TCTypeError,
    n_dimensions,
)
from tcsym.frontend import ast
from tcsym.frontend.affine import as_index, exact_value
from tcsym.frontend.bit_operations import BIT_OPERATORS, bit_operation, complement
from tcsym.frontend.idioms import recurrence_hint, stride_hint, unwritten_hint, whole_tensor_hint
from tcsym.frontend.literals import (
    Literal,
    cast_literal,
    default_type,
    literal_of,
    literal_to_const,
)
from tcsym.frontend.program import (
    Binary,
    BitOp,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    dtype_of,
    subexpressions,
)
from tcsym.frontend.promotion import (
    Typed,
    arithmetic,
    built_in,
    convert,
    infix,
    prefix,
    select,
    settle,
)
from tcsym.frontend.scope import Context, Tensor, Unresolved, undefined
from tcsym.frontend.traps import literal_trap
from tcsym.index.expr import Index, var
from tcsym.types import DType, is_narrower


def value_of(e: ast.Expr, c: Context) -> Expr:
    """`e` with a literal settled to its default type."""
    return settle(typed_expression(e, c), c.exact)


def typed_expression(e: ast.Expr, c: Context) -> Typed:
    """`e` as a typed expression, or as a literal that still adapts."""
    match e:
        case ast.Infix():
            return _infix_chain(e, c)
        case ast.Number() | ast.Paren() | ast.Prefix():
            literal = literal_of(e)
            return _widened_literal(literal, c) if literal is not None else _wrapped(e, c)
        case ast.Constant(name):
            if name in ("true", "false"):
                return Const(int(name == "true"), DType.BOOL)
            return _widened_literal(_present(literal_of(e)), c)
        case ast.Name():
            return _name(e, c)
        case ast.Apply():
            return _apply(e, c)
        case ast.CastTo(dtype, operand):
            x = typed_expression(operand, c.with_exact(False))
            if isinstance(x, Literal):
                c.scope.traps += literal_trap(x, dtype)
            cast = cast_literal(x, dtype) if isinstance(x, Literal) else _cast(x, dtype, e.span)
            return _widened(cast, c, e.span)
        case ast.Extremum(op, a, b):
            left, right = typed_expression(a, c), typed_expression(b, c)
            return arithmetic(op, left, right, e.span, c.exact)
        case ast.Ternary(condition, a, b):
            test = typed_expression(condition, c.keeping_types)
            then, orelse = typed_expression(a, c), typed_expression(b, c)
            return select(test, then, orelse, condition.span, c.exact)
        case _:
            assert_never(e)


def _present(literal: Literal | None) -> Literal:
    assert literal is not None
    return literal


def _wrapped(e: ast.Number | ast.Paren | ast.Prefix, c: Context) -> Typed:
    """Parentheses or a prefix operator around something that is no literal."""
    if isinstance(e, ast.Prefix) and e.op == "~":
        inner = c.with_exact(False)
        return _widened(complement(typed_expression(e.operand, inner), e.span), c, e.span)
    if isinstance(e, ast.Prefix):
        inner = c if e.op == "-" else c.keeping_types
        return prefix(e.op, typed_expression(e.operand, inner), e.span, c.exact)
    return typed_expression(ast.unparenthesised(e), c)


def _cast(x: Expr, dtype: DType, span: Span) -> Expr:
    """An element is exact. Other values of half types have more digits: a cast to its own type
    rounds, one from another type to a half does not yet (`half`)."""
    if isinstance(x, Read) and x.dtype is dtype:
        return x
    is_half = dtype.accumulator is not dtype
    return Cast(convert(x, dtype) if is_half else x, dtype, span=span)


def _infix_chain(e: ast.Infix, c: Context) -> Typed:
    """`a + b + c + …` from the left, in a loop: chains may be longer than the stack.

    Operands of bit operations have their types, also inside a subscript (LANGUAGE F6).
    """
    chain: list[tuple[ast.Infix, Context, Context]] = []
    first: ast.Expr = e
    while isinstance(first, ast.Infix):
        inner = _of_operands(first.op, c)
        chain.append((first, c, inner))
        first, c = first.left, inner
    left = typed_expression(first, c)
    for node, outer, inner in reversed(chain):
        right = typed_expression(node.right, inner)
        spans = node.left.span, node.right.span
        if node.op in BIT_OPERATORS:
            left = _widened(bit_operation(node.op, left, right, spans[0]), outer, spans[0])
        else:
            left = _exact_sides(infix(node.op, left, right, spans, inner.exact), outer, spans[0])
    return left


def _exact_sides(e: Expr, c: Context, span: Span) -> Expr:
    """A comparison of affine sides compares integers of mathematics (LANGUAGE E4)."""
    if c.exact or not isinstance(e, Compare) or not is_pure(e):
        return e
    left, right = as_index(e.left), as_index(e.right)
    moving = c.names.variables.keys() | set(c.scope.loops.values())
    if left is None or right is None or _unaffine(e, moving) is not None:
        return e
    return Compare(e.op, exact_value(left), exact_value(right), span=span)


def _of_operands(op: ast.InfixOp, c: Context) -> Context:
    if op in ("+", "-", "*"):
        return c
    return c.with_exact(False) if op in BIT_OPERATORS else c.keeping_types


def _widened_literal(literal: Literal, c: Context) -> Typed:
    if c.wide is None or not is_narrower(default_type(literal), c.wide):
        return literal
    return literal_to_const(literal, c.wide)


def _widened(x: Expr, c: Context, span: Span) -> Expr:
    """In a subscript every integer takes part with its exact value, as int64."""
    if c.exact and dtype_of(x) is DType.UINT64:
        return Cast(x, DType.INT64, exact=True, span=span)
    return convert(x, DType.INT64) if c.exact and dtype_of(x).is_integer else x


# ---- names


def _name(e: ast.Name, c: Context) -> Expr:
    name, scope = e.name, c.scope
    integer = DType.INT64 if c.exact else DType.INT32
    if name in c.names.lets:
        return _let(e, c)
    if name in scope.loops:
        return IndexValue(var(scope.loops[name]), integer)
    if name in scope.sizes:
        return IndexValue(var(name), integer)
    if name in scope.tensors:
        return _read(ast.Apply(name, (), span=e.span), c)
    if name in ARITY:
        raise TCNameError(
            f"`{name}` is a built-in function; it cannot name an index variable", span=e.span
        )
    if c.names.closed:
        raise TCNameError(f"undefined name `{name}`", span=e.span)
    c.names.see(name, e.span)
    return IndexValue(var(name), integer)


def _let(e: ast.Name, c: Context) -> Expr:
    """The value of a `where x = …`, substituted here."""
    key = (e.name, c.exact, c.wide)
    if key not in c.names.values:
        value = c.names.lets[e.name]
        if value is None:
            raise Unresolved
        c.names.values[key] = value_of(value, c)
    return c.names.values[key]


def _apply(e: ast.Apply, c: Context) -> Expr:
    name = e.name
    if name in c.scope.tensors and name not in c.names.lets:
        return _read(e, c)
    if name in ARITY:
        return _built_in(e, c)
    if name in c.scope.assigned and name not in c.names.lets:
        raise _before_writing(name, e, c)
    if name in c.scope.functions and name not in c.names.lets:
        raise CallError(
            f"`{name}` is a def; it cannot be called inside an expression",
            span=e.span,
            hint=f"call it on its own: `T = {name}(…)`, without subscript or `where`",
        )
    raise undefined(c, name, e.span)


def _built_in(e: ast.Apply, c: Context) -> Expr:
    wanted = ARITY[e.name]
    if len(e.args) != wanted:
        plural = "argument" if wanted == 1 else "arguments"
        raise CallError(
            f"built-in `{e.name}` takes {wanted} {plural}, not {len(e.args)} arguments", span=e.span
        )
    args = []
    inner = replace(c, exact=False)
    for arg in e.args:
        args.append(typed_expression(arg, inner))
    return built_in(e.name, args)


# ---- reads


def _before_writing(name: str, e: ast.Expr, c: Context) -> InitError:
    loops = c.scope.loops
    subscripts = e.args if isinstance(e, ast.Apply) else ()
    moved = [x for x in subscripts if not isinstance(x, ast.Name)]
    named = {x.name for s in moved for x in ast.subexpressions(s) if isinstance(x, ast.Name)}
    by_step = any(isinstance(x, ast.Name) and x.name in loops for x in ast.subexpressions(e))
    return InitError(
        f"`{name}` is read before anything is written to it",
        span=e.span,
        hint=recurrence_hint(name)
        if not loops and not named.isdisjoint(c.names.left)
        else unwritten_hint(name, bool(loops), by_step),
    )


def _read(e: ast.Apply, c: Context) -> Expr:
    tensor = c.scope.tensors[e.name]
    dtype = _readable(tensor, e, c)
    if tensor.rank != len(e.args):
        raise RankError(
            f"tensor `{e.name}` has {n_dimensions(tensor.rank)} but is read with {len(e.args)}",
            span=e.span,
            hint=whole_tensor_hint(e.name) if not e.args else "",
        )
    subscripts = []
    inner = c.with_exact(True)
    for arg in e.args:
        subscripts.append(_subscript(typed_expression(arg, inner), arg, c))
    places = tuple(arg.span for arg in e.args)
    element = Read(e.name, tuple(subscripts), dtype, span=e.span, places=places)
    read = _widened(element, c, e.span)
    return convert(read, c.wide) if c.wide is not None and is_narrower(dtype, c.wide) else read


def _readable(tensor: Tensor, e: ast.Apply, c: Context) -> DType:
    if tensor.failed:
        raise Unresolved
    declared = tensor.is_declared and (c.exists or bool(c.scope.loops))
    if not (tensor.written or declared) or tensor.dtype is None:
        raise _before_writing(tensor.name, e, c)
    return tensor.dtype


# ---- subscripts


def _subscript(x: Typed, e: ast.Expr, c: Context) -> Index | Expr:
    """A subscript: exact integers; an `Index` unless it depends on data (LANGUAGE B3, B4, E4)."""
    value = _integral(settle(x, True), e, "a subscript")
    if not is_pure(value):
        return value
    _check_products(e, value, c)
    exact = as_index(value)
    return value if exact is None else exact


def integer_expression(e: ast.Expr, c: Context, what: str) -> Expr:
    """`e` in exact integers; TCTypeError if it is not integral."""
    return _integral(value_of(e, c.with_exact(True)), e, what)


def _integral(value: Expr, e: ast.Expr, what: str) -> Expr:
    dtype = dtype_of(value)
    if not dtype.is_integer:
        raise TCTypeError(
            f"{what} must be integral, not {dtype}",
            span=e.span,
            hint="convert it, e.g. `int32(…)`",
        )
    return value


def is_pure(e: Expr) -> bool:
    """Made of index variables, loop variables, sizes and literals only."""
    return not any(isinstance(x, Read | Cast | Call) or _is_of_bits(x) for x in subexpressions(e))


def _is_of_bits(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in get_args(BitOp)


def _check_products(e: ast.Expr, value: Expr, c: Context) -> None:
    moving = c.names.variables.keys()
    found = _unaffine(value, moving)
    if found is None:
        return
    is_product = found.op == "mul"
    left, right = _variables(found.left, moving), _variables(found.right, moving)
    what = "a product of index variables" if is_product else "a division by one"
    raise AffineError(
        f"the subscript is not affine: it contains {what}",
        span=e.span,
        hint=_product_hint(left, right, c) if is_product else _FACTORS_HINT,
    )


def _unaffine(value: Expr, moving: Set[str]) -> Binary | None:
    """The first product of moving variables in `value`, or division by one."""
    for x in subexpressions(value):
        if not isinstance(x, Binary) or x.op not in ("mul", "div", "mod"):
            continue
        if _variables(x.right, moving) and (x.op != "mul" or _variables(x.left, moving)):
            return x
    return None


_FACTORS_HINT = "a subscript may multiply an index variable by integers and sizes only"


def _product_hint(left: list[str], right: list[str], c: Context) -> str:
    """One of the factors is a name that stands for a size, perhaps."""
    if len(left) != 1 or len(right) != 1:
        return _FACTORS_HINT
    factors = [name for name in (*left, *right) if name not in c.names.left]
    capital = [name for name in factors if name[0].isupper()]
    meant = capital if len(factors) > 1 else factors
    return stride_hint(meant[0]) if len(meant) == 1 else _FACTORS_HINT


def _variables(e: Expr, moving: Set[str]) -> list[str]:
    """Those of the variables that are in `e`."""
    values = [x.index.variables() for x in subexpressions(e) if isinstance(x, IndexValue)]
    return sorted({v for names in values for v in names if v in moving})
