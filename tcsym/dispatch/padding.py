"""Arguments of a call -> padded copies, run, results cropped: how a padded version runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsym.index import evaluate
from tcsym.records import dataclass
from tcsym.runtime.arrays import View, empty, numpy_array, numpy_view
from tcsym.variants import Variant, Variants

if TYPE_CHECKING:
    from tcsym.polyhedral.pad import PaddedProgram

Values = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Padding:
    """`extents`: the padded sizes. The versions' code takes them, and the true sizes behind."""

    padded: PaddedProgram
    extents: Mapping[str, int]
    sizes: tuple[str, ...]

    def run(
        self, variants: Variants, views: Sequence[View], sizes: Values, threads: int
    ) -> tuple[Variant, int]:
        """As `Version.run`, on copies of whatever is smaller than its padded memory."""
        program = self.padded.program
        meant = dict(zip(self.sizes, sizes))
        values = meant | {true: meant[name] for name, true in self.padded.true.items()}
        values |= self.extents
        tensors = (*program.inputs, *program.outputs)
        n_inputs = len(program.inputs)
        passed: list[View] = []
        for k, (t, view) in enumerate(zip(tensors, views)):
            shape = tuple([evaluate(extent, values) for extent in t.shape])
            if shape == view.shape:
                passed.append(view)
            elif k < n_inputs:
                passed.append(_filled(view, shape, self.padded.fill[t.name]))
            else:
                passed.append(empty("numpy", shape, t.dtype))
        variant = variants.serving(passed)
        fault = variant.run(passed, tuple([values[name] for name in program.sizes]), threads)
        if not fault:
            for given, used in zip(views[n_inputs:], passed[n_inputs:]):
                if used is not given:
                    np.copyto(numpy_array(given), _corner(used, given.shape))
        return variant, fault


def _filled(view: View, shape: tuple[int, ...], value: int | float) -> View:
    assert view.dtype is not None
    made = numpy_view(np.full(shape, value, view.dtype.numpy))
    _corner(made, view.shape)[...] = numpy_array(view)
    return made


def _corner(view: View, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return numpy_array(view)[tuple([slice(0, extent) for extent in shape])]
