"""A kernel bound to fixed shapes: checked once, so a call only compares and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tcsym.runtime.arguments import Bound
from tcsym.runtime.arrays import View, numpy_view
from tcsym.threads import get_num_threads
from tcsym.variants import Variant

if TYPE_CHECKING:
    from tcsym.kernel import Kernel, Settings


class Executable:
    """Result of `kernel.compile`. Arguments must have the shapes it was compiled for.

    `kernel` is the same def with its sizes pinned; it serves every call that is not plainly like
    the arguments given to `compile`, and it raises the errors.
    """

    def __init__(self, kernel: Kernel, bound: Bound, variant: Variant) -> None:
        self.kernel = kernel
        self.sizes = dict(zip(kernel.plan.sizes, bound.sizes))
        self.variant = variant
        self._bound = bound
        plan = kernel.plan
        self._expected = [(v.shape, p.dtype.numpy) for v, p in zip(bound.views, plan.inputs)]
        self._results = [(s, o.dtype.numpy) for s, o in zip(bound.shapes, plan.outputs)]
        self._all_dense = set(variant.layouts) <= {"dense"}

    def __call__(
        self, /, *args: Any, out: Any = None, threads: int | None = None, **kwargs: Any
    ) -> Any:
        """As `Kernel.__call__`, without `sizes=`."""
        if out is None and not kwargs and threads is None and self._all_dense:
            views = self._plain_views(args)
            if views is not None:
                return self._run(views)
        return self.kernel(*args, out=out, threads=threads, **kwargs)

    def _plain_views(self, args: tuple[Any, ...]) -> list[View] | None:
        """Views of dense numpy arrays of exactly the expected shapes; None for anything else."""
        if len(args) != len(self._expected):
            return None
        for x, (shape, dtype) in zip(args, self._expected):
            if type(x) is not np.ndarray or x.shape != shape or x.dtype is not dtype:
                return None
            flags = x.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
        return [numpy_view(x) for x in args]

    def _run(self, views: list[View]) -> Any:
        arrays = [np.empty(shape, dtype) for shape, dtype in self._results]
        views += map(numpy_view, arrays)
        fault = self.variant.run(views, self._bound.sizes, get_num_threads())
        if fault:
            raise self.kernel.fault_error(self.variant, fault)
        return self.kernel.packed(tuple(arrays))

    def __reduce__(self) -> tuple[Any, ...]:
        shapes = [shape for shape, _ in self._expected]
        return _rebuild, (self.kernel.settings, self.kernel.name, shapes, self.sizes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{n}={v}" for n, v in self.sizes.items())
        return f"<tcsym executable {self.kernel.name} for {sizes or 'no sizes'}>"


def _rebuild(
    settings: Settings, name: str, shapes: list[tuple[int, ...]], sizes: dict[str, int]
) -> Executable:
    from tcsym.kernel import rebuild_kernel

    return rebuild_kernel(settings, name).compile(*shapes, **sizes)
