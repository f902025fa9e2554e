# SPDX-License-Identifier: Apache-2.0
"""Call statement -> the callee's resolved statements under fresh names (LANGUAGE C6, E10, E11).

An inlined `fc` names everything of the callee `fc1.x`, the next `fc2.x`: no text can spell these. A
new target takes the place of the callee's output; a target that exists, or has a declared shape, is
replaced by a copy after its sizes are compared. What the callee updates it updates in the caller.
"""

from __future__ import annotations

from contextlib import ExitStack

from msgspec import Struct, field

from tcsym.builtins import ARITY
from tcsym.errors import (
    CallError,
    DuplicateError,
    ImmutableError,
    InitError,
    RankError,
    TCNameError,
    TCTypeError,
    n_dimensions,
)
from tcsym.frontend import ast
from tcsym.frontend.check_expressions import typed_expression
from tcsym.frontend.check_index import size_argument
from tcsym.frontend.check_statements import Findings, check_target, failing_target, narrower
from tcsym.frontend.literals import Literal, default_type, literal_to_const
from tcsym.frontend.program import Expr, Read, SizeParameter, dtype_of, in_order
from tcsym.frontend.promotion import convert
from tcsym.frontend.rename import Renaming, index_variables
from tcsym.frontend.resolved import (
    ResolvedItem,
    ResolvedProgram,
    ResolvedStatement,
    ResolvedTensor,
    SizeArgument,
    Unify,
    Variable,
    inner_sizes,
)
from tcsym.frontend.scope import Context, Scope, StatementNames, Tensor, Unresolved
from tcsym.index.expr import Index, var
from tcsym.types import holds


def as_call(s: ast.Assign, scope: Scope) -> ast.CallStatement | None:
    """`s` as a call, if it is one: `ID = ID(…)` where the right name is a def and no tensor."""
    plain = s.subscripts is None and s.op == "=" and not s.clauses and s.equivalent is None
    if not plain or not isinstance(s.value, ast.Apply):
        return None
    name = s.value.name
    if name not in scope.functions or name in scope.tensors or name in ARITY:
        return None
    function = ast.Identifier(name, span=s.value.span)
    target = ast.Identifier(s.target, span=s.span)
    return ast.CallStatement((target,), function, s.value.args, span=s.span)


def call(s: ast.CallStatement, scope: Scope) -> tuple[ResolvedItem, ...]:
    """Inline the call and note its targets in `scope` as written."""
    with ExitStack() as stack:
        for t in s.targets:
            stack.enter_context(failing_target(scope, t.name, t.span))
        callee, values = _checked(s, scope)
        return _inline(s, callee, values, scope)


# ---- checks

Argument = str | Expr | Index


def _checked(s: ast.CallStatement, scope: Scope) -> tuple[ResolvedProgram, tuple[Argument, ...]]:
    """The callee and its arguments: the name of a tensor, the value of a 0-d parameter, a size."""
    found = Findings()
    for k, t in enumerate(s.targets):
        found.attempt(check_target, scope, t.name, t.span)
        if t.name in [other.name for other in s.targets[:k]]:
            message = f"`{t.name}` is a target of this call twice"
            found.errors.append(DuplicateError(message, span=t.span))
    callee = found.attempt(_callee, s, scope)
    if callee is None:
        found.raise_first()
        raise Unresolved
    values = []
    for arg, param in zip(s.args, parameters(callee), strict=True):
        values.append(found.attempt(_argument, arg, param, callee, scope))
    found.attempt(_check_apart, s, callee)
    for t, tensor in zip(s.targets, by_role(callee, "output"), strict=True):
        found.attempt(_check_result, t, tensor, scope)
    found.raise_first()
    return callee, tuple(v for v in values if v is not None)


def by_role(program: ResolvedProgram, *roles: str) -> tuple[ResolvedTensor, ...]:
    return tuple(t for t in program.tensors if t.role in roles)


def parameters(program: ResolvedProgram) -> tuple[ResolvedTensor | SizeParameter, ...]:
    """What a call is given, in order."""
    return in_order(by_role(program, "input", "inout"), program.size_parameters)


def _is_input(name: str, scope: Scope) -> bool:
    return name in scope.tensors and scope.tensors[name].role == "input"


