# SPDX-License-Identifier: Apache-2.0
"""A kernel -> a function of JAX arrays, traced or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.export
import numpy as np
from msgspec import Struct

from tcsym.jax.primitive import call, dtype_of
from tcsym.operators.called import Called
from tcsym.operators.shapes import given_sizes, shape_view
from tcsym.runtime.arguments import MISSING, bind, match_arguments, missing, separated, together
from tcsym.runtime.arrays import numpy_view
from tcsym.runtime.packing import packed
from tcsym.runtime.plan import CallPlan, Parameter
from tcsym.runtime.scalars import is_scalar, scalar_array
from tcsym.runtime.view import View


def operator(kernel: Called) -> Operator:
    """A function like the kernel for all that JAX does with functions, on the CPU: it compiles,
    differentiates in both modes to any order, batches and exports it.

    It compiles the kernel for dense arrays of all sizes, when it is first called; that needs a C
    compiler. A call uses as many threads as `tcsym.get_num_threads()` said when it was compiled.
    What the kernel updates is a result, behind the others: `kernel.functional()` is what is called.
    Errors: when traced those of a call; what depends on data is an error of JAX with the same text,
    and so is what dimension expressions of JAX do not decide.
    """
    return Operator(kernel.functional())


class Operator(Struct, frozen=True, weakref=True):
    """What `operator` gives. Equal for one kernel, so that `jax.jit` knows it again."""

    kernel: Called

    def __call__(self, /, *args: Any, sizes: Mapping[str, int] | None = None, **kwargs: Any) -> Any:
        """Arrays in declaration order or by name; sizes: values of free sizes.

        Returns one array, or a named tuple in declaration order. Errors: TCError of the kinds
        call, size, rank, type, target, derivative.
        """
        plan = self.kernel._plan
        for t in (*plan.program.inputs, *plan.program.outputs):
            if jax.dtypes.canonicalize_dtype(t.dtype.numpy) != t.dtype.numpy:
                hint = 'allow it: `jax.config.update("jax_enable_x64", True)`'
                raise plan.error("type", f"JAX makes no {t.dtype} now for `{t.name}`", t.span, hint)
        given, named = separated(plan, match_arguments(plan, args, kwargs), sizes)
        inputs = [_seen(x) for x in given]
        extents = [*(named or {}).values(), *(e for x in inputs for e in getattr(x, "shape", ()))]
        if any(isinstance(e, _SYMBOL) for e in extents):
            free = given_sizes(plan, named, _SYMBOL)
        else:
            bound = bind(plan, together(plan, inputs), named, _view)
            free = tuple([bound.sizes[k] for k in plan.free_slots])
        arrays = [_array(plan, p, x) for p, x in zip(plan.inputs, given)]
        return packed(plan.output_names, tuple(call(self.kernel, arrays, free)))


_SYMBOL = type(jax.export.symbolic_shape("n")[0])


def _seen(x: Any) -> Any:
    """What is known of an array that may be traced."""
    return shape_view(x.shape, dtype_of(x), x, "jax") if isinstance(x, jax.Array) else x


def _view(x: Any) -> View:
    return x if isinstance(x, View) else numpy_view(np.asarray(x))


def _array(plan: CallPlan, p: Parameter, x: Any) -> Any:
    if x is MISSING:
        raise missing(plan, p)
    if is_scalar(x):
        x = scalar_array(x, p.dtype)
    return jax.numpy.asarray(x)
