# SPDX-License-Identifier: Apache-2.0
"""`einsum`, `einsum_kernel`: subscripts -> a def. `derivative`: kernels -> those of gradients."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, overload

from tcsym.errors import DeviceError, OptionError, TCTypeError
from tcsym.kernel.definition import define
from tcsym.kernel.kernel import Kernel
from tcsym.kernel.module import Module
from tcsym.process.forks import inside
from tcsym.process.outside_graphs import outside_graphs
from tcsym.runtime.arrays import numpy_array, view_of
from tcsym.runtime.device import device_of
from tcsym.runtime.scalars import is_scalar
from tcsym.runtime.view import Elsewhere, Unusable, View
from tcsym.types import NAMES, DType

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from tcsym.frontend.einsum import EinsumSource
    from tcsym.kernel.definition import Defined
    from tcsym.kernel.kernel import Array
    from tcsym.options import Options


@overload
def einsum(
    spec: str,
    first: NDArray[Any],
    /,
    *rest: Any,
    out: Any = None,
    threads: int | None = None,
    optimize: bool = True,
) -> NDArray[Any]: ...


@overload
def einsum(
    spec: str,
    first: Array,
    /,
    *rest: Any,
    out: Any = None,
    threads: int | None = None,
    optimize: bool = True,
) -> Array: ...


@outside_graphs
@inside
def einsum(
    spec: str, *operands: Any, out: Any = None, threads: int | None = None, optimize: bool = True
) -> Any:
    """`numpy.einsum` through the compiler; one kernel per spec and element types serves all sizes.

    Example: `einsum("mk,kn->mn", A, B)`. Ellipses and extents of 1 broadcast as in numpy. The
    result's type is numpy's promotion of the operands' types, its library theirs.
    out: an array to write into.
    threads: most threads for this call.
    optimize: multiply several operands in the order that takes the fewest operations at these
        sizes; there is then one kernel for each order that was met. False: all at once.
    Errors: TCSyntaxError, RankError, TCTypeError or SizeError where subscripts and operands do not
    go together.
    """
    if not isinstance(spec, str):
        raise TCTypeError(f"einsum: the first argument is {spec!r}, expected subscripts as text")
    views = [_operand(k, x) for k, x in enumerate(operands)]
    dtypes = tuple([view.dtype for view in views])
    shapes = tuple([view.shape for view in views])
    broadcast = "..." in spec or any(1 in shape for shape in shapes)
    needed = shapes if broadcast or (optimize and _has_choice(spec)) else None
    found = _einsum_source(spec, dtypes, needed, optimize)
    arguments = [_squeezed(x, view, axes) for x, view, axes in zip(operands, views, found.squeezed)]
    return _einsum_kernel(found.source)(*arguments, out=out, threads=threads)


@outside_graphs
@inside
def einsum_kernel(
    spec: str, dtypes: str | DType | Sequence[str | DType] = "float32", **settings: Unpack[Defined]
) -> Kernel:
    """The kernel behind `einsum(spec, ..., optimize=False)`: parameters x0, x1, ..., result O.

    dtypes: element type of all operands, or one for each.
    settings: as for `define`.
    """
    from tcsym.frontend.einsum import NAME, einsum_source

    n_operands = spec.partition("->")[0].count(",") + 1
    given = [dtypes] * n_operands if isinstance(dtypes, str | DType) else list(dtypes)
    found = einsum_source(spec, [_named_type(t) for t in given])
    return define(found.source, filename="<einsum>", **settings)[NAME]


@outside_graphs
@inside
def derivative(
    of: Kernel | Module,
    wrt: str | Collection[str] | None = None,
    *,
    recompute: str = "auto",
    options: Options | None = None,
) -> Module:
    """The defs `<name>_grad` that compute gradients of inputs, in one text (`module.source`).

    of: a kernel, or a module for the gradients of all its defs. The rest is as in `Kernel.grad`.
    """
    from tcsym.kernel.derivatives import gradient_module

    kernels = [of[name] for name in of] if isinstance(of, Module) else [of]
    return gradient_module(kernels, wrt, recompute, options)


@lru_cache(256)
def _has_choice(spec: str) -> bool:
    from tcsym.frontend.einsum import has_orders

    return has_orders(spec)


@lru_cache(4096)
def _einsum_source(
    spec: str,
    dtypes: tuple[DType, ...],
    shapes: tuple[tuple[int, ...], ...] | None,
    optimize: bool,
) -> EinsumSource:
    from tcsym.frontend.einsum import einsum_source

    return einsum_source(spec, dtypes, shapes, optimize=optimize)


@lru_cache(256)
def _einsum_kernel(source: str) -> Kernel:
    from tcsym.frontend.einsum import NAME

    return define(source, filename="<einsum>")[NAME]


def _named_type(t: str | DType) -> DType:
    if isinstance(t, DType):
        return t
    if t not in NAMES:
        raise OptionError(f"unknown type {t!r}", hint=f"one of {', '.join(NAMES)}")
    return NAMES[t]


def _operand(k: int, x: Any) -> View:
    import numpy as np

    device = device_of(None)
    try:
        view = view_of(np.asarray(x) if is_scalar(x) else x)
        if view.place.type not in device.reads:
            raise Elsewhere(view.place)
    except Elsewhere as why:
        message = f"einsum: operand {k} {why}, this kernel runs on the {device.name}"
        raise DeviceError(message, hint=why.hint) from None
    except Unusable as why:
        raise TCTypeError(f"einsum: operand {k} {why}", hint=why.hint) from None
    if view.dtype is None:
        raise TCTypeError(f"einsum: operand {k} has type {view.type_name}")
    return view


def _squeezed(x: Any, view: View, axes: tuple[int, ...]) -> Any:
    """The operand without broadcast dimensions, in its own library."""
    if not axes:
        return x
    return x.squeeze(axes) if view.library != "numpy" else numpy_array(view).squeeze(axes)
