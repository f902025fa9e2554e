# SPDX-License-Identifier: Apache-2.0
"""Calls of kernels, and linear maps made of kernels, as primitives of JAX with their rules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tcsym.errors import DerivativeError
from tcsym.jax.handler import TARGET, registered_name
from tcsym.jax.linear import Way, tangents_of
from tcsym.jax.symbols import JaxSymbols
from tcsym.operators.called import Called
from tcsym.operators.shapes import result_shapes, shape_view
from tcsym.types import DType

Arrays = Sequence[Any]
_types = {t.numpy: t for t in DType}

call_p = Primitive("tcsym")
call_p.multiple_results = True
linear_p = Primitive("tcsym_linear")  # operands: what is kept, then what is mapped
linear_p.multiple_results = True


def dtype_of(x: Any) -> DType | None:
    """Of an array that may be traced; None for types that tcsym does not have."""
    return _types.get(np.dtype(x.dtype)) if jax.dtypes.issubdtype(x.dtype, np.generic) else None


def call(kernel: Called, arrays: Arrays, sizes: tuple[Any, ...]) -> list[Any]:
    """Results of inputs in order; sizes: values of free ones, numbers or symbols."""
    made: list[Any] = call_p.bind(*arrays, kernel=kernel, sizes=sizes)
    return made


def _typed(kernel: Called, arrays: Arrays, sizes: tuple[Any, ...]) -> list[Any]:
    """Shapes and types of the results. Errors: those of the call."""
    program = kernel.program
    views = [shape_view(x.shape, dtype_of(x), x, "jax") for x in arrays]
    given = dict(zip(program.free_sizes, sizes))
    shapes = result_shapes(kernel._plan, views, given, JaxSymbols)
    return [jax.core.ShapedArray(s, o.dtype.numpy) for s, o in zip(shapes, program.outputs)]


def _run(*arrays: Any, kernel: Called, sizes: tuple[Any, ...]) -> Any:
    """The foreign function."""
    results = _typed(kernel, arrays, sizes)
    run = jax.ffi.ffi_call(TARGET, results)
    name = registered_name(kernel)
    if not sizes:
        return run(*arrays, kernel=name)
    if all(isinstance(n, int) for n in sizes):
        return run(*arrays, kernel=name, sizes=np.array(sizes, np.int64))
    return run(*arrays, jax.numpy.stack([jax.numpy.asarray(n) for n in sizes]), kernel=name)


@cache
def _compiled(primitive: Any, **params: Any) -> Any:
    return jax.jit(lambda *arrays: primitive.bind(*arrays, **params))


def _linear(*operands: Any, there: Way, sizes: tuple[Any, ...], **_: Any) -> list[Any]:
    return there.of_results(call(there.kernel, there.arguments(operands), there.given(sizes)))


def _linear_typed(*operands: Any, there: Way, sizes: tuple[Any, ...], **_: Any) -> list[Any]:
    made = _typed(there.kernel, there.arguments(operands), there.given(sizes))
    return there.of_results(made)


# ---- tangents


def _tangents(
    primals: Arrays, tangents: Arrays, *, kernel: Called, sizes: tuple[Any, ...]
) -> tuple[Arrays, Arrays]:
    inputs = kernel.program.inputs
    needs = [t.dtype.is_float and type(x) is not ad.Zero for t, x in zip(inputs, tangents)]
    made = tangents_of(kernel, tuple(needs)) if any(needs) else None
    if made is None:
        results = call(kernel, primals, sizes)
        return results, [_zero(y) for y in results]
    own = made.sizes(kernel, primals, sizes)
    saved = call(made.saving, primals, made.given(kernel, own))
    results = saved[: len(kernel.program.outputs)]
    known = [*primals, *saved]
    kept = [known[k] for k in made.kept]
    moving = [ad.instantiate_zeros(x) for x, need in zip(tangents, needs) if need]
    params = {"there": made.there, "back": made.back, "n_kept": len(kept), "sizes": own}
    moved = dict(zip(made.moved, linear_p.bind(*kept, *moving, **params)))
    found = [moved.get(k) for k in range(len(results))]
    return results, [_zero(y) if t is None else t for y, t in zip(results, found)]


_typeof: Any = getattr(jax, "typeof", None) or jax.core.get_aval  # its name before JAX 0.6


def _zero(result: Any) -> Any:
    """Where nothing moves."""
    return ad.Zero(_typeof(result).to_tangent_aval())


def _linear_tangents(
    primals: Arrays, tangents: Arrays, *, there: Way, n_kept: int, sizes: Any, **params: Any
) -> tuple[Arrays, Arrays]:
    """What is kept may move as well: then of the kernel as of any other."""
    if all(type(t) is ad.Zero for t in tangents[:n_kept]):
        params |= {"there": there, "n_kept": n_kept, "sizes": sizes}
        moving = [ad.instantiate_zeros(t) for t in tangents[n_kept:]]
        both = (linear_p.bind(*primals[:n_kept], *x, **params) for x in (primals[n_kept:], moving))
        return next(both), next(both)
    given = there.arguments(primals), there.arguments(tangents)
    found = _tangents(*given, kernel=there.kernel, sizes=there.given(sizes))
    return there.of_results(found[0]), there.of_results(found[1])


def _transposed(
    cotangents: Arrays, *operands: Any, there: Way, back: Any, n_kept: int, sizes: Any
) -> Arrays:
    if isinstance(back, DerivativeError):
        raise back
    given = [ad.instantiate_zeros(x) for x in cotangents]
    params = {"there": back, "back": there, "n_kept": n_kept, "sizes": sizes}
    return [*[None] * n_kept, *linear_p.bind(*operands[:n_kept], *given, **params)]


# ---- batches


def _front(arrays: Arrays, dims: Sequence[int | None]) -> list[Any]:
    return [x if d is None else jax.numpy.moveaxis(x, d, 0) for x, d in zip(arrays, dims)]


def _batch(
    arrays: Arrays, dims: Sequence[int | None], *, kernel: Called, sizes: tuple[Any, ...]
) -> tuple[Arrays, Arrays]:
    """All elements at once, by a kernel with one more index."""
    program = kernel.program
    made = kernel.batched([t.name for t, d in zip(program.inputs, dims) if d is not None])
    given = dict(zip(program.free_sizes, sizes))
    results = call(made, _front(arrays, dims), tuple([given[n] for n in made.program.free_sizes]))
    return results, _result_dims(made, kernel)


def _result_dims(made: Called, kernel: Called) -> list[int | None]:
    pairs = zip(made.program.outputs, kernel.program.outputs)
    return [0 if len(b.shape) > len(o.shape) else None for b, o in pairs]


def _linear_batch(
    operands: Arrays, dims: Sequence[int | None], *, there: Way, back: Any, n_kept: int, sizes: Any
) -> tuple[Arrays, Arrays]:
    """All that is mapped becomes a batch, so that the way back has one as well."""
    n = next(x.shape[d] for x, d in zip(operands, dims) if d is not None)
    given = _front(operands, dims)
    given[n_kept:] = [
        jax.numpy.broadcast_to(x, (n, *x.shape)) if d is None else x
        for x, d in zip(given[n_kept:], dims[n_kept:])
    ]
    kept = [d is not None for d in dims[:n_kept]]
    made = there.batched(kept)
    if isinstance(back, Way):
        back = back.batched(kept)
    results = linear_p.bind(*given, there=made, back=back, n_kept=n_kept, sizes=sizes)
    return results, there.of_results(_result_dims(made.kernel, there.kernel))


def _define(primitive: Any, typed: Any, run: Any, tangents: Any, batch: Any) -> None:
    primitive.def_abstract_eval(typed)
    primitive.def_impl(lambda *arrays, **params: _compiled(primitive, **params)(*arrays))
    lowering = mlir.lower_fun(run, multiple_results=True)
    mlir.register_lowering(primitive, lowering, platform="cpu")
    ad.primitive_jvps[primitive] = tangents
    batching.primitive_batchers[primitive] = batch


_define(
    call_p,
    lambda *arrays, kernel, sizes: _typed(kernel, arrays, sizes),
    _run,
    _tangents,
    _batch,
)
_define(linear_p, _linear_typed, _linear, _linear_tangents, _linear_batch)
ad.primitive_transposes[linear_p] = _transposed
