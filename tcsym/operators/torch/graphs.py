# SPDX-License-Identifier: Apache-2.0
"""Calls of kernels as torch.compile reads them: each becomes one node of the graph.

torch.compile follows `graph_call` line by line; what is marked as constant it runs, and takes the
result for one that never changes. Such results are of Python's own types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy
import torch

from tcsym.operators.called import Called, operator_name
from tcsym.operators.torch.operator import keeping_operator, operator_of
from tcsym.operators.torch.scalars import as_tensor, fits, is_number
from tcsym.process.outside_graphs import named_in_graphs
from tcsym.runtime.packing import results_type
from tcsym.runtime.torch_internals import has_dual_level, transforms

_results: dict[str, Any] = {}  # by operators that give several


class Given(NamedTuple):
    """What a graph must know of a kernel's arguments, in order.

    names: of all parameters. updated: of those that are. free: sizes that the call gives. types:
    element types of inputs, as torch names them. fixed: values of sizes.
    """

    names: tuple[str, ...]
    updated: tuple[str, ...]
    free: tuple[str, ...]
    types: tuple[str, ...]
    fixed: tuple[tuple[str, int], ...]


def graph_call(
    kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    """The call as an operator's; one that is wrong, or has options, ends the graph and runs."""
    if _is_differentiated():
        return kernel._outside_call(*args, **kwargs, **options)
    names, updated, free, types, fixed = _given(kernel._graph_name)
    given = [*zip(names, args), *[(n, kwargs[n]) for n in names[len(args) :] if n in kwargs]]
    said = {**dict(fixed), **(options.get("sizes") or {})}
    sizes = {**said, **{n: x for n, x in given if n in free}}
    inputs = [x for n, x in given if n not in free]
    is_plain = set(options) <= {"sizes"} and set(sizes) == set(free)
    is_plain = is_plain and all(sizes[n] == x for n, x in said.items())
    is_plain = is_plain and all(isinstance(x, torch.Tensor) for n, x in given if n in updated)
    is_plain = is_plain and all(_is_served(x, t) for x, t in zip(inputs, types))
    if len(inputs) != len(types) or len(args) + len(kwargs) != len(given) or not is_plain:
        return kernel._outside_call(*args, **kwargs, **options)
    tensors = [_tensor(x, t) for x, t in zip(inputs, types)]
    needs = tuple([x.requires_grad for x in tensors])
    name, n_results, n_own = _operator(kernel._graph_name, needs if torch.is_grad_enabled() else ())
    result = getattr(torch.ops.tcsym, name).default(*tensors, *[sizes[n] for n in free])
    if n_results > n_own:
        result = result[0] if n_own == 1 else result[:n_own]
    return _results[name](*result) if n_own > 1 else result


def _is_served(x: Any, dtype: str) -> bool:
    if is_number(x):
        return fits(x, dtype)
    return isinstance(x, torch.Tensor | numpy.ndarray | numpy.generic)


def _tensor(x: Any, dtype: str) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        return x
    if is_number(x):
        return as_tensor(x, dtype)
    return torch.as_tensor(x, dtype=getattr(torch, dtype))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _is_differentiated() -> bool:
    """The graph is within what torch.func differentiates: torch's operators have no rules for that.

    Then the graph ends, and the call runs as outside of graphs.
    """
    return has_dual_level() or not {"Grad", "Jvp"}.isdisjoint(transforms())


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _given(graph_name: str) -> Given:
    kernel: Called = named_in_graphs(graph_name)
    plan = kernel._plan
    free = [plan.sizes[slot] for slot in plan.free_slots]
    fixed = [(n, plan.initial[plan.sizes.index(n)]) for n in free]
    return Given(
        names=tuple([p.name for p in plan.parameters]),
        updated=tuple([p.name for p in plan.inputs if p.inout]),
        free=tuple(free),
        types=tuple([p.dtype.value for p in plan.inputs]),
        fixed=tuple([(n, value) for n, value in fixed if value is not None]),
    )


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _operator(graph_name: str, needs: tuple[bool, ...]) -> tuple[str, int, int]:
    """Its name, now that it is registered, how many results it has, and the kernel of them."""
    kernel: Called = named_in_graphs(graph_name)
    outputs = kernel._plan.output_names
    if any(needs) and not kernel.program.inouts:
        name, n_results = keeping_operator(kernel, needs)
    else:
        operator_of(kernel)
        name, n_results = operator_name(kernel), len(outputs)
    if len(outputs) > 1:
        _results[name] = results_type(outputs)
    return name, n_results, len(outputs)
