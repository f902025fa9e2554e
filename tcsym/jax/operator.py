"""A kernel -> a function of JAX arrays, traced or not: results, gradients and batches.

What JAX compiles has a call of the kernel's code, without Python and without a copy. The backward
pass and the batch are kernels, too, and become operators in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from msgspec import Struct

from tcsym.jax.handler import handler_of
from tcsym.operators.backward import Backward, backward_of
from tcsym.operators.called import Called
from tcsym.process.threads import get_num_threads
from tcsym.runtime.arguments import MISSING, bind, match_arguments, separated, together
from tcsym.runtime.arrays import numpy_view
from tcsym.runtime.packing import packed
from tcsym.runtime.plan import Parameter
from tcsym.runtime.scalars import is_scalar, scalar_array
from tcsym.runtime.view import View

Function = Callable[..., tuple[Any, ...]]


def operator(kernel: Called) -> Operator:
    """A function like the kernel for use under `jax.jit`, `jax.grad` and `jax.vmap`, on the CPU.

    It compiles the kernel for dense arrays of all sizes, when it is first called; that needs a C
    compiler. A call uses as many threads as `tcsym.get_num_threads()` said when it was traced.
    What the kernel updates is a result, behind the others: `kernel.functional()` is what is called.
    Errors: when traced those of a call; what depends on data is an error of JAX with the same text.
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
        given = match_arguments(plan, args, kwargs)
        bound = bind(plan, [_argument(x) for x in given], sizes, _view)
        inputs, _ = separated(plan, given, sizes)
        arrays = [_array(x, p) for x, p in zip(inputs, plan.inputs)]
        free = tuple([bound.sizes[k] for k in plan.free_slots])
        return packed(plan.output_names, _differentiable(self.kernel, free)(*arrays))


class _Typed(Struct, frozen=True):
    """Shape and type of an array that may be traced."""

    shape: tuple[int, ...]
    dtype: Any


def _argument(x: Any) -> Any:
    return _Typed(x.shape, x.dtype) if isinstance(x, jax.Array) else x


def _view(x: Any) -> View:
    """As a call would see it: dense and here."""
    is_typed = isinstance(x, _Typed)
    return numpy_view(
        np.broadcast_to(np.empty((), x.dtype), x.shape) if is_typed else np.asarray(x)
    )


def _array(x: Any, p: Parameter) -> Any:
    assert x is not MISSING
    if is_scalar(x):
        x = scalar_array(x, p.dtype)
    return jax.numpy.asarray(x)


# ---- what JAX is told


@cache
def _batching(kernel: Called, sizes: tuple[int, ...]) -> Function:
    """The call, of which JAX knows how it goes for a batch. sizes: values of free ones."""
    program = kernel.program
    given = dict(zip(program.free_sizes, sizes))

    @custom_vmap  # type: ignore[untyped-decorator, unused-ignore]
    def run(*arrays: Any) -> tuple[Any, ...]:
        handler = handler_of(kernel)
        handler.set_threads(get_num_threads())
        inputs = together(kernel._plan, [_argument(x) for x in arrays])
        bound = bind(kernel._plan, inputs, given or None, _view)
        pairs = zip(bound.shapes, program.outputs)
        results = [jax.ShapeDtypeStruct(shape, o.dtype.numpy) for shape, o in pairs]
        call = jax.ffi.ffi_call(handler.target, results)
        return tuple(call(*arrays, **({"sizes": np.array(sizes, np.int64)} if sizes else {})))

    @run.def_vmap  # type: ignore[untyped-decorator, unused-ignore]
    def batch(n: int, is_batched: list[bool], *arrays: Any) -> tuple[Any, tuple[bool, ...]]:
        made = kernel.batched([t.name for t, b in zip(program.inputs, is_batched) if b])
        free = tuple([given[name] for name in made.program.free_sizes])
        pairs = zip(made.program.outputs, program.outputs)
        has_batch = tuple([len(b.shape) > len(o.shape) for b, o in pairs])
        return _differentiable(made, free)(*arrays), has_batch

    made: Function = run
    return made


@cache
def _differentiable(kernel: Called, sizes: tuple[int, ...]) -> Function:
    """The same, of which JAX knows the gradients as well."""
    run = _batching(kernel, sizes)
    whole = jax.custom_vjp(lambda *arrays: run(*arrays))

    def forward(*given: Any) -> tuple[Any, Any]:
        arrays = [x.value for x in given]
        needs = [x.perturbed and t.dtype.is_float for x, t in zip(given, kernel.program.inputs)]
        if not any(needs):
            return whole(*arrays), jax.tree_util.Partial(_Pull(None, sizes, len(needs)))
        made = backward_of(kernel, needs, saving=True)
        given_sizes = made.sizes_of(kernel.program, arrays, sizes)
        known_sizes = dict(
            zip((*kernel.program.free_sizes, *(n for n, _ in made.steps)), given_sizes)
        )
        free = tuple([known_sizes[n] for n in made.saving.program.free_sizes])
        results = _differentiable(made.saving, free)(*arrays)
        known = [*arrays, *results]
        pull = _Pull(made, given_sizes, len(needs))
        kept = [known[k] for k in made.kept]
        return results[: len(kernel.program.outputs)], jax.tree_util.Partial(pull, *kept)

    whole.defvjp(forward, lambda pull, gradients: pull(gradients), symbolic_zeros=True)
    made: Function = whole
    return made


class _Pull(Struct, frozen=True):
    """From gradients of results to those of the inputs that need one: none if `made` is None."""

    made: Backward | None
    sizes: tuple[int, ...]
    n_inputs: int

    def __call__(self, *kept_and_gradients: Any) -> tuple[Any, ...]:
        *kept, gradients = kept_and_gradients
        if self.made is None:
            return (None,) * self.n_inputs
        whole = [
            jax.numpy.zeros(g.shape, g.dtype) if isinstance(g, SymbolicZero) else g
            for g in gradients
        ]
        return self.made.gradients(operator(self.made.kernel), kept, whole, self.sizes)
