# SPDX-License-Identifier: Apache-2.0
"""Candidate options -> is it right, and how fast at each size against a rival; runs in a worker.

A job is a pure function of picklable values, so any executor can run it. Compiled code, inputs and
expected results are kept between the jobs of one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal

import numpy as np
from msgspec import Struct, field

from tcsym.compiler import begin_program, compile_program
from tcsym.frontend.interpret import interpret
from tcsym.frontend.program import Program
from tcsym.frontend.sample import Array, deviation, disturbed, largest_difference, random_inputs
from tcsym.index.values import evaluate, holds
from tcsym.ir.compiled import Compiled, Layout
from tcsym.options import Options
from tcsym.process.recursion import depth_checked
from tcsym.runtime.device import Device, LoadedCode, device_of
from tcsym.runtime.digest import hexdigest
from tcsym.runtime.plan import plan_call
from tcsym.runtime.view import View
from tcsym.sizes.context import Context
from tcsym.target.names import resolve_target
from tcsym.target.target import Target
from tcsym.tuning.called import call_of
from tcsym.tuning.declared import moved_into
from tcsym.tuning.machine import machine_key
from tcsym.tuning.timing import Ratio, compare

Values = tuple[int, ...]
Compile = Callable[[Program, Target, Options], Compiled]
State = Literal["measured", "raced", "failed", "same"]
INTERPRETED_POINTS = 300_000
_CAPS = (1, 3, 17, 37)
_CHECKED = 3


class Dense(Struct, frozen=True):
    """Compiles the symbolic variant for dense arguments, for sizes in `context`.

    served: if there are some, code for others may be left out, as it is where calls had no others.
    """

    context: Context = ()
    served: tuple[Values, ...] = ()

    def __call__(self, program: Program, target: Target, options: Options) -> Compiled:
        dense: Layout = "dense"
        layouts = (dense,) * (len(program.inputs) + len(program.outputs))
        fixed: dict[str, int] = {}
        given = program, target, options, fixed, layouts, self.context
        if self.served:
            begun = begin_program(*given)
            asked = [dict(zip(program.sizes, values, strict=True)) for values in self.served]
            if not any(begun.leaves_out([v[name] for name in begun.sizes]) for v in asked):
                begun.make(begun.missing())
                return begun.compiled()
        return compile_program(*given)


compile_dense = Dense()


class Job(Struct, frozen=True):
    """One candidate against `rival` at some sizes (values in the order of `Program.sizes`).

    seconds: most time for one size. precision: standard error of the logarithm of the ratio at
    which measuring stops. known: fingerprints of code that was measured already. context: what all
    sizes lie in; the rival is compiled for it and for `served` (`Dense`). expected: fingerprint
    that the candidate's code must have, if any is. compile: tests put faulty compilers here.
    """

    program: Program
    target: Target
    candidate: Options
    rival: Options
    sizes: tuple[Values, ...]
    threads: int
    seconds: float = 0.1
    precision: float = 0.01
    give_up: float = 0.25
    seed: int = 0
    known: frozenset[str] = frozenset()
    context: Context = ()
    served: tuple[Values, ...] = ()
    expected: str = ""
    compile: Compile = compile_dense


class Outcome(Struct, frozen=True):
    """What became of a candidate. `ratios`: of its time and the rival's, for sizes measured."""

    state: State
    reason: str = ""
    fingerprint: str = ""
    ratios: tuple[tuple[Values, Ratio], ...] = ()


