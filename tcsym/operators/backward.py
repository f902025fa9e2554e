# SPDX-License-Identifier: Apache-2.0
"""Which inputs need a gradient -> the kernel that gives them, and what a call keeps for it.

Other libraries count arguments and results, derivatives know them by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tcsym.errors import IndependentError
from tcsym.frontend.program import Program
from tcsym.index.expr import Index
from tcsym.operators.called import Called
from tcsym.operators.shapes import Symbols


class Backward(Struct, frozen=True):
    """Of one kernel, for one choice of inputs.

    saving: what is called instead of the kernel; its further results are kept for the gradients.
    kept: places among inputs and results of that call. order: for each argument of `kernel`, its
    place among what is kept, or behind that among the results' gradients. wanted: for each input,
    the place of its gradient among the results of `kernel`. steps: size parameters of `saving` and
    `kernel` beside those of the call, with the steps of the loops whose segments have so many.
    sizes: those that `kernel` must be given, with their places among those of the call and `steps`.
    kernel: None where no result depends on these inputs.
    """

    kernel: Called | None
    saving: Called
    kept: tuple[int, ...]
    order: tuple[int, ...]
    wanted: tuple[int | None, ...]
    steps: tuple[tuple[str, Index], ...]
    sizes: tuple[tuple[str, int], ...]

    def sizes_of(
        self,
        program: Program,
        inputs: Sequence[Any],
        sizes: Sequence[Any],
        symbols: type[Symbols],
    ) -> tuple[Any, ...]:
        """`sizes` of a call, and `steps`: near the square root of a loop's takes least memory."""
        if not self.steps:
            return tuple(sizes)
        known = dict(zip(program.free_sizes, sizes))
        for t, x in zip(program.inputs, inputs):
            known |= {str(e): n for e, n in zip(t.shape, x.shape)}
        fold = symbols(known)
        return (*sizes, *[fold.near_root(fold.index(e)) for _, e in self.steps])

    def given(self, program: Program, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """Free sizes of `saving`, of what `sizes_of` says."""
        known = dict(zip((*program.free_sizes, *(n for n, _ in self.steps)), sizes))
        return tuple([known[n] for n in self.saving.program.free_sizes])

    def gradients(
        self, saved: Sequence[Any], given: Sequence[Any], sizes: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Of each input; None where none is wanted."""
        if self.kernel is None:
            return self.wanted
        known = [*saved, *given]
        wanted = {n: sizes[k] for n, k in self.sizes}
        args, left = self.kernel.program.arguments([known[k] for k in self.order], wanted)
        made = self.kernel(*args, **({"sizes": left} if left else {}))
        results = made if isinstance(made, tuple) else (made,)
        return tuple([None if k is None else results[k] for k in self.wanted])


def backward_of(kernel: Called, needs: Sequence[bool], *, saving: bool = False) -> Backward:
    """needs: for each input. saving: whether more than results may be kept of the call.

    Errors: DerivativeError for a kernel without a derivative.
    """
    from tcsym.differentiate.derive import segment_steps
    from tcsym.differentiate.names import gradient_names

    program = kernel.program
    inputs, outputs = ([t.name for t in ts] for ts in (program.inputs, program.outputs))
    names = gradient_names(program)
    wrt = tuple([n for n, need in zip(inputs, needs) if need])
    recompute = kernel.settings.recompute if saving else "auto"
    try:
        made = kernel.grad(wrt, recompute=recompute)
    except IndependentError:
        return Backward(None, kernel, (), (), (None,) * len(inputs), (), ())
    parameters = [t.name for t in made.program.inputs]
    places = {names[n]: k for k, n in enumerate(outputs) if n in names}
    forward = kernel
    if not {*parameters} <= {*inputs, *outputs, *places}:
        forward = kernel.saving(wrt, recompute=recompute)
    known = {n: k for k, n in enumerate([*inputs, *(t.name for t in forward.program.outputs)])}
    kept = tuple([known[n] for n in parameters if n in known])
    order = [
        kept.index(known[n]) if n in known else len(kept) + places[n]  # behind what is kept
        for n in parameters
    ]
    results = [t.name for t in made.program.outputs]
    wanted = tuple([results.index(names[n]) if n in wrt else None for n in inputs])
    steps = tuple(segment_steps(program, wrt).items()) if recompute == "sqrt" else ()
    given = (*program.free_sizes, *(n for n, _ in steps))
    sizes = tuple([(n, given.index(n)) for n in made.program.free_sizes])
    return Backward(made, forward, kept, tuple(order), wanted, steps, sizes)
