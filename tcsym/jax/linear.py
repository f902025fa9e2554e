"""Which inputs move -> the tangents of a kernel's results as a linear map that JAX can transpose.

Going back, gradients need what `saving` keeps; going forward, tangents need inputs. So a map has
both at hand, and the kernels of both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from tcsym.differentiate.names import gradient_names
from tcsym.errors import DerivativeError
from tcsym.operators.backward import Backward, backward_of
from tcsym.operators.called import Called


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
        return self.gradient.sizes_of(kernel.program, inputs, sizes)

    def given(self, kernel: Called, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """Free sizes of `saving`, of those that belong to the map."""
        steps = self.gradient.steps if self.gradient else ()
        known = dict(zip((*kernel.program.free_sizes, *(n for n, _ in steps)), sizes))
        return tuple([known[n] for n in self.saving.program.free_sizes])


@cache
def tangents_of(kernel: Called, needs: tuple[bool, ...]) -> Tangents:
    """needs: which inputs move. Errors: DerivativeError."""
    program = kernel.program
    names = gradient_names(program)
    wrt = tuple([t.name for t, need in zip(program.inputs, needs) if need])
    gradient, why = None, None
    try:
        gradient = backward_of(kernel, needs, saving=True)
    except DerivativeError as error:  # there may be tangents all the same
        why = error
    forward = kernel.jvp(wrt)
    saving = kernel if gradient is None else gradient.saving
    known = [*(t.name for t in program.inputs), *(t.name for t in saving.program.outputs)]
    mapped = {names[n]: k for k, n in enumerate(wrt)}
    parameters = [t.name for t in forward.program.inputs]
    kept = gradient.kept if gradient else ()
    kept = tuple(dict.fromkeys((*kept, *(known.index(n) for n in parameters if n not in mapped))))
    order = [
        len(kept) + mapped[n] if n in mapped else kept.index(known.index(n)) for n in parameters
    ]
    results = {t.name: k for k, t in enumerate(forward.program.outputs)}
    moved = tuple([k for k, t in enumerate(program.outputs) if names.get(t.name) in results])
    places = [results[names[program.outputs[k].name]] for k in moved]
    sizes = [program.free_sizes.index(n) for n in forward.program.free_sizes]
    there = Way(forward, tuple(order), tuple(places), tuple(sizes))
    if gradient is None:
        assert why is not None
        return Tangents(saving, kept, moved, there, why, None)
    n = len(gradient.kept)
    back = Way(
        gradient.kernel,
        tuple([k if k < n else len(kept) + moved.index(k - n) for k in gradient.order]),
        tuple([k for k in gradient.wanted if k is not None]),
        tuple([k for _, k in gradient.sizes]),
    )
    return Tangents(saving, kept, moved, there, back, gradient)