class RunnableKernel(Struct):
    """Loaded code with the arguments it is run on, in the memory of its device."""

    program: Program
    kernel: LoadedCode
    threads: int
    device: Device
    written: dict[str, View] = field(default_factory=dict)
    arrays: dict[str, View] = field(default_factory=dict)

    def bind(self, values: Values, inputs: list[Array]) -> Callable[[], int]:
        """A call on these inputs; its outputs are in `outputs`, full of rubbish before, and what it
        updates, in a copy."""
        sizes = dict(zip(self.program.sizes, values, strict=True))
        arrays = dict(zip((t.name for t in self.program.inputs), inputs, strict=True))
        arrays |= {t.name: arrays[t.name].copy() for t in self.program.inouts}
        for t in self.program.outputs:
            shape = tuple(evaluate(e, sizes) for e in t.shape)
            arrays[t.name] = np.full(math.prod(shape) * t.dtype.bytes, 0x5A, np.uint8)
            arrays[t.name] = arrays[t.name].view(t.dtype.numpy).reshape(shape)
        views = {name: self.device.moved(x) for name, x in arrays.items()}
        compiled = self.kernel.compiled
        pointers = [views[name].pointer for name in compiled.arguments]
        numbers = [sizes[name] for name in compiled.sizes]
        results = (*self.program.outputs, *self.program.inouts)
        self.written = {t.name: views[t.name] for t in results}
        self.arrays = views  # alive while the call is
        place = next(iter(self.written.values())).place
        return lambda: self.kernel.run(pointers, numbers, self.threads, place)

    @property
    def outputs(self) -> dict[str, Array]:
        """Once the call has run. Raises what it met on a device."""
        self.device.synchronize()
        return {name: self.device.fetched(view) for name, view in self.written.items()}


@depth_checked
def evaluate_job(job: Job) -> Outcome:
    """Compile, check, time. A candidate that fails is an outcome with the reason."""
    require_alike(job.target)
    try:
        candidate = loaded(job.program, job.target, job.candidate, job.compile)
    except Exception as error:  # any failure of a candidate is a result
        return Outcome("failed", f"does not compile: {type(error).__name__}: {error}"[:500])
    fingerprint = fingerprint_of(candidate.compiled)
    if job.expected not in ("", fingerprint):
        reason = "the worker compiles other code than calls run: is it another version?"
        return Outcome("failed", reason, fingerprint)
    if fingerprint in job.known:
        return Outcome("same", "the code of another candidate", fingerprint)
    try:
        wrong = _wrong(job, candidate)
        if wrong:
            return Outcome("failed", wrong, fingerprint)
        return _timed(job, candidate, fingerprint)
    except Exception as error:
        return Outcome("failed", f"{type(error).__name__}: {error}"[:500], fingerprint)


def fingerprint_of(compiled: Compiled) -> str:
    return hexdigest(compiled.object_code + compiled.device_code)


def _timed(job: Job, candidate: LoadedCode, fingerprint: str) -> Outcome:
    rival = loaded(job.program, job.target, job.rival, Dense(job.context, job.served))
    ratios: list[tuple[Values, Ratio]] = []
    for values in job.sizes:
        wrong = wrong_at(job, candidate, values)
        if wrong:
            return Outcome("failed", wrong, fingerprint, tuple(ratios))
        inputs = inputs_at(job.program, values, job.seed)
        given = job.context, values, inputs, job.threads
        calls = [call_of(job.program, job.target, kernel, *given) for kernel in (candidate, rival)]
        ratios.append(
            (values, compare(calls[0], calls[1], job.seconds, job.precision, job.give_up))
        )
    is_raced = any(ratio.gave_up for _, ratio in ratios)
    return Outcome("raced" if is_raced else "measured", "", fingerprint, tuple(ratios))


@lru_cache(16)
def require_alike(target: Target) -> None:
    """ValueError: this machine, a cluster's say, is not like the one that is tuned for."""
    here = resolve_target(target.name)
    if here != target:
        ours, theirs = machine_key(here), machine_key(target)
        raise ValueError(f"the worker's machine is `{ours}`, tuning is for `{theirs}`")


# ---- what is right


def check_sizes(
    program: Program, sizes: tuple[Values, ...], context: Context = ()
) -> tuple[Values, ...]:
    """Small sizes that the program and the context allow, for the interpreter."""
    found: dict[Values, None] = {}
    for cap in _CAPS:
        for values in sizes:
            capped = tuple(min(v, cap + 2 * k) for k, v in enumerate(values))
            small = moved_into(context, program.sizes, capped)
            named = dict(zip(program.sizes, small, strict=True))
            allowed = all(holds(c.condition, named) for c in program.checks)
            if allowed and math.prod(small) <= INTERPRETED_POINTS:
                found[small] = None
    return tuple(found)[-_CHECKED:]


def _wrong(job: Job, kernel: LoadedCode) -> str:
    for values in check_sizes(job.program, job.sizes, job.context):
        wrong = wrong_at(job, kernel, values)
        if wrong:
            return wrong
    return ""


