"""A kernel -> the functions of torch that record its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcsym.operators.backward import Backward, backward_of
from tcsym.operators.called import Called


class Recorder:
    """How calls of one kernel are recorded: `setup` in the forward pass, `backward` later."""

    def __init__(self, kernel: Called) -> None:
        self.kernel = kernel
        self.n_inputs = len(kernel.program.inputs)
        self.n_sizes = len(kernel.program.free_sizes)
        self._floating = tuple([t.dtype.is_float for t in kernel.program.inputs])
        self._made: dict[tuple[bool, ...], Backward] = {}

    def setup(self, ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        """Keeps of a call what its gradients need."""
        results = output if isinstance(output, tuple) else (output,)
        needs = ctx.needs_input_grad[: self.n_inputs]
        if True not in needs:  # torch.func does not tell
            needs = self._floating
        made = self._made.get(needs)
        if made is None:
            made = self._made[needs] = backward_of(self.kernel, needs)
        ctx.made = made
        ctx.sizes = inputs[self.n_inputs :]
        known = (*inputs[: self.n_inputs], *results)
        ctx.save_for_backward(*[known[k] for k in made.kept])

    def backward(self, ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """Of the inputs; None for the sizes."""
        made: Backward = ctx.made
        found = made.gradients(made.kernel, ctx.saved_tensors, gradients, ctx.sizes)
        return (*found, *(None,) * self.n_sizes)


def recorded_function(kernel: Called, recorder: Recorder) -> Any:
    """A `torch.autograd.Function` of arguments in order: the quick way where torch watches nothing
    else. Its nodes have the kernel's name."""

    def forward(ctx: Any, *args: Any) -> Any:
        output = run(kernel, recorder.n_inputs, args)
        recorder.setup(ctx, args, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(recorder.backward)}
    return type(kernel.name, (torch.autograd.Function,), members)


def transformed_function(kernel: Called, recorder: Recorder, batch: Callable[..., Any]) -> Any:
    """The same for tensors that torch.func transforms; it asks for more, at every call."""

    def forward(*args: Any) -> Any:
        output = run(kernel, recorder.n_inputs, args)
        return tuple(output) if isinstance(output, tuple) else output

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(recorder.setup),
        "backward": staticmethod(recorder.backward),
        "vmap": staticmethod(lambda info, in_dims, *args: batch(in_dims, args)),
    }
    return type(kernel.name, (torch.autograd.Function,), members)


def run(kernel: Called, n_inputs: int, args: tuple[Any, ...]) -> Any:
    """A call of plain tensors, followed by sizes."""
    if len(args) == n_inputs:
        return kernel._entry(*args)
    sizes = dict(zip(kernel.program.free_sizes, args[n_inputs:]))
    return kernel._entry(*args[:n_inputs], sizes=sizes)
