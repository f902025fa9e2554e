# SPDX-License-Identifier: Apache-2.0
"""Loaded code, inputs -> what `kernel(A, B)` does once it is steady: the call that tuning times.

The code's own time is not what a caller waits for: a result is allocated, arguments are checked, a
native entry is passed. For small sizes that is most of a call, and some options change it (scratch
memory, threads). Where sizes have options by regions, a call finds its region first; so it does
here. Where there is no native entry, a call passes through Python here as there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from msgspec import Struct

from tcsym.frontend.program import Program
from tcsym.frontend.sample import Array
from tcsym.index.expr import Condition
from tcsym.options import Options
from tcsym.process.threads import get_num_threads, set_num_threads
from tcsym.runtime.arguments import bind, match_arguments
from tcsym.runtime.arrays import result_object
from tcsym.runtime.device import LoadedCode, device_of
from tcsym.runtime.entry_image import all_dense, entry_image
from tcsym.runtime.packing import packed
from tcsym.runtime.plan import CallPlan, plan_call
from tcsym.runtime.results import match_outputs, prepare_outputs
from tcsym.runtime.stats import Counters
from tcsym.runtime.switch import Switch
from tcsym.runtime.switch_image import switch_image
from tcsym.runtime.variants import Variant, Variants
from tcsym.sizes.context import Context
from tcsym.sizes.dims import Dim
from tcsym.target.target import Target

Values = tuple[int, ...]


def call_of(
    program: Program,
    target: Target,
    kernel: LoadedCode,
    context: Context,
    values: Values,
    inputs: Sequence[Array],
    threads: int,
    regions: tuple[Condition, ...] = (),
) -> Callable[[], object]:
    """A call of these sizes on dense inputs, on as many threads as this process uses from now on.

    regions: that it finds its own among, if there are several. It returns the results; what it
    updates is a copy. Errors: those of a call.
    """
    if get_num_threads() != threads:
        set_num_threads(threads)
    entry = _entry(program, target, kernel, context, regions)
    inputs = [
        x.copy() if t.role == "inout" else x for t, x in zip(program.inputs, inputs, strict=True)
    ]
    device = device_of(target)
    if not device.waits:
        given = [result_object(device.moved(x)) if x.ndim else x[()] for x in inputs]
        call = call_on(entry, program, values, given)
        return Enqueued(call, device.synchronize)
    return call_on(entry, program, values, inputs)


class Enqueued(Struct, frozen=True):
    """A call that returns before it has run; `wait` returns once all of them have."""

    call: Callable[[], object]
    wait: Callable[[], None]

    def __call__(self) -> object:
        return self.call()


def call_on(
    entry: Callable[..., Any], program: Program, values: Values, inputs: Sequence[Any]
) -> Callable[[], object]:
    free = {n: v for n, v in zip(program.sizes, values, strict=True) if n in program.free_sizes}
    given, left = program.arguments(inputs, free)
    return partial(entry, *given, sizes=left) if left else partial(entry, *given)


@lru_cache(512)
def _entry(
    program: Program,
    target: Target,
    kernel: LoadedCode,
    context: Context,
    regions: tuple[Condition, ...],
) -> Callable[..., Any]:
    declared = {name: Dim(low, high, step) for name, low, high, step in context}
    plan = plan_call(program, declared, frozenset(), target)
    variants = Variants(plan, target, Options(), {}, Counters(), context)
    variant = variants.variant_of(variants.dense, kernel.compiled, kernel)
    through_python = partial(_call, plan, variant)
    where = variant.pointers, variant.slots, all_dense(plan)
    image = entry_image(plan, kernel.compiled.scratch, *where)

    def failed(fault: int) -> None:
        raise plan.fault_error(kernel.compiled.faults[fault - 1])

    entry = through_python if image is None else kernel.enter(image, through_python, failed)
    if len(regions) < 2 or image is None:
        return entry
    told_apart = switch_image(plan, regions[:-1])
    if told_apart is None:
        return through_python
    switch = Switch(told_apart, through_python)
    for k in range(len(regions)):
        switch.set_region(k, entry)
    return switch.function


def _call(plan: CallPlan, variant: Variant, /, *inputs: Any, sizes: Any = None) -> Any:
    """As `Serving.call`, of one variant."""
    bound = bind(plan, match_arguments(plan, inputs, {}), sizes)
    outputs = prepare_outputs(plan, bound, match_outputs(plan, None))
    views = (*bound.views, *outputs.views)
    fault = variant.run(views, bound.sizes, get_num_threads())
    if fault:
        raise plan.fault_error(variant.compiled.faults[fault - 1])
    return packed(plan.output_names, outputs.finished())
