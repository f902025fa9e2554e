"""Which inputs need a gradient -> the kernel that gives them, and what a call keeps for it.

torch counts arguments and results, derivatives know them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from msgspec import Struct

from tcsym.operators.called import Called


class Backward(Struct, frozen=True):
    """Of one kernel, for one choice of inputs.

    kept: places among inputs and results of the call. order: for each argument of `kernel`, its
    place among what is kept, or behind that among the results' gradients. wanted: for each input,
    the place of its gradient among the results of `kernel`. sizes: those it must be given, with
    their places among those of the call.
    """

    kernel: Called
    kept: tuple[int, ...]
    order: tuple[int, ...]
    wanted: tuple[int | None, ...]
    sizes: tuple[tuple[str, int], ...]

    def gradients(
        self, saved: Sequence[Any], given: Sequence[Any], sizes: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Of each input; None where none is wanted."""
        known = [*saved, *given]
        more = {"sizes": {n: sizes[k] for n, k in self.sizes}} if self.sizes else {}
        made = self.kernel(*[known[k] for k in self.order], **more)
        results = made if isinstance(made, tuple) else (made,)
        return tuple([None if k is None else results[k] for k in self.wanted])


def backward_of(kernel: Called, needs: Sequence[bool]) -> Backward:
    """needs: for each input. Errors: DerivativeError for a kernel without a derivative."""
    from tcsym.differentiate.names import gradient_names

    program = kernel.program
    inputs, outputs = ([t.name for t in ts] for ts in (program.inputs, program.outputs))
    names = gradient_names(program)
    wrt = tuple([n for n, need in zip(inputs, needs) if need])
    made = kernel.grad(wrt)
    places = {names[n]: k for k, n in enumerate(outputs) if n in names}
    known = {n: k for k, n in enumerate([*inputs, *outputs])}
    parameters = [t.name for t in made.program.inputs]
    kept = tuple([known[n] for n in parameters if n in known])
    order = [
        kept.index(known[n]) if n in known else len(kept) + places[n]  # behind what is kept
        for n in parameters
    ]
    results = [t.name for t in made.program.outputs]
    wanted = tuple([results.index(names[n]) if n in wrt else None for n in inputs])
    sizes = tuple([(n, program.free_sizes.index(n)) for n in made.program.free_sizes])
    return Backward(made, kept, tuple(order), wanted, sizes)


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
        found = made.gradients(ctx.saved_tensors, gradients, ctx.sizes)
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
