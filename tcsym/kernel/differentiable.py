# SPDX-License-Identifier: Apache-2.0
"""What `Kernel` has for derivatives: the kernels that compute them, each made once."""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from tcsym.process.forks import inside
from tcsym.process.outside_graphs import outside_graphs

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel
    from tcsym.options import Options


class Differentiable:
    _lock: RLock
    _derivatives: dict[tuple[Any, ...], Kernel]

    @property
    def _kernel(self) -> Kernel:
        return self  # type: ignore[return-value]  # there is no other

    @outside_graphs
    @inside
    def grad(
        self,
        wrt: str | Collection[str] | None = None,
        *,
        recompute: str = "auto",
        options: Options | None = None,
    ) -> Kernel:
        """The kernel `<name>_grad` that computes gradients of inputs; its `source` is a def.

        It takes, by their names and only if it needs them: inputs; outputs; and of each floating
        output `Y` the gradient `dY`. It gives `dX` of each floating input `X`. Where such a name is
        taken, `_` is appended. It is a kernel like any other, with a gradient of its own.
        wrt: the inputs that gradients are for; default: all floating ones.
        recompute: "auto" takes outputs that it needs as arguments, "all" computes them again, so
            that it depends on inputs and `dY` only. "none" takes all that it needs, "cheap" what
            took sums or steps of a loop: `saving` gives that. "sqrt" is "auto", but of a loop that
            it would run again takes the states in front of segments of `S` steps, a size that both
            are given: then it stores the states of one segment. With `S` near the square root of
            the steps that takes least memory.
        options: a `tcsym.Options` for it; by default what bounds scheduling is as for this kernel.
        What the kernel updates counts as an input and an output, as in `functional`.
        Errors: DerivativeError for what has no gradient; OptionError.
        """
        from tcsym.kernel.derivatives import gradient_module

        names = wrt if wrt is None or isinstance(wrt, str) else tuple(wrt)
        return self._derived(
            ("grad", names, recompute),
            lambda: gradient_module([self._kernel], names, recompute, options)._only,
            options,
        )

    @outside_graphs
    @inside
    def saving(
        self,
        wrt: str | Collection[str] | None = None,
        *,
        recompute: str = "cheap",
        options: Options | None = None,
    ) -> Kernel:
        """The kernel `<name>_saving`: this one, with all that `grad` with the same `wrt` and
        `recompute` takes beside inputs and outputs as further outputs, by their names.

        options: as for `grad`. Errors: as of `grad`.
        """
        from tcsym.kernel.derivatives import saving_kernel

        names = wrt if wrt is None or isinstance(wrt, str) else tuple(wrt)
        return self._derived(
            ("saving", names, recompute),
            lambda: saving_kernel(self._kernel, names, recompute, options),
            options,
        )

    @outside_graphs
    @inside
    def jvp(
        self,
        wrt: str | Collection[str] | None = None,
        *,
        recompute: str = "all",
        options: Options | None = None,
    ) -> Kernel:
        """The kernel `<name>_jvp` that computes tangents of outputs: derivatives along a direction.

        It takes inputs that it needs, outputs if only they have a size, and the direction `dX` of
        each floating input; it gives `dY` of floating outputs that depend on them. Else as `grad`.
        recompute: "all", or "auto": outputs that it needs are arguments, too.
        options: as for `grad`.
        """
        from tcsym.kernel.derivatives import tangent_kernel

        names = wrt if wrt is None or isinstance(wrt, str) else tuple(wrt)
        return self._derived(
            ("jvp", names, recompute),
            lambda: tangent_kernel(self._kernel, names, recompute, options),
            options,
        )

    def _derived(
        self, key: tuple[Any, ...], make: Callable[[], Kernel], options: Options | None = None
    ) -> Kernel:
        if options is not None:
            from tcsym.kernel.settings import checked_options

            key = (*key, checked_options(options))
        with self._lock:
            if key not in self._derivatives:
                self._derivatives[key] = make()
            return self._derivatives[key]
