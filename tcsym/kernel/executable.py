# SPDX-License-Identifier: Apache-2.0
"""A kernel for shapes that were compiled ahead of its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tcsym.kernel.registry import documented

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel, Shapes


class Executable:
    """Result of `kernel.compile`: called like the kernel, with the shapes it was compiled for.

    kernel: the same def, accepting only these sizes; other shapes are `size` errors.
    sizes: name -> value.
    shapes: of the inputs, in order.
    """

    def __init__(self, kernel: Kernel, sizes: dict[str, int], shapes: Shapes) -> None:
        self.kernel = kernel
        self.__name__ = self.__qualname__ = kernel.name
        self.sizes = sizes
        self.shapes = shapes

    def __call__(
        self, /, *args: Any, out: Any = None, threads: int | None = None, **kwargs: Any
    ) -> Any:
        """As `Kernel.__call__`, without `sizes=`."""
        return self.kernel(*args, out=out, threads=threads, **kwargs)

    def _doc(self, _: str | None) -> str | None:
        return self.kernel.__doc__

    def __reduce__(self) -> tuple[Any, ...]:
        return _recompiled, (self.kernel, self.shapes, self.sizes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{n}={v}" for n, v in self.sizes.items())
        return f"<tcsym executable {self.kernel.name} for {sizes or 'no sizes'}>"


documented(Executable)


def _recompiled(kernel: Kernel, shapes: Shapes, sizes: dict[str, int]) -> Executable:
    return kernel.compile(*shapes, **sizes)
