# SPDX-License-Identifier: Apache-2.0
"""Arguments of a call -> padded copies, run, results cropped: how a padded version runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tcsym.runtime.arrays import empty, numpy_array, numpy_view
from tcsym.runtime.size_functions import Shape, shapes_of
from tcsym.runtime.variants import Variant, Variants
from tcsym.runtime.view import View

if TYPE_CHECKING:
    from tcsym.rewrite.pad import PaddedProgram

Values = tuple[int, ...]


class Padding(Struct, frozen=True):
    """`sizes` of the def, of which `extents` are padded; the code takes all, then the `true` ones.

    `fill`: what the padding of each input holds. `written`: places of arguments that the code
    writes. `shapes`: of all arguments, from these sizes.
    """

    sizes: tuple[str, ...]
    extents: Mapping[str, int]
    true: tuple[str, ...]
    fill: tuple[int | float, ...]
    written: tuple[int, ...]
    shapes: Callable[..., tuple[Shape, ...]]
    notes: tuple[str, ...]

    @staticmethod
    def of(padded: PaddedProgram, sizes: tuple[str, ...], extents: Mapping[str, int]) -> Padding:
        program = padded.program
        tensors = (*program.inputs, *program.outputs)
        return Padding(
            sizes,
            extents,
            tuple(padded.true),
            tuple(padded.fill[t.name] for t in program.inputs),
            tuple(k for k, t in enumerate(tensors) if t.role != "input"),
            shapes_of([t.shape for t in tensors], program.sizes),
            padded.notes,
        )

    def run(
        self, variants: Variants, views: Sequence[View], sizes: Values, threads: int
    ) -> tuple[Variant, int]:
        """As `Version.run`, on copies of whatever is smaller than its padded memory."""
        meant = dict(zip(self.sizes, sizes))
        values = *(self.extents.get(n, v) for n, v in meant.items()), *(meant[n] for n in self.true)
        n_inputs = len(self.fill)
        passed: list[View] = []
        for k, (view, shape) in enumerate(zip(views, self.shapes(*values))):
            if shape == view.shape:
                passed.append(view)
            elif k < n_inputs:
                passed.append(_filled(view, shape, self.fill[k]))
            else:
                assert view.dtype is not None
                passed.append(empty("numpy", shape, view.dtype))
        variant, fault = variants.run(variants.serving(passed, values), passed, values, threads)
        if not fault:
            for k in self.written:
                if passed[k] is not views[k]:
                    np.copyto(numpy_array(views[k]), _corner(passed[k], views[k].shape))
        return variant, fault


def _filled(view: View, shape: tuple[int, ...], value: int | float) -> View:
    assert view.dtype is not None
    made = numpy_view(np.full(shape, value, view.dtype.numpy))
    _corner(made, view.shape)[...] = numpy_array(view)
    return made


def _corner(view: View, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return numpy_array(view)[tuple([slice(0, extent) for extent in shape])]
