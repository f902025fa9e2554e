"""A kernel -> the functions of torch that record its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from tcsym.operators.backward import Backward, backward_of
from tcsym.operators.called import Called
from tcsym.operators.forward import forward_of
from tcsym.operators.torch.symbols import TorchSymbols
from tcsym.process.outside_graphs import outside_graphs


class _Recorded(NamedTuple):
    """How calls are recorded of which some inputs need a gradient. again: for gradients of the
    gradient, where `made` takes what is no result. keep: picks what is kept of inputs and results.
    """

    made: Backward
    again: Backward | None
    saving: Called
    keep: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    has_sizes: bool


def _taking(places: tuple[int, ...]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda known: tuple([known[k] for k in places])


class Recorder:
    """How calls of one kernel are recorded: `setup` in the forward pass, `backward` later."""

    def __init__(self, kernel: Called) -> None:
        self.kernel = kernel
        self.n_inputs = len(kernel.program.inputs)
        self.n_outputs = len(kernel.program.outputs)
        self.n_sizes = len(kernel.program.free_sizes)
        self._floating = tuple([t.dtype.is_float for t in kernel.program.inputs])
        self._made: dict[tuple[bool, ...], Backward] = {}
        self._recorded: dict[tuple[bool, ...], _Recorded] = {}

    def forward(self, ctx: Any, *args: Any) -> Any:
        """The results of a plain call, of which more may be kept than these."""
        recorded = self._recorded.get(ctx.needs_input_grad)
        if recorded is None:
            if True not in ctx.needs_input_grad:  # wrappers of torch.func that outlived it
                return run(self.kernel, self.n_inputs, args, self.kernel.program.free_sizes)
            recorded = self._record(ctx.needs_input_grad)
        ctx.made, ctx.again, saving, keep, has_sizes = recorded
        if has_sizes:
            args = self._sized(ctx, args)
            output = run(saving, self.n_inputs, args, saving.program.free_sizes)
        else:
            output = saving._entry(*args)
        if not isinstance(output, tuple):
            ctx.save_for_backward(*keep((*args[: self.n_inputs], output)))
            return output
        ctx.save_for_backward(*keep((*args[: self.n_inputs], *output)))
        if ctx.again is None:
            return output
        return output[0] if self.n_outputs == 1 else tuple(output[: self.n_outputs])

    def _record(self, needs: tuple[bool, ...]) -> _Recorded:
        own = needs[: self.n_inputs]
        made = backward_of(self.kernel, own, saving=True)
        again = None if made.saving is self.kernel else self._backward(own)
        kept = (*made.kept, *(again.kept if again else ()))
        has_sizes = bool(self.n_sizes or made.steps)
        found = _Recorded(made, again, made.saving, _taking(kept), has_sizes)
        self._recorded[needs] = found
        return found

    def _sized(self, ctx: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments of what is called, with values of its free sizes."""
        n, program, made = self.n_inputs, self.kernel.program, ctx.made
        ctx.sizes = made.sizes_of(program, args[:n], args[n:], TorchSymbols)
        return (*args[:n], *made.given(program, ctx.sizes))

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


