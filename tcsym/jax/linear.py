# SPDX-License-Identifier: Apache-2.0
"""Which inputs move -> the tangents of a kernel's results as a linear map that JAX can transpose.

Going back, gradients need what `saving` keeps; going forward, tangents need inputs. So a map has
both at hand, and the kernels of both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from tcsym.errors import DerivativeError
from tcsym.jax.symbols import JaxSymbols
from tcsym.operators.backward import Backward, backward_of
from tcsym.operators.called import Called
from tcsym.operators.forward import forward_of


class Way(Struct, frozen=True):
    """One way of a linear map from some arrays to others, beside what was kept.

    order: of each argument of `kernel`, its place among what is kept, or behind that among what is
    mapped. results: of each array that comes out, its place among the results. sizes: places of the
    free sizes among those that belong to the map.
    """

    kernel: Called
    order: tuple[int, ...]
    results: tuple[int, ...]
    sizes: tuple[int, ...]

    def arguments(self, operands: Sequence[Any]) -> list[Any]:
        return [operands[k] for k in self.order]

    def of_results(self, made: Sequence[Any]) -> list[Any]:
        return [made[k] for k in self.results]

    def given(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([sizes[k] for k in self.sizes])

    def batched(self, kept: Sequence[bool]) -> Way:
        """For a batch of all that is mapped, and of some of what is kept."""
        program = self.kernel.program
        is_batched = [k >= len(kept) or kept[k] for k in self.order]
        made = self.kernel.batched([t.name for t, b in zip(program.inputs, is_batched) if b])
        places = dict(zip(program.free_sizes, self.sizes))
        sizes = tuple([places[n] for n in made.program.free_sizes])
        return Way(made, self.order, self.results, sizes)


class Tangents(Struct, frozen=True):
    """kept: places among inputs and results of `saving`. moved: places of the results that have
    tangents. back: the transposed way, or why there is none."""

    saving: Called
    kept: tuple[int, ...]
    moved: tuple[int, ...]
    there: Way
    back: Way | DerivativeError
    gradient: Backward | None

    def sizes(self, kernel: Called, inputs: Sequence[Any], sizes: Sequence[Any]) -> tuple[Any, ...]:
        """Those that belong to the map: of the call, and of the kernels that go back."""
        if self.gradient is None:
            return tuple(sizes)
        return self.gradient.sizes_of(kernel.program, inputs, sizes, JaxSymbols)

    def given(self, kernel: Called, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """Free sizes of `saving`, of those that belong to the map."""
        return tuple(sizes) if self.gradient is None else self.gradient.given(kernel.program, sizes)


@cache
def tangents_of(kernel: Called, needs: tuple[bool, ...]) -> Tangents | None:
    """needs: which inputs move. None: no result depends on these. Errors: DerivativeError."""
    program = kernel.program
    gradient, why = None, None
    try:
        gradient = backward_of(kernel, needs, saving=True)
    except DerivativeError as error:  # there may be tangents all the same
        why = error
    forward = forward_of(kernel, needs)
    if forward.kernel is None:
        return None
    n_known = len(program.inputs) + len(program.outputs)
    kept = gradient.kept if gradient else ()
    kept = tuple(dict.fromkeys((*kept, *(k for k in forward.order if k < n_known))))
    moved = tuple([k for k, place in enumerate(forward.moved) if place is not None])
    there = Way(
        forward.kernel,
        tuple([kept.index(k) if k < n_known else len(kept) + k - n_known for k in forward.order]),
        tuple([k for k in forward.moved if k is not None]),
        tuple([k for _, k in forward.sizes]),
    )
    if gradient is None or gradient.kernel is None:
        assert why is not None
        return Tangents(kernel, kept, moved, there, why, None)
    n = len(gradient.kept)
    back = Way(
        gradient.kernel,
        tuple([k if k < n else len(kept) + moved.index(k - n) for k in gradient.order]),
        tuple([k for k in gradient.wanted if k is not None]),
        tuple([k for _, k in gradient.sizes]),
    )
    return Tangents(gradient.saving, kept, moved, there, back, gradient)