def wrong_at(job: Job, kernel: LoadedCode, values: Values, interpreted: bool = True) -> str:
    """How a result differs from what is expected; "" if it does not.

    interpreted: at small sizes from the interpreter's result, else from the default kernel's.
    """
    inputs = inputs_at(job.program, values, job.seed)
    runnable = RunnableKernel(job.program, kernel, job.threads, device_of(job.target))
    fault = runnable.bind(values, inputs)()
    if fault:
        return f"fault {kernel.compiled.faults[fault - 1].message} at {_named(job, values)}"
    given = job.program, job.target, values, job.seed, job.threads, interpreted, job.context
    expected = _expected(*given)
    sizes = dict(zip(job.program.sizes, values))
    outputs = runnable.outputs
    for name, array in outputs.items():
        wanted, moved = expected[name]
        if np.array_equal(array, wanted):  # mostly so, and quicker to see
            continue
        found = deviation(name, array, wanted, sizes, moved)
        if not found.is_good:
            where = _named(job, values)
            return f"wrong `{name}` at {where}: error {found.error:.3g} > {found.allowed:.3g}"
    return ""


def _named(job: Job, values: Values) -> str:
    return ",".join(f"{n}={v}" for n, v in zip(job.program.sizes, values)) or "no sizes"


@lru_cache(16)
def _expected(
    program: Program,
    target: Target,
    values: Values,
    seed: int,
    threads: int,
    interpreted: bool,
    context: Context,
) -> Mapping[str, tuple[Array, float]]:
    """Each output, and how far disturbed inputs move it."""
    inputs = inputs_at(program, values, seed)
    small = interpreted and math.prod(values) <= INTERPRETED_POINTS
    computed = _interpreted if small else _by_default
    exact = computed(program, target, values, inputs, threads, context)
    moved = computed(program, target, values, disturbed(inputs, seed), threads, context)
    return {name: (x, largest_difference(x, moved[name])) for name, x in exact.items()}


def _interpreted(
    program: Program,
    target: Target,
    values: Values,
    inputs: list[Array],
    threads: int,
    context: Context,
) -> Mapping[str, Array]:
    named = dict(zip((t.name for t in program.inputs), inputs, strict=True))
    return interpret(program, named, dict(zip(program.sizes, values)))


def _by_default(
    program: Program,
    target: Target,
    values: Values,
    inputs: list[Array],
    threads: int,
    context: Context,
) -> Mapping[str, Array]:
    """By the default kernel, which is checked against the interpreter at small sizes."""
    default = loaded(program, target, Options(), Dense(context))
    small = check_sizes(program, (values,), context)[-1:]
    _require_right(program, target, threads, small, context)
    runnable = RunnableKernel(program, default, threads, device_of(target))
    if runnable.bind(values, inputs)():
        raise ValueError("random inputs break a check of the program")
    return runnable.outputs


@lru_cache(64)
def _require_right(
    program: Program, target: Target, threads: int, sizes: tuple[Values, ...], context: Context
) -> None:
    """AssertionError: the default kernel differs from the interpreter."""
    default = loaded(program, target, Options(), Dense(context))
    job = Job(program, target, Options(), Options(), (), threads, context=context)
    for small in sizes:
        wrong = wrong_at(job, default, small)
        if wrong:
            raise AssertionError(f"the default kernel is {wrong}")


@lru_cache(16)
def inputs_at(program: Program, values: Values, seed: int) -> list[Array]:
    sizes = dict(zip(program.sizes, values, strict=True))
    return random_inputs([(t.dtype, t.shape) for t in program.inputs], sizes, seed)


def loaded(
    program: Program, target: Target, options: Options, compile: Compile, copy: int = 1
) -> LoadedCode:
    """The candidate's code, made once; each `copy` of it lies elsewhere in memory."""
    return _loaded(program, target, options, compile, copy)


@lru_cache(512)
def _loaded(
    program: Program, target: Target, options: Options, compile: Compile, _copy: int
) -> LoadedCode:
    error = plan_call(program, {}, frozenset(), target).fault_error
    return device_of(target).load(compile(program, target, options), error)