class Keeping:
    """A call that torch may differentiate in any way, of plain tensors or of what stands for them.

    saving: what gradients need is behind the results, and is differentiated like these. needs:
    inputs that count as such that need a gradient; default: all floating ones.
    """

    def __init__(
        self, kernel: Called, *, saving: bool, needs: tuple[bool, ...] | None = None
    ) -> None:
        self.kernel = kernel
        self.saving = saving
        self.n_inputs = len(kernel.program.inputs)
        self.n_outputs = len(kernel.program.outputs)
        self.needs = needs or tuple([t.dtype.is_float for t in kernel.program.inputs])

    @cached_property
    def made(self) -> Backward:
        return backward_of(self.kernel, self.needs, saving=self.saving)

    @property
    def called(self) -> Called:
        return self.made.saving if self.saving else self.kernel

    def sizes(self, args: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Of a call: those of `made`, and free ones of `called`."""
        n, program = self.n_inputs, self.kernel.program
        if not self.saving:
            return tuple(args[n:]), tuple(args[n:])
        own = self.made.sizes_of(program, args[:n], args[n:], TorchSymbols)
        return own, self.made.given(program, own)

    def forward(self, *args: Any) -> tuple[Any, ...]:
        given = (*args[: self.n_inputs], *self.sizes(args)[1])
        output = run(self.called, self.n_inputs, given, self.called.program.free_sizes)
        return tuple(output) if isinstance(output, tuple) else (output,)

    def setup(self, ctx: Any, inputs: Sequence[Any], output: tuple[Any, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.given = inputs[self.n_inputs :]
        known = (*inputs[: self.n_inputs], *output)
        ctx.save_for_backward(*known)
        ctx.save_for_forward(*known)

    def backward(self, ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """Of the inputs; None for the sizes."""
        known, n = ctx.saved_tensors, self.n_inputs
        none = (None,) * (n + len(ctx.given))
        if all(g is None for g in gradients):
            return none
        own, given = self.sizes((*known[:n], *ctx.given))
        made = self.made
        if any(g is not None for g in gradients[self.n_outputs :]):  # of what is kept
            made, own = backward_of(self.called, self.needs), given
        whole = [torch.zeros_like(y) if g is None else g for g, y in zip(gradients, known[n:])]
        found = made.gradients(made.kernel, [known[k] for k in made.kept], whole, own)
        return (*found, *none[n:])

    def jvp(self, ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        """Of the results, from those of inputs and sizes."""
        known = ctx.saved_tensors
        moving = [t for t in tangents[: self.n_inputs] if t is not None]
        needs = [t is not None for t in tangents[: self.n_inputs]]
        given = self.sizes((*known[: self.n_inputs], *ctx.given))[1]
        found = forward_of(self.called, needs).tangents((*known, *moving), given)
        results = known[self.n_inputs :]  # torch takes None between tangents for something else
        return tuple(
            [
                torch.zeros_like(y) if t is None and y.is_floating_point() else t
                for t, y in zip(found, results)
            ]
        )

    def of_batch(self, in_dims: Sequence[int | None], args: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments of `called` for a batch."""
        tensors = args[: self.n_inputs]
        one = [x if d is None else _Shaped(_without(x.shape, d)) for x, d in zip(tensors, in_dims)]
        return (*tensors, *self.sizes((*one, *args[self.n_inputs :]))[1])

    def function(self, batch: Callable[..., Any]) -> Any:
        """A `torch.autograd.Function` of arguments in order. batch: a call of `called` for a batch,
        by dimensions and arguments."""

        def vmap(info: Any, in_dims: Sequence[int | None], *args: Any) -> Any:
            return batch(self.called, in_dims, self.of_batch(in_dims, args))

        members: dict[str, Callable[..., Any]] = {
            "forward": self.forward,
            "setup_context": self.setup,
            "backward": self.backward,
            "jvp": self.jvp,
            "vmap": vmap,
        }
        made = {n: staticmethod(_plainly(f)) for n, f in members.items()}
        return type(self.kernel.name, (torch.autograd.Function,), made)


class _Shaped(NamedTuple):
    shape: tuple[Any, ...]


def _without(shape: Sequence[Any], axis: int) -> tuple[Any, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _plainly(method: Callable[..., Any]) -> Callable[..., Any]:
    """torch looks into functions for what they are, not into methods, and compiles what it sees."""
    return outside_graphs(lambda *args: method(*args))


def run(called: Called, n_inputs: int, args: tuple[Any, ...], names: Sequence[str]) -> Any:
    """A call of plain tensors, followed by sizes of these names, of which it has some."""
    if len(args) == n_inputs:
        return called._entry(*args)
    sizes = dict(zip(names, args[n_inputs:]))
    own = {n: sizes[n] for n in called.program.free_sizes}
    given, left = called.program.arguments(args[:n_inputs], own)
    return called._entry(*given, **({"sizes": left} if left else {}))
