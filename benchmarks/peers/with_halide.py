# SPDX-License-Identifier: Apache-2.0
"""Halide with its automatic schedulers, for kernels that are one or two functions in it.

Every new size is a new compilation. Results go into a given buffer, so all are `out=` contestants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np

from benchmarks.contestant import Contestant, Maker, Problem

Pipeline = Callable[..., Any]  # of input buffers (dimensions reversed): the output function


def _variables(names: str) -> list[Any]:
    return [hl.Var(name) for name in names.split()]


def _domain(*extents: int) -> Any:
    return hl.RDom([hl.Range(0, n) for n in extents])


def _extent(buffer: Any, dimension: int) -> int:
    return int(buffer.dim(dimension).extent())


def _product(spec: str) -> Pipeline:
    """One contraction of two operands, from einsum subscripts."""
    inputs, out = spec.split("->")
    left, right = inputs.split(",")

    def build(a: Any, b: Any) -> Any:
        extents = {x: _extent(a, k) for k, x in enumerate(reversed(left))}
        extents |= {x: _extent(b, k) for k, x in enumerate(reversed(right))}
        at = {x: hl.Var(x) for x in out}
        reduced = [x for x in extents if x not in out]
        result = hl.Func("result")
        place = tuple(at[x] for x in reversed(out))
        if reduced:
            domain = _domain(*(extents[x] for x in reduced))
            at |= {x: domain[k] for k, x in enumerate(reduced)}
        term = a[tuple(at[x] for x in reversed(left))] * b[tuple(at[x] for x in reversed(right))]
        if not reduced:
            result[place] = term
            return result
        result[place] = hl.f32(0)
        result[place] += term
        return result

    return build


def _softmax(x: Any) -> Any:
    d, n = _variables("d n")
    r = _domain(_extent(x, 0))
    largest, e, total, out = (hl.Func(name) for name in ("largest", "e", "total", "out"))
    largest[n] = hl.f32(-3e38)
    largest[n] = hl.max(largest[n], x[r.x, n])
    e[d, n] = hl.fast_exp(x[d, n] - largest[n])
    total[n] = hl.f32(0)
    total[n] += e[r.x, n]
    out[d, n] = e[d, n] / total[n]
    return out


def _layer_norm(x: Any, g: Any, b: Any) -> Any:
    d, n = _variables("d n")
    size = _extent(x, 0)
    r = _domain(size)
    total, var, out = hl.Func("total"), hl.Func("var"), hl.Func("out")
    total[n] = hl.f32(0)
    total[n] += x[r.x, n]
    mean = total[n] / float(size)
    var[n] = hl.f32(0)
    var[n] += (x[r.x, n] - mean) * (x[r.x, n] - mean)
    factor = hl.fast_inverse_sqrt(var[n] / float(size) + hl.f32(1e-5))
    out[d, n] = (x[d, n] - mean) * factor * g[d] + b[d]
    return out


def _convolution(stride: int) -> Pipeline:
    def build(x: Any, w: Any) -> Any:
        i, j, o, n = _variables("i j o n")
        r = _domain(_extent(w, 0), _extent(w, 1), _extent(w, 2))
        out = hl.Func("out")
        out[i, j, o, n] = hl.f32(0)
        out[i, j, o, n] += x[i * stride + r.x, j * stride + r.y, r.z, n] * w[r.x, r.y, r.z, o]
        return out

    return build


def _grouped(x: Any, w: Any, b: Any) -> Any:
    i, j, o, n = _variables("i j o n")
    channels = _extent(w, 2)
    per_group = _extent(w, 3) // (_extent(x, 2) // channels)
    r = _domain(_extent(w, 0), _extent(w, 1), channels)
    out = hl.Func("out")
    out[i, j, o, n] = b[o]
    read = x[i + r.x, j + r.y, o // per_group * channels + r.z, n]
    out[i, j, o, n] += read * w[r.x, r.y, r.z, o]
    return out


def _depthwise(x: Any, w: Any) -> Any:
    i, j, c, n = _variables("i j c n")
    r = _domain(_extent(w, 0), _extent(w, 1))
    out = hl.Func("out")
    out[i, j, c, n] = hl.f32(0)
    out[i, j, c, n] += x[i + r.x, j + r.y, c, n] * w[r.x, r.y, 0, c]
    return out


def _max_pool(x: Any) -> Any:
    i, j, c, n = _variables("i j c n")
    out = hl.Func("out")
    reads = [x[2 * i + p, 2 * j + q, c, n] for p in range(3) for q in range(3)]
    largest = reads[0]
    for read in reads[1:]:
        largest = hl.max(largest, read)
    out[i, j, c, n] = largest
    return out


def _tanh(x: Any) -> Any:
    e = hl.fast_exp(2.0 * hl.clamp(x, -9.0, 9.0))
    return (e - 1.0) / (e + 1.0)


def _gelu(x: Any, y: Any) -> Any:
    i, j = _variables("i j")
    out = hl.Func("out")
    a, b = x[i, j], y[i, j]
    inner = hl.f32(0.7978845608) * (a + hl.f32(0.044715) * a * a * a)
    out[i, j] = 0.5 * a * (1.0 + _tanh(inner)) * b + _tanh(b)
    return out


def _add_relu(x: Any, b: Any) -> Any:
    i, j = _variables("i j")
    out = hl.Func("out")
    out[i, j] = hl.max(x[i, j] + b[i], 0.0)
    return out


def _transpose(x: Any) -> Any:
    i, j = _variables("i j")
    out = hl.Func("out")
    out[i, j] = x[j, i]
    return out


PIPELINES: dict[str, Pipeline] = {
    "softmax": _softmax,
    "layernorm": _layer_norm,
    "conv": _convolution(1),
    "conv_s2": _convolution(2),
    "gconv": _grouped,
    "dwconv": _depthwise,
    "maxpool": _max_pool,
    "gelu_chain": _gelu,
    "add_relu": _add_relu,
    "transpose": _transpose,
}
_SCHEDULERS: dict[str, dict[str, str]] = {
    "Adams2019": {},
    "Mullapudi2016": {"last_level_cache_size": "1000000", "balance": "20"},
}


@lru_cache(None)
def _load_schedulers() -> None:
    for library in Path(hl.__file__).parent.rglob("libautoschedule_*.so"):
        hl.load_plugin(str(library))


def _pipeline_of(problem: Problem) -> Pipeline | None:
    spec = problem.case.einsum
    if spec.count(",") == 1:
        return _product(spec)
    return PIPELINES.get(problem.case.name)


def _contestant(build: Pipeline, problem: Problem, scheduler: str) -> Contestant:
    _load_schedulers()
    (expected,) = problem.expected
    result = np.empty(expected.shape, np.float32)
    buffers = [hl.Buffer(a) for a in problem.library_arrays]
    function, given = build(*buffers), hl.Buffer(result)
    for argument, extent in zip(function.args(), reversed(expected.shape)):
        function.set_estimate(argument, 0, int(extent))
    pipeline, target = hl.Pipeline(function), hl.get_jit_target_from_environment()
    settings = {"parallelism": str(problem.threads), **_SCHEDULERS[scheduler]}
    pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(scheduler, settings))
    pipeline.compile_jit(target)

    def run(_kept: Any = (problem, buffers)) -> Any:  # Halide does not own its inputs' memory
        pipeline.realize(given)
        return result

    return Contestant(run, lambda array: (array,))


def contestants(problem: Problem) -> Iterator[tuple[str, Maker]]:
    build = _pipeline_of(problem)
    if build is None:
        return
    for scheduler in _SCHEDULERS:
        yield f"halide {scheduler} out=", lambda s=scheduler: _contestant(build, problem, s)
