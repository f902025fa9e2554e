# SPDX-License-Identifier: Apache-2.0
"""A kernel -> the functions of torch that record its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import and_, itemgetter
from typing import Any, NamedTuple

import torch

from tcsym.errors import TCError
from tcsym.operators.backward import Backward, backward_of
from tcsym.operators.called import Called
from tcsym.operators.forward import forward_of
from tcsym.operators.torch.symbols import TorchSymbols
from tcsym.process.outside_graphs import outside_graphs

Picking = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def _taking(places: tuple[int, ...]) -> Picking:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda known: tuple([known[k] for k in places])


class Recorder:
    """How calls of one kernel are recorded: `record` does it for plain tensors; for its operator,
    `setup` in the forward pass and `backward` later.

    recorded: what `record` calls, by which inputs need a gradient.
    """

    def __init__(self, kernel: Called) -> None:
        self.kernel = kernel
        self.n_inputs = len(kernel.program.inputs)
        self.recorded: dict[tuple[bool | None, ...], Callable[..., Any]] = {}
        self._floating = tuple([t.dtype.is_float for t in kernel.program.inputs])
        self._made: dict[tuple[bool, ...], Backward] = {}

    def record(self, *args: Any) -> Any:
        """The results of a call whose gradients may be asked for. args: inputs, then free sizes."""
        needs = tuple([x.requires_grad for x in args[: self.n_inputs]])
        found = self.recorded.get(needs)
        if found is None:
            found = self.recorded[needs] = self._recording(needs)
        return found(*args)

    def _recording(self, needs: tuple[bool, ...]) -> Callable[..., Any]:
        """What calls in which these inputs need a gradient are recorded by."""
        needs = tuple(map(and_, needs, self._floating))  # the call refuses others by their types
        kernel, made = self.kernel, backward_of(self.kernel, needs, saving=True)
        if made.kernel is None:  # there is nothing to record
            names = kernel.program.free_sizes

            def unrecorded(*args: Any) -> Any:
                with torch.no_grad():
                    return run(kernel, self.n_inputs, args, names)

            return unrecorded
        again = None if made.saving is kernel else self._backward(needs)
        sized = made.steps or kernel.program.free_sizes
        members = (_sized_members if sized else _members)(kernel, made, made.kernel, again)
        return _function(kernel, members).apply  # type: ignore[no-any-return]

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
        found = ctx.made.gradients(ctx.saved_tensors, gradients, ctx.sizes)
        return (*found, *(None,) * len(ctx.sizes))

    def _backward(self, needs: tuple[bool, ...]) -> Backward:
        made = self._made.get(needs)
        if made is None:
            made = self._made[needs] = backward_of(self.kernel, needs)
        return made


def _function(kernel: Called, members: Mapping[str, Callable[..., Any]]) -> Any:
    """A `torch.autograd.Function` of arguments in order. Its nodes have the kernel's name."""
    made = {n: staticmethod(f) for n, f in members.items()}
    return type(kernel.name, (torch.autograd.Function,), made)


def _members(
    kernel: Called, made: Backward, gradient: Called, again: Backward | None
) -> dict[str, Any]:
    """The passes of a call that has no sizes but its inputs'. Small calls cost what these do.

    again: for gradients of the gradient, where `made` takes what is no result: that has no history,
    so it is computed again.
    """
    saving = made.saving
    keep = _taking((*made.kept, *(again.kept if again else ())))
    order = _taking(made.order)
    single = len(saving.program.outputs) == 1
    given = _given_results(kernel)
    n_kept, wanted = len(made.kept), made.wanted
    only = wanted.index(0) if len(gradient.program.outputs) == 1 else None
    before, after = (None,) * (only or 0), (None,) * (len(wanted) - 1 - (only or 0))

    def forward(ctx: Any, *args: Any) -> Any:
        try:
            output = saving._entry(*args)
        except TCError as error:
            raise own_error(kernel, args, error) from None
        if single:
            ctx.save_for_backward(*keep((*args, output)))
            return output
        ctx.save_for_backward(*keep((*args, *output)))
        return output if again is None else given(output)

    def backward(ctx: Any, *gradients: Any) -> Any:
        saved = ctx.saved_tensors
        if again is not None:
            if torch.is_grad_enabled():
                return again.gradients(saved[n_kept:], gradients, ())
            saved = saved[:n_kept]
        found = gradient(*order((*saved, *gradients)))
        if only is not None:
            return (*before, found, *after)
        return tuple([None if k is None else found[k] for k in wanted])

    return {"forward": forward, "backward": backward}


def _sized_members(
    kernel: Called, made: Backward, _gradient: Called, again: Backward | None
) -> dict[str, Any]:
    """As `_members`, of a call that has sizes of its own behind its inputs, or keeps steps."""
    program, saving, n = kernel.program, made.saving, len(kernel.program.inputs)
    keep = _taking((*made.kept, *(again.kept if again else ())))
    n_kept, own = len(made.kept), _given_results(kernel)
    none = (None,) * len(program.free_sizes)

    def forward(ctx: Any, *args: Any) -> Any:
        ctx.sizes = made.sizes_of(program, args[:n], args[n:], TorchSymbols)
        given = (*args[:n], *made.given(program, ctx.sizes))
        try:
            output = run(saving, n, given, saving.program.free_sizes)
        except TCError as error:
            raise own_error(kernel, args, error) from None
        results = output if isinstance(output, tuple) else (output,)
        ctx.save_for_backward(*keep((*args[:n], *results)))
        return output if saving is kernel else own(results)

    def backward(ctx: Any, *gradients: Any) -> Any:
        saved, used = ctx.saved_tensors, made
        if again is not None:
            is_twice = torch.is_grad_enabled()
            saved = saved[n_kept:] if is_twice else saved[:n_kept]
            used = again if is_twice else made
        return (*used.gradients(saved, gradients, ctx.sizes), *none)

    return {"forward": forward, "backward": backward}


def _given_results(kernel: Called) -> Callable[[tuple[Any, ...]], Any]:
    """Of the results of what is called instead of the kernel, its own."""
    n = len(kernel.program.outputs)
    return itemgetter(0) if n == 1 else lambda results: tuple(results[:n])


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
        try:
            output = run(self.called, self.n_inputs, given, self.called.program.free_sizes)
        except TCError as error:
            raise own_error(self.kernel, args, error) from None
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
        found = made.gradients([known[k] for k in made.kept], whole, own)
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
        return _function(self.kernel, {n: _plainly(f) for n, f in members.items()})


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


def own_error(kernel: Called, args: tuple[Any, ...], error: TCError) -> TCError:
    """What a call of the kernel itself says where one that keeps more failed by `error`: the caller
    knows its text."""
    try:
        run(kernel, len(kernel.program.inputs), args, kernel.program.free_sizes)
    except TCError as own:
        return own
    return error
