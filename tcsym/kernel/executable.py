"""A kernel bound to fixed shapes: compiled, loaded and ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tcsym.kernel.outside_graphs import ends_graphs

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel
    from tcsym.kernel.settings import Settings

Shapes = tuple[tuple[int, ...], ...]


class Executable:
    """Result of `kernel.compile`: called like the kernel, with the shapes it was compiled for.

    kernel: the same def, accepting only these sizes; other shapes are `size` errors.
    sizes: name -> value.
    shapes: of the inputs, in order.
    """

    def __init__(self, kernel: Kernel, sizes: dict[str, int], shapes: Shapes) -> None:
        self.kernel = kernel
        self.sizes = sizes
        self.shapes = shapes

    @ends_graphs
    def __call__(
        self, /, *args: Any, out: Any = None, threads: int | None = None, **kwargs: Any
    ) -> Any:
        """As `Kernel.__call__`, without `sizes=`."""
        return self.kernel(*args, out=out, threads=threads, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.kernel.settings, self.kernel.name, self.shapes, self.sizes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{n}={v}" for n, v in self.sizes.items())
        return f"<tcsym executable {self.kernel.name} for {sizes or 'no sizes'}>"


def _rebuild(settings: Settings, name: str, shapes: Shapes, sizes: dict[str, int]) -> Executable:
    from tcsym.kernel.kernel import rebuild_kernel

    return rebuild_kernel(settings, name).compile(*shapes, **sizes)
