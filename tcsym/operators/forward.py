# SPDX-License-Identifier: Apache-2.0
"""Which inputs move -> the kernel that gives the tangents of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tcsym.differentiate.names import gradient_names
from tcsym.errors import IndependentError
from tcsym.operators.called import Called


class Forward(Struct, frozen=True):
    """Of one kernel, for one choice of inputs.

    order: for each argument of `kernel`, its place among inputs, outputs and, behind these,
    tangents of the inputs that move. moved: for each output the place of its tangent among the
    results of `kernel`; None if it has none. sizes: free ones of `kernel`, with their places among
    those of the call. kernel: None where no result depends on these inputs.
    """

    kernel: Called | None
    order: tuple[int, ...]
    moved: tuple[int | None, ...]
    sizes: tuple[tuple[str, int], ...]

    def tangents(self, known: Sequence[Any], sizes: Sequence[Any]) -> tuple[Any, ...]:
        """Of each output. known: what `order` is about."""
        if self.kernel is None:
            return self.moved
        given = {n: sizes[k] for n, k in self.sizes}
        args, left = self.kernel.program.arguments([known[k] for k in self.order], given)
        made = self.kernel(*args, **({"sizes": left} if left else {}))
        results = made if isinstance(made, tuple) else (made,)
        return tuple([None if k is None else results[k] for k in self.moved])


def forward_of(kernel: Called, needs: Sequence[bool]) -> Forward:
    """needs: which inputs move. Errors: DerivativeError for a kernel without a derivative."""
    program = kernel.program
    names = gradient_names(program)
    wrt = tuple([t.name for t, need in zip(program.inputs, needs) if need])
    try:
        made = kernel.jvp(wrt, recompute="auto")
    except IndependentError:
        return Forward(None, (), (None,) * len(program.outputs), ())
    known = [*(t.name for t in (*program.inputs, *program.outputs)), *(names[n] for n in wrt)]
    results = {t.name: k for k, t in enumerate(made.program.outputs)}
    return Forward(
        made,
        tuple([known.index(t.name) for t in made.program.inputs]),
        tuple([results.get(names.get(t.name, "")) for t in program.outputs]),
        tuple([(n, program.free_sizes.index(n)) for n in made.program.free_sizes]),
    )