def _callee(s: ast.CallStatement, scope: Scope) -> ResolvedProgram:
    name, span = s.function.name, s.function.span
    if name not in scope.functions:
        hint = "" if s.targets else f"a statement assigns: `{name}(…) = …`"
        if not s.targets and (name in ARITY or _is_input(name, scope)):
            hint = f"a value follows another without an operator: a product is `… * {name}(…)`"
        raise CallError(f"call of the undefined def `{name}`", span=span, hint=hint)
    if scope.loops:
        hint = "write the statements of the def into the loop"
        raise CallError(f"`{name}` is called inside a `for` loop", span=span, hint=hint)
    if name not in scope.callees:
        raise CallError(f"recursion: `{name}` calls itself, directly or through others", span=span)
    callee = scope.callees[name]
    if callee is None:
        raise Unresolved
    n_inputs, n_outputs = len(parameters(callee)), len(by_role(callee, "output"))
    given = {p.name for p in callee.size_parameters}
    for free in (n for n in callee.free_sizes if n not in given):
        message = f"`{name}` has the free size `{free}`; it cannot be called here"
        raise CallError(message, span=span, hint="a def with free sizes is only an entry point")
    if len(s.args) != n_inputs:
        message = f"`{name}` takes {n_inputs} arguments, but {len(s.args)} are given"
        raise CallError(message, span=span)
    if len(s.targets) != n_outputs:
        message = f"`{name}` returns {n_outputs} tensors, but {len(s.targets)} are assigned"
        raise CallError(message, span=span)
    return callee


def _argument(
    arg: ast.Expr,
    param: ResolvedTensor | SizeParameter,
    callee: ResolvedProgram,
    scope: Scope,
) -> Argument:
    if isinstance(param, SizeParameter):
        return size_argument(arg, f"`{param.name}` of `{callee.name}`", scope)
    if param.rank == 0 and param.role == "input":
        return _scalar_argument(arg, param, callee, scope)
    if not isinstance(arg, ast.Name) or scope.kind(arg.name) in ("size", "loop variable"):
        message = f"the argument for `{param.name}` of `{callee.name}` must be the name of a tensor"
        raise CallError(message, span=arg.span, hint="assign the expression to a tensor first")
    tensor = scope.tensors.get(arg.name)
    if tensor is None and arg.name not in scope.assigned:
        raise TCNameError(f"undefined tensor `{arg.name}`", span=arg.span)
    if tensor is not None and tensor.failed:
        raise Unresolved
    if tensor is None or not tensor.written:
        message = f"`{arg.name}` is read before anything is written to it"
        raise InitError(message, span=arg.span)
    whose = f"`{param.name}` of `{callee.name}`"
    if tensor.rank != param.rank:
        message = f"`{arg.name}` has {n_dimensions(tensor.rank)}, but {whose} has {param.rank}"
        raise RankError(message, span=arg.span)
    if tensor.dtype is not param.dtype:
        message = f"`{arg.name}` has type {tensor.dtype}, but {whose} has type {param.dtype}"
        hint = "convert it in a statement of its own first"
        raise TCTypeError(message, span=arg.span, hint=hint)
    if param.role == "inout" and tensor.role == "input":
        message = f"`{arg.name}` is an input, but {whose} is updated"
        hint = "declare it `inout`, or copy it to another tensor first"
        raise ImmutableError(message, span=arg.span, hint=hint)
    return arg.name


def _check_apart(s: ast.CallStatement, callee: ResolvedProgram) -> None:
    """What the callee updates is no other argument, nor a target."""
    seen = {t.name: False for t in s.targets}  # whether it is updated
    for arg, param in zip(s.args, parameters(callee), strict=True):
        if not isinstance(arg, ast.Name) or isinstance(param, SizeParameter):
            continue
        updated = param.role == "inout"
        if arg.name in seen and (updated or seen[arg.name]):
            message = f"`{arg.name}` is updated by `{callee.name}`, and in this call twice"
            hint = "copy it to another tensor first"
            raise ImmutableError(message, span=arg.span, hint=hint)
        seen.setdefault(arg.name, updated)


def _scalar_argument(
    arg: ast.Expr, param: ResolvedTensor, callee: ResolvedProgram, scope: Scope
) -> Expr:
    x = typed_expression(arg, Context(scope, StatementNames(closed=True)))
    if isinstance(x, Literal) and (param.dtype.is_float or not x.is_float):
        return literal_to_const(x, param.dtype)
    dtype = default_type(x) if isinstance(x, Literal) else dtype_of(x)
    if not holds(param.dtype, dtype):
        raise TCTypeError(
            f"`{param.name}` of `{callee.name}` has the narrower type {param.dtype}; "
            f"it cannot hold {dtype}",
            span=arg.span,
            hint=f"convert explicitly with `{param.dtype}(…)`",
        )
    return convert(x, param.dtype)


def _check_result(target: ast.Identifier, result: ResolvedTensor, scope: Scope) -> None:
    tensor = scope.tensors.get(target.name)
    if tensor is None or tensor.role == "input":
        return
    if tensor.failed:
        raise Unresolved
    if tensor.rank not in (None, result.rank):
        have = n_dimensions(tensor.rank)
        message = f"`{target.name}` has {have}, but the result has {result.rank}"
        raise RankError(message, span=target.span)
    if tensor.dtype is not None and not holds(tensor.dtype, result.dtype):
        raise narrower(tensor, result.dtype, target.span)


