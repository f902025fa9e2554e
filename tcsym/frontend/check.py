# SPDX-License-Identifier: Apache-2.0
"""Syntax tree -> resolved programs: names, types and calls of every def (LANGUAGE A, C and D).

Defs are resolved callees first; each statement reports at most one error, and what depends on a
failed statement reports none. Ranges, shapes and what needs sizes are left to `infer`.
"""

from __future__ import annotations

from typing import assert_never

from tcsym.builtins import ARITY
from tcsym.errors import ConditionError, DuplicateError, InitError, TCError, TCNameError
from tcsym.frontend import ast
from tcsym.frontend.calls import as_call, call
from tcsym.frontend.check_header import header
from tcsym.frontend.check_index import condition, loop_bound
from tcsym.frontend.check_statements import fail_target, statement
from tcsym.frontend.half import in_float32
from tcsym.frontend.resolved import (
    ResolvedFor,
    ResolvedIf,
    ResolvedItem,
    ResolvedProgram,
    ResolvedTensor,
)
from tcsym.frontend.scope import Scope, Tensor, Unresolved, check_new
from tcsym.frontend.slips import refuse_reductions
from tcsym.index.expr import FALSE, ZERO, Condition

MAX_ERRORS = 10


def resolve(module: ast.Module) -> dict[str, ResolvedProgram]:
    """Every def with its calls inlined; raises the first error, with the rest in `others`."""
    refuse_reductions(module)
    errors = _check_names_of_defs(module)
    defs = {d.name: d for d in reversed(module.defs)}
    resolved: dict[str, ResolvedProgram | None] = {}
    if not errors:
        for name in _callees_first(module, defs):
            resolved[name] = _resolve_def(defs[name], frozenset(defs), resolved, module, errors)
    if errors:
        errors.sort(key=lambda e: (e.line, e.column))
        for e in errors:
            e.with_source(module.source, module.filename)
        errors[0].others = tuple(errors[1:MAX_ERRORS])
        raise errors[0]
    programs = {d.name: resolved[d.name] for d in module.defs}
    return {name: in_float32(p) for name, p in programs.items() if p is not None}


def _check_names_of_defs(module: ast.Module) -> list[TCError]:
    errors: list[TCError] = []
    seen: set[str] = set()
    for d in module.defs:
        if d.name in ARITY:
            message = f"`{d.name}` is a built-in function and cannot be redefined"
            errors.append(TCNameError(message, span=d.span))
        if d.name in seen:
            errors.append(DuplicateError(f"def `{d.name}` is defined twice", span=d.span))
        seen.add(d.name)
    return errors


def _callees_first(module: ast.Module, defs: dict[str, ast.Def]) -> list[str]:
    """Names of the defs, each after those it calls; a cycle is cut where it closes."""
    order: list[str] = []
    state: dict[str, bool] = {}
    for root in module.defs:
        todo = [(root.name, False)]
        while todo:
            name, done = todo.pop()
            if done:
                order.append(name)
            elif name not in state:
                state[name] = True
                todo.append((name, True))
                todo += [(n, False) for n in reversed(_called(defs[name], defs))]
    return order


def _called(d: ast.Def, defs: dict[str, ast.Def]) -> list[str]:
    names = []
    for s in ast.assignments(d.body):
        match s:
            case ast.CallStatement(_, function):
                names.append(function.name)
            case ast.Assign(_, None, "=", ast.Apply(name)):
                names.append(name)
            case _:
                pass
    return [n for n in names if n in defs]


# ---- one def


class _Body:
    """Walks the statements of one def; collects errors."""

    def __init__(self, scope: Scope, errors: list[TCError]) -> None:
        self.scope = scope
        self.errors = errors

    def items(self, items: tuple[ast.Item, ...]) -> tuple[ResolvedItem, ...]:
        resolved: list[ResolvedItem] = []
        for item in items:
            try:
                resolved += self._item(item)
            except TCError as e:
                self.errors.append(e)
            except Unresolved:
                continue
        return tuple(resolved)

    def _item(self, item: ast.Item) -> tuple[ResolvedItem, ...]:
        match item:
            case ast.Assign():
                as_calls = as_call(item, self.scope)
                if as_calls is not None:
                    return call(as_calls, self.scope)
                return (statement(item, self.scope),)
            case ast.CallStatement():
                return call(item, self.scope)
            case ast.For():
                return (self._for(item),)
            case ast.If():
                return (self._if(item),)
            case _:
                assert_never(item)

    def _for(self, loop: ast.For) -> ResolvedFor:
        scope, name = self.scope, loop.variable.name
        try:
            lower = ZERO if loop.lower is None else loop_bound(loop.lower, scope)
            upper = loop_bound(loop.upper, scope)
        except TCError as e:
            self.errors.append(e)
            lower = upper = ZERO
        try:
            check_new(scope, name, loop.variable.span)
        except TCError as e:
            self.errors.append(e)
            self._fail_targets(loop.body)
            raise Unresolved from None
        variable = scope.loops[name] = scope.fresh_name(name)
        body = self.items(loop.body)
        del scope.loops[name]
        ends = tuple(e.span for e in (loop.lower, loop.upper) if e is not None)
        return ResolvedFor(variable, lower, upper, body, loop.span, ends)

    def _fail_targets(self, items: tuple[ast.Item, ...]) -> None:
        """What statements that are not looked at would have assigned counts as written."""
        for s in ast.assignments(items):
            match s:
                case ast.Assign(target):
                    fail_target(self.scope, target, s.span)
                case ast.CallStatement(targets):
                    for t in targets:
                        fail_target(self.scope, t.name, t.span)
                case _:
                    assert_never(s)

    def _if(self, item: ast.If) -> ResolvedIf:
        test: Condition = FALSE
        try:
            if not self.scope.loops:
                raise ConditionError(
                    "`if` is allowed only inside a `for` loop",
                    span=item.span,
                    hint="choose between values with `condition ? a : b`",
                )
            test = condition(item.condition, self.scope)
        except TCError as e:
            self.errors.append(e)
        arms = self.items(item.then), self.items(item.orelse)
        return ResolvedIf(test, *arms, item.span, item.condition.span)


def _resolve_def(
    d: ast.Def,
    functions: frozenset[str],
    resolved: dict[str, ResolvedProgram | None],
    module: ast.Module,
    errors: list[TCError],
) -> ResolvedProgram | None:
    """The resolved def, or None if it has errors or depends on one that has."""
    scope, found = header(d, functions, resolved)
    errors += found
    if found:
        return None
    n_before = len(errors)
    body = _Body(scope, errors).items(d.body)
    for t in scope.tensors.values():
        if t.role == "output" and not t.written:
            hint = f"assign it, or leave `{t.name}` out of the outputs"
            errors.append(InitError(f"output `{t.name}` is never assigned", span=t.span, hint=hint))
    if len(errors) > n_before or any(t.failed for t in scope.tensors.values()):
        return None
    return ResolvedProgram(
        d.name,
        tuple(scope.sizes),
        tuple(scope.free_sizes),
        tuple(_tensor(t) for t in scope.tensors.values()),
        body,
        module.source,
        module.filename,
        d.span,
        tuple(scope.traps),
        tuple(scope.size_parameters.values()),
    )


def _tensor(t: Tensor) -> ResolvedTensor:
    assert t.dtype is not None and t.rank is not None
    return ResolvedTensor(t.name, t.dtype, t.rank, t.shape, t.role, t.span, t.dimension_spans)
