# SPDX-License-Identifier: Apache-2.0
"""`Layer`: text of a def -> torch module, of which some inputs are parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tcsym.errors import CallError, OptionError, SizeError
from tcsym.kernel.definition import define
from tcsym.kernel.kernel import Kernel
from tcsym.kernel.module import Module
from tcsym.operators.torch.operator import torch_type

Initial = float | Callable[[torch.Tensor], Any]


class Layer(torch.nn.Module):  # type: ignore[misc]
    """A module that calls a kernel with parameters of its own and the inputs that are left.

        layer = Layer(
            "def linear(float(B,K) X, float(N,K) W, float(N) b) -> (Y) {"
            "  Y(i,n) +=! X(i,k) * W(n,k)  Y(i,n) = Y(i,n) + b(n) }",
            W=None, b=0.0, sizes={"K": 28, "N": 10},
        )
        y = layer(x)

    source: text of defs or a module (the last one is meant), or a kernel.
    sizes: of the parameters' dimensions, and of size parameters; others are free at every call.
    Keywords are inputs that become parameters, with what they are at first: a number, a function
    such as `torch.nn.init.zeros_`, or None: uniform within 1/sqrt(number of elements that go into
    one output), as torch's own layers have it. A tensor becomes a buffer, a `torch.nn.Parameter`
    itself a parameter.
    Parameters, buffers and `state_dict` have the inputs' names. Errors: those of `define`;
    OptionError for what is no floating input; SizeError for a size that is not given.
    """

    def __init__(
        self,
        source: str | Module | Kernel,
        *,
        sizes: Mapping[str, int] | None = None,
        **parameters: Initial | torch.Tensor | None,
    ) -> None:
        super().__init__()
        self.kernel = source if isinstance(source, Kernel) else _last(source)
        known = dict(sizes or {})
        inputs = {t.name: t for t in self.kernel.program.inputs}
        self._initial: dict[str, Any] = {}
        self._own = tuple(parameters)
        for name, initial in parameters.items():
            if name in inputs and isinstance(initial, torch.Tensor):
                is_parameter = isinstance(initial, torch.nn.Parameter)
                (self.register_parameter if is_parameter else self.register_buffer)(name, initial)
                continue
            self._initial[name] = initial
            if name not in inputs or not inputs[name].dtype.is_float:
                close = ", ".join(n for n, t in inputs.items() if t.dtype.is_float)
                message = f"{self.kernel.name} has no floating input `{name}`"
                raise OptionError(message, hint=f"floating inputs are {close}")
            shape = [_extent(str(e), known, self.kernel.name) for e in inputs[name].shape]
            empty = torch.empty(shape, dtype=torch_type(inputs[name].dtype))
            self.register_parameter(name, torch.nn.Parameter(empty))
        given = self.kernel.program.size_parameters
        self._sizes = {p.name: known[p.name] for p in given if p.name in known}
        self._order = tuple([p.name for p in self.kernel.program.parameters])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Parameters as they are at first."""
        with torch.no_grad():
            for name, initial in self._initial.items():
                p = self.get_parameter(name)
                if callable(initial):
                    initial(p)
                elif initial is not None:
                    p.fill_(initial)
                else:
                    bound = 1 / math.sqrt(max(1, p[0].numel() if p.dim() else 1))
                    p.uniform_(-bound, bound)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The kernel's result; inputs that are the layer's own left out, in order or by name."""
        given = {n: getattr(self, n) for n in self._own}  # or what a parametrization makes of it
        given.update(self._sizes)
        given.update(named)
        free = [n for n in self._order if n not in given]
        if len(inputs) > len(free):
            names = ", ".join(f"`{n}`" for n in free) or "none"
            message = f"{self.kernel.name}: {len(inputs)} inputs are given by position"
            raise CallError(message, hint=f"the layer has its own; those left are {names}")
        given.update(zip(free, inputs))
        # What follows a missing input goes by name, so that the kernel says which one is missing.
        first = []
        for name in self._order:
            if name not in given:
                break
            first.append(given.pop(name))
        return self.kernel(*first, **given)

    def extra_repr(self) -> str:
        return repr(self.kernel.signature)


def _last(source: str | Module) -> Kernel:
    module = source if isinstance(source, Module) else define(source)
    return module[list(module)[-1]]


def _extent(text: str, sizes: Mapping[str, int], name: str) -> int:
    if text.isdigit():
        return int(text)
    if text not in sizes:
        hint = f'give it: `sizes={{"{text}": ...}}`'
        raise SizeError(f"{name}: size `{text}` of a parameter is not given", hint=hint)
    return sizes[text]
