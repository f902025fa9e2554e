# SPDX-License-Identifier: Apache-2.0
"""Backward passes: ours and torch's by autograd of one recorded call, JAX's by a compiled one.

Steps of layers record a call and go back through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from benchmarks.case import as_tuple
from benchmarks.contestant import Contestant, Maker, Problem
from benchmarks.peers.with_tcsym import symbolic
from benchmarks.suite.training import SUFFIX_OF_STEPS, base_name, gradients_of, in_torch
from tcsym.runtime.background import settle

Function = Callable[..., Any]


def _by_autograd(function: Function, problem: Problem, arrays: tuple[Any, ...]) -> Contestant:
    torch.set_num_threads(problem.threads)
    leaves = [torch.from_numpy(a) for a in arrays]
    wanted = [x.requires_grad_() for x in leaves if x.is_floating_point()]

    def forward() -> tuple[Any, ...]:
        return tuple(y for y in as_tuple(function(*leaves)) if y.requires_grad)

    results = forward()
    given = [torch.from_numpy(g) for g in gradients_of(results)]

    def back(results: tuple[Any, ...], again: bool) -> Any:
        return torch.autograd.grad(results, wanted, given, retain_graph=again, allow_unused=True)

    def in_numpy(found: Any) -> tuple[Any, ...]:
        return tuple(
            np.zeros(x.shape, np.float32) if g is None else g.numpy() for g, x in zip(found, wanted)
        )

    if problem.case.name.endswith(SUFFIX_OF_STEPS):
        return Contestant(lambda: back(forward(), False), in_numpy, settle)
    return Contestant(lambda: back(results, True), in_numpy, settle)


def ours(problem: Problem) -> Iterator[tuple[str, Maker]]:
    kernel = symbolic(problem.case.text, problem.target)
    yield "tcsym", lambda: _by_autograd(kernel, problem, problem.arrays)


def eager(problem: Problem) -> Iterator[tuple[str, Maker]]:
    function = in_torch(problem.case.name)
    yield "torch", lambda: _by_autograd(function, problem, problem.library_arrays)


@lru_cache(None)
def _compiled(name: str) -> Function:
    import torch._dynamo
    import torch._functorch.config

    torch._dynamo.config.recompile_limit = 1000  # never fall back to eager
    torch._functorch.config.donated_buffer = False  # the graph is kept
    return torch.compile(in_torch(name), dynamic=False)


def compiled(problem: Problem) -> Iterator[tuple[str, Maker]]:
    function = _compiled(problem.case.name)
    yield "compile", lambda: _by_autograd(function, problem, problem.library_arrays)


def in_jax(problem: Problem) -> Iterator[tuple[str, Maker]]:
    if not problem.case.name.endswith(SUFFIX_OF_STEPS):
        yield "jax", lambda: _pulled(problem)


def _pulled(problem: Problem) -> Contestant:
    import jax

    from benchmarks.peers.with_jax import jitted

    arrays = [jax.numpy.asarray(a) for a in problem.library_arrays]
    at = [k for k, a in enumerate(problem.arrays) if np.issubdtype(a.dtype, np.floating)]
    function = jitted(base_name(problem.case.name))

    def of_floats(*floats: Any) -> Any:
        whole = list(arrays)
        for k, x in zip(at, floats):
            whole[k] = x
        return as_tuple(function(*whole))

    results, pull = jax.vjp(of_floats, *[arrays[k] for k in at])
    given = tuple(jax.numpy.asarray(g) for g in gradients_of(results))
    back = jax.jit(lambda pull, given: pull(given))
    return Contestant(
        lambda: jax.block_until_ready(back(pull, given)),
        lambda found: tuple(np.asarray(a) for a in found),
    )
