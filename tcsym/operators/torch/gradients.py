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
        self.n_outputs = len(kernel.program.outputs)
        self.n_sizes = len(kernel.program.free_sizes)
        self._floating = tuple([t.dtype.is_float for t in kernel.program.inputs])
        self._made: dict[tuple[bool, ...], Backward] = {}
        self._saving: dict[tuple[bool, ...], Backward] = {}

    def forward(self, ctx: Any, *args: Any) -> Any:
        """The results of a plain call, of which more may be kept than these."""
        needs = ctx.needs_input_grad
        if self.n_sizes:
            needs = needs[: self.n_inputs]
        made = self._saving.get(needs)
        if made is None:
            made = self._saving[needs] = backward_of(self.kernel, needs, saving=True)
        ctx.made = made
        program, n = self.kernel.program, self.n_inputs
        sizes: Sequence[Any] = ()
        if self.n_sizes or made.steps:
            ctx.sizes = sizes = made.sizes_of(program, args[:n], args[n:])
        if made.saving is self.kernel:
            output = run(self.kernel, n, args, program.free_sizes)
            known = (*args[:n], *(output if isinstance(output, tuple) else (output,)))
            ctx.save_for_backward(*[known[k] for k in made.kept])
            return output
        names = (*program.free_sizes, *(n for n, _ in made.steps))
        results = run(made.saving, n, (*args[:n], *sizes), names)
        known = (*args[:n], *results)
        ctx.again = again = self._backward(needs)
        ctx.save_for_backward(*[known[k] for k in (*made.kept, *again.kept)])
        return results[0] if self.n_outputs == 1 else tuple(results[: self.n_outputs])

    def setup(self, ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        """Keeps of a call what its gradients need."""
        results = output if isinstance(output, tuple) else (output,)
        needs = ctx.needs_input_grad[: self.n_inputs]
        if True not in needs:  # torch.func does not tell
            needs = self._floating
        ctx.made = made = self._backward(needs)
        ctx.sizes = inputs[self.n_inputs :]
        known = (*inputs[: self.n_inputs], *results)
        ctx.save_for_backward(*[known[k] for k in made.kept])

    def backward(self, ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """Of the inputs; None for the sizes."""
        made: Backward = ctx.made
        saved = ctx.saved_tensors
        n_kept = len(made.kept)
        if made.saving is not self.kernel:
            # what is no result has no history: a gradient of this one computes it again
            again = torch.is_grad_enabled()
            saved = saved[n_kept:] if again else saved[:n_kept]
            made = ctx.again if again else made
        sizes = ctx.sizes if self.n_sizes or ctx.made.steps else ()
        found = made.gradients(made.kernel, saved, gradients, sizes)
        return (*found, *(None,) * self.n_sizes)

    def _backward(self, needs: tuple[bool, ...]) -> Backward:
        made = self._made.get(needs)
        if made is None:
            made = self._made[needs] = backward_of(self.kernel, needs)
        return made


def recorded_function(kernel: Called, recorder: Recorder) -> Any:
    """A `torch.autograd.Function` of arguments in order: the quick way where torch watches nothing
    else. Its nodes have the kernel's name."""
    members = {
        "forward": staticmethod(recorder.forward),
        "backward": staticmethod(recorder.backward),
    }
    return type(kernel.name, (torch.autograd.Function,), members)


def transformed_function(kernel: Called, recorder: Recorder, batch: Callable[..., Any]) -> Any:
    """The same for tensors that torch.func transforms; it asks for more, at every call."""

    def forward(*args: Any) -> Any:
        output = run(kernel, recorder.n_inputs, args, kernel.program.free_sizes)
        return tuple(output) if isinstance(output, tuple) else output

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(recorder.setup),
        "backward": staticmethod(recorder.backward),
        "vmap": staticmethod(lambda info, in_dims, *args: batch(in_dims, args)),
    }
    return type(kernel.name, (torch.autograd.Function,), members)


def run(called: Called, n_inputs: int, args: tuple[Any, ...], names: Sequence[str]) -> Any:
    """A call of plain tensors, followed by sizes of these names, of which it has some."""
    if len(args) == n_inputs:
        return called._entry(*args)
    sizes = dict(zip(names, args[n_inputs:]))
    own = {n: sizes[n] for n in called.program.free_sizes}
    given, left = called.program.arguments(args[:n_inputs], own)
    return called._entry(*given, **({"sizes": left} if left else {}))
