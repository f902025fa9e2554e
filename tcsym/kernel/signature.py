# SPDX-License-Identifier: Apache-2.0
"""Types of a kernel's inputs and outputs as users see them, and specs of concrete arguments."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import force_setattr

from tcsym.errors import OptionError
from tcsym.frontend.program import Program, Tensor
from tcsym.index.expr import Index
from tcsym.sizes.values import size_value
from tcsym.types import NAMES, DType


class TensorType(Struct, frozen=True):
    """Element type and symbolic shape; prints as `float32(M, N)`."""

    dtype: DType
    shape: tuple[Index, ...]

    def __str__(self) -> str:
        return f"{self.dtype}({', '.join(map(str, self.shape))})" if self.shape else str(self.dtype)


class Signature:
    """`inputs` and `outputs`: name -> TensorType, in declaration order. `inouts`: those of the
    inputs that a call updates. `sizes`: those that are parameters, as their places among all."""

    __slots__ = ("inouts", "inputs", "name", "outputs", "sizes")

    def __init__(self, program: Program) -> None:
        self.name = program.name
        self.inputs = _types(program.inputs)
        self.outputs = _types(program.outputs)
        self.inouts = _types(program.inouts)
        self.sizes = MappingProxyType({p.name: p.place for p in program.size_parameters})

    def __repr__(self) -> str:
        given = [f"{'inout ' * (n in self.inouts)}{t} {n}" for n, t in self.inputs.items()]
        for name, place in self.sizes.items():
            given.insert(place, f"size {name}")
        results = [f"{t} {n}" for n, t in self.outputs.items()]
        return f"{self.name}({', '.join(given)}) -> ({', '.join(results)})"


def _types(tensors: tuple[Tensor, ...]) -> Mapping[str, TensorType]:
    return MappingProxyType({t.name: TensorType(t.dtype, t.shape) for t in tensors})


class Spec(Struct, frozen=True):
    """Shape and element type of an argument without its data; dtype None: as declared.

    Example: `kernel.compile(Spec((64, 64)), Spec((64, 8), "float32"))`.
    """

    shape: tuple[int, ...]
    dtype: DType | None = None

    if TYPE_CHECKING:

        def __init__(self, shape: tuple[int, ...], dtype: DType | str | None = None) -> None: ...

    def __post_init__(self) -> None:
        dtype: object = self.dtype
        extents = tuple(size_value(extent) for extent in self.shape)
        if any(extent is None or extent < 0 for extent in extents):
            raise OptionError(f"Spec: shape is {self.shape!r}, expected integers >= 0")
        if isinstance(dtype, str) and dtype not in NAMES:
            raise OptionError(f"Spec: unknown type {dtype!r}", hint=f"one of {', '.join(NAMES)}")
        force_setattr(self, "shape", extents)
        force_setattr(self, "dtype", NAMES[dtype] if isinstance(dtype, str) else dtype)
