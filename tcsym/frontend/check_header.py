# SPDX-License-Identifier: Apache-2.0
"""Header of a def -> its scope before the first statement (LANGUAGE A9, C2, E7)."""

from __future__ import annotations

from collections.abc import Mapping

from tcsym.errors import TCError
from tcsym.frontend import ast
from tcsym.frontend.check_index import dimension
from tcsym.frontend.program import Role, SizeParameter
from tcsym.frontend.resolved import ResolvedProgram
from tcsym.frontend.scope import Scope, Tensor, check_new
from tcsym.index.expr import Index, index, var


def header(
    d: ast.Def, functions: frozenset[str], callees: Mapping[str, ResolvedProgram | None]
) -> tuple[Scope, list[TCError]]:
    """The names of the header, and its errors in text order."""
    scope = Scope(functions, callees, _assigned(d))
    errors: list[TCError] = []
    for place, p in enumerate(d.params):
        try:
            _param(p, scope, place)
        except TCError as e:
            errors.append(e)
    if not errors:
        _results(d.results, scope, errors)
    scope.fresh.update(scope.sizes, scope.tensors)
    return scope, errors


def _assigned(d: ast.Def) -> frozenset[str]:
    names: set[str] = set()
    for s in ast.assignments(d.body):
        match s:
            case ast.Assign(target):
                names.add(target)
            case ast.CallStatement(targets):
                names.update(t.name for t in targets)
    return frozenset(names)


def _param(p: ast.Parameter, scope: Scope, place: int) -> None:
    if isinstance(p, ast.SizeParam):
        check_new(scope, p.name, p.span)
        scope.sizes[p.name] = p.span
        scope.free_sizes.append(p.name)
        scope.size_parameters[p.name] = SizeParameter(p.name, place, span=p.span)
        return
    shape: list[Index] = []
    for d in p.dimensions:
        if isinstance(d.size, int):
            shape.append(index(d.size))
            continue
        if d.size not in scope.sizes or d.size in scope.size_parameters:
            check_new(scope, d.size, d.span)
            scope.sizes[d.size] = d.span
        shape.append(var(d.size))
    check_new(scope, p.name, p.span)
    spans = tuple(d.span for d in p.dimensions)
    role: Role = "inout" if p.inout else "input"
    scope.tensors[p.name] = Tensor(
        p.name, role, p.dtype, len(shape), tuple(shape), True, span=p.span, dimension_spans=spans
    )


def _results(results: tuple[ast.Result, ...], scope: Scope, errors: list[TCError]) -> None:
    """A bare name is a free size, known in all dimensions, whatever the order."""
    for r in results:
        try:
            for e in r.dimensions:
                _free_size(e, scope)
            check_new(scope, r.name, r.span)
            scope.tensors[r.name] = Tensor(r.name, "output", span=r.span)
        except TCError as e:
            errors.append(e)
    for r in results:
        if r.dtype is None or r.name not in scope.tensors:
            continue
        tensor = scope.tensors[r.name]
        try:
            tensor.shape = tuple([dimension(e, scope) for e in r.dimensions])
        except TCError as e:
            errors.append(e)
        tensor.dtype, tensor.rank = r.dtype, len(r.dimensions)
        tensor.dimension_spans = tuple(e.span for e in r.dimensions)


def _free_size(e: ast.Expr, scope: Scope) -> None:
    e = ast.unparenthesised(e)
    if isinstance(e, ast.Name) and e.name not in scope.sizes:
        check_new(scope, e.name, e.span)
        scope.sizes[e.name] = e.span
        scope.free_sizes.append(e.name)