# ---- inlining


class _Inlining(Struct):
    """One call being inlined: `names` maps the callee's names to the caller's."""

    call: ast.CallStatement
    callee: ResolvedProgram
    scope: Scope
    prefix: str
    names: dict[str, str] = field(default_factory=dict)


def _inline(
    s: ast.CallStatement,
    callee: ResolvedProgram,
    values: tuple[Argument, ...],
    scope: Scope,
) -> tuple[ResolvedItem, ...]:
    inlining = _Inlining(s, callee, scope, _prefix(callee.name, scope))
    names = inlining.names
    for name in (*index_variables(callee.body), *_sizes(callee)):
        names[name] = f"{inlining.prefix}.{name}"
    before = _bind_arguments(inlining, values)
    copies = []
    for target, result in zip(s.targets, by_role(callee, "output"), strict=True):
        if _is_replaceable(target.name, scope):
            names[result.name] = f"{inlining.prefix}.{result.name}"
            copies.append((target, result))
        else:
            names[result.name] = target.name
    for t in by_role(callee, "temporary"):
        names[t.name] = f"{inlining.prefix}.{t.name}"
    renaming = Renaming(names)
    for t in callee.tensors:
        if t.role in ("output", "temporary"):
            _declare(t, renaming, scope)
    after = [item for target, result in copies for item in _copy(inlining, target, result)]
    return (*before, *renaming.items(callee.body), *after)


def _prefix(name: str, scope: Scope) -> str:
    n = 1
    while f"{name}{n}" in scope.fresh:
        n += 1
    return scope.fresh_name(f"{name}{n}")


def _sizes(callee: ResolvedProgram) -> tuple[str, ...]:
    """Its own sizes and those of what it has inlined."""
    return (*callee.sizes, *inner_sizes(callee.body))


def _is_replaceable(target: str, scope: Scope) -> bool:
    tensor = scope.tensors.get(target)
    return tensor is not None and (tensor.written or tensor.shape is not None)


def _bind_arguments(inlining: _Inlining, values: tuple[Argument, ...]) -> list[ResolvedItem]:
    """Parameters become the arguments' names; a 0-d parameter is a temporary assigned its value."""
    items: list[ResolvedItem] = []
    span = inlining.call.function.span
    for param, value, arg in zip(
        parameters(inlining.callee), values, inlining.call.args, strict=True
    ):
        if isinstance(param, SizeParameter):
            assert isinstance(value, Index)
            name = inlining.names[param.name]
            items.append(SizeArgument(name, value, param.divides, arg.span))
        elif isinstance(value, str):
            inlining.names[param.name] = value
            dimensions = tuple(
                size if (size := d.as_int()) is not None else inlining.names[str(d)]
                for d in param.shape or ()
            )
            items.append(Unify(value, dimensions, span))
        else:
            assert not isinstance(value, Index)
            name = inlining.names[param.name] = f"{inlining.prefix}.{param.name}"
            inlining.scope.tensors[name] = Tensor(
                name, "temporary", param.dtype, 0, written=True, span=span
            )
            items.append(ResolvedStatement(name, (), "=", False, (), value, span=span))
    return items


def _declare(t: ResolvedTensor, renaming: Renaming, scope: Scope) -> None:
    """Note a tensor of the callee in the caller, with its declared shape in the renamed sizes."""
    name = renaming.name(t.name)
    shape = None if t.shape is None else tuple(map(renaming.index, t.shape))
    tensor = scope.tensors.setdefault(name, Tensor(name, "temporary", span=t.span))
    tensor.dtype, tensor.rank, tensor.shape, tensor.written = t.dtype, t.rank, shape, True


def _copy(
    inlining: _Inlining, target: ast.Identifier, result: ResolvedTensor
) -> list[ResolvedItem]:
    """`target = result`, with equal sizes."""
    tensor = inlining.scope.tensors[target.name]
    assert tensor.dtype is not None
    tensor.written = True
    name = inlining.names[result.name]
    variables = [f"{name}.{d}" for d in range(result.rank)]
    subscripts = tuple(var(v) for v in variables)
    items: list[ResolvedItem] = []
    if result.rank:
        sizes = tuple(f"{v}.size" for v in variables)
        span = inlining.call.function.span
        items += [Unify(name, sizes, span), Unify(target.name, sizes, span)]
    value = convert(Read(name, subscripts, result.dtype, span=target.span), tensor.dtype)
    spans = tuple(target.span for _ in variables)
    items.append(
        ResolvedStatement(
            target.name,
            subscripts,
            "=",
            False,
            tuple(Variable(v, False, span=target.span) for v in variables),
            value,
            span=target.span,
            subscript_spans=spans,
        )
    )
    return items
