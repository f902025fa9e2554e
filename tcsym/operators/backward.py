"""Which inputs need a gradient -> the kernel that gives them, and what a call keeps for it.

Other libraries count arguments and results, derivatives know them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from tcsym.operators.called import Called


class Backward(Struct, frozen=True):
    """Of one kernel, for one choice of inputs.

    saving: what is called instead of the kernel; its further results are kept for the gradients.
    kept: places among inputs and results of that call. order: for each argument of `kernel`, its
    place among what is kept, or behind that among the results' gradients. wanted: for each input,
    the place of its gradient among the results of `kernel`. sizes: those it must be given, with
    their places among those of the call.
    """

    kernel: Called
    saving: Called
    kept: tuple[int, ...]
    order: tuple[int, ...]
    wanted: tuple[int | None, ...]
    sizes: tuple[tuple[str, int], ...]

    def gradients(
        self,
        call: Callable[..., Any],
        saved: Sequence[Any],
        given: Sequence[Any],
        sizes: Sequence[Any],
    ) -> tuple[Any, ...]:
        """Of each input; None where none is wanted. call: what calls `kernel`."""
        known = [*saved, *given]
        wanted = {n: sizes[k] for n, k in self.sizes}
        args, left = self.kernel.program.arguments([known[k] for k in self.order], wanted)
        made = call(*args, **({"sizes": left} if left else {}))
        results = made if isinstance(made, tuple) else (made,)
        return tuple([None if k is None else results[k] for k in self.wanted])


def backward_of(kernel: Called, needs: Sequence[bool], *, saving: bool = False) -> Backward:
    """needs: for each input. saving: whether more than results may be kept of the call.

    Errors: DerivativeError for a kernel without a derivative.
    """
    from tcsym.differentiate.names import gradient_names

    program = kernel.program
    inputs, outputs = ([t.name for t in ts] for ts in (program.inputs, program.outputs))
    names = gradient_names(program)
    wrt = tuple([n for n, need in zip(inputs, needs) if need])
    made = kernel.grad(wrt, recompute="cheap" if saving else "auto")
    parameters = [t.name for t in made.program.inputs]
    places = {names[n]: k for k, n in enumerate(outputs) if n in names}
    forward = kernel
    if not {*parameters} <= {*inputs, *outputs, *places}:
        forward = kernel.saving(wrt, recompute="cheap")
    known = {n: k for k, n in enumerate([*inputs, *(t.name for t in forward.program.outputs)])}
    kept = tuple([known[n] for n in parameters if n in known])
    order = [
        kept.index(known[n]) if n in known else len(kept) + places[n]  # behind what is kept
        for n in parameters
    ]
    results = [t.name for t in made.program.outputs]
    wanted = tuple([results.index(names[n]) if n in wrt else None for n in inputs])
    sizes = tuple([(n, program.free_sizes.index(n)) for n in made.program.free_sizes])
    return Backward(made, forward, kept, tuple(order), wanted, sizes)
