# SPDX-License-Identifier: Apache-2.0
"""Stand-in for generated code: a loaded kernel that runs the interpreter on the raw pointers.

It sees only what machine code sees (pointers, sizes, strides), so argument handling is tested to
the last stride without waiting for a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tcsym.frontend.interpret import interpret
from tcsym.frontend.program import Program, Tensor
from tcsym.index.expr import ZERO
from tcsym.index.values import evaluate
from tcsym.ir.compiled import Compiled, layout_strides, stride_name
from tcsym.runtime.variants import Layouts, Variant, Variants
from tcsym.runtime.view import HERE, Place
from tcsym.types import DType


class InterpretedKernel:
    """Looks like `runtime.jit.LoadedKernel`; `runs` notes (sizes, threads) of every run."""

    def __init__(self, program: Program, compiled: Compiled) -> None:
        self.program = program
        self.compiled = compiled
        self.runs: list[tuple[dict[str, int], int]] = []

    def run(
        self, pointers: Sequence[int], sizes: Sequence[int], threads: int, place: Place = HERE
    ) -> int:
        values = dict(zip(self.compiled.sizes, sizes, strict=True))
        self.runs.append((values, threads))
        arrays = {
            name: _array(self.program.tensor(name), pointer, values)
            for name, pointer in zip(self.compiled.arguments, pointers, strict=True)
        }
        inputs = {t.name: arrays[t.name] for t in self.program.inputs}
        for name, result in interpret(self.program, inputs, values).items():
            arrays[name][...] = result
        return 0

    def whole(self) -> InterpretedKernel:
        return self

    grown = whole
    is_whole = True


def _array(t: Tensor, pointer: int, values: dict[str, int]) -> np.ndarray[Any, Any]:
    shape = tuple(evaluate(extent, values) for extent in t.shape)
    if 0 in shape:
        return np.zeros(shape, t.dtype.numpy)
    strides = None
    names = [stride_name(t.name, d) for d in range(len(shape))]
    if any(n in values for n in names):
        item = t.dtype.bytes
        strides = tuple(values.get(n, 1) * item for n in names)
    typestr = "<u2" if t.dtype is DType.BFLOAT16 else t.dtype.numpy.str

    class Holder:
        __array_interface__ = {  # noqa: RUF012
            "version": 3,
            "shape": shape,
            "strides": strides,
            "typestr": typestr,
            "data": (pointer, False),
        }

    return np.asarray(Holder()).view(t.dtype.numpy)


def _make(self: Variants, layouts: Layouts, *_: object) -> Variant:
    program = self.plan.program
    arguments = tuple(reversed(self.ranks))  # any order is allowed
    sizes = list(program.sizes)
    for name, layout in zip(self.ranks, layouts, strict=True):
        strides = layout_strides(name, self.ranks[name], layout) or ()
        sizes += [s for stride in strides for s in stride.variables()]
    compiled = Compiled(
        object_code=b"",
        sizes=tuple(reversed(sizes)),
        arguments=arguments,
        faults=(),
        shared_bytes=ZERO,
        private_bytes=ZERO,
        milliseconds=(("interpreter", 0.0),),
    )
    self.stats.note(layouts, compiled)
    position = {name: k for k, name in enumerate(self.ranks)}
    pointers = tuple(position[name] for name in arguments)
    kernel: Any = InterpretedKernel(program, compiled)
    return Variant(layouts, kernel, pointers, self._slots(compiled))


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels made in the test run the interpreter instead of machine code."""
    monkeypatch.setattr(Variants, "_make", _make)
    monkeypatch.setattr("tcsym.runtime.entry_image.entry_image", lambda *_: None)
    monkeypatch.setattr("tcsym.kernel.definition.ready", lambda *_, **__: None)
