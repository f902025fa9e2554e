# SPDX-License-Identifier: Apache-2.0
"""Calls that must be refused, with the kind of error that each must raise.

What is wrong is put into a call that was right, and was made before: native code serves it by then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from tcsym.errors import TCError
from tests.fuzz.model import Case, Input, Sizes
from tests.fuzz.modes import is_fixed
from tests.fuzz.updates import copies

Call = Callable[[], Any]
TRIED = 4  # of a program


def refused_wrongly(
    case: Case, kernel: Any, inputs: Mapping[str, Any], sizes: Sizes, want: Mapping[str, Any]
) -> tuple[str, str]:
    """What a wrong call raised in place of what it should; ('', '') if all is as it should be."""
    rng = random.Random(case.seed + 3)
    every = list(_wrong_calls(case, kernel, inputs, sizes, want))
    for what, kind, call in rng.sample(every, min(TRIED, len(every))):
        try:
            call()
            found = "results"
        except TCError as e:
            found = e.kind
        if found != kind:
            return f"{found} instead of {kind}", f"a call with {what}"
    return "", ""


def _wrong_calls(
    case: Case, kernel: Any, inputs: Mapping[str, Any], sizes: Sizes, want: Mapping[str, Any]
) -> Iterator[tuple[str, str, Call]]:
    """What is wrong, the kind of error, and the call."""

    kernel = getattr(kernel, "call", kernel)  # the one that updates

    def call(out: Any = None, **changed: Any) -> Call:
        given = {**copies(inputs, case), **changed}
        return lambda: kernel(**given, sizes=dict(sizes), out=out)

    yield "an unknown keyword", "call", call(no_such_name=1)
    yield from _wrong_sizes(case, sizes, call)
    for other in case.sizes if is_fixed(case) and not case.free_sizes else ():
        if other != dict(sizes):
            yield (
                f"other sizes {other}",
                "size",
                partial(kernel, **copies(case.arrays(other), case)),
            )
    for spec in case.inputs:
        name, x = spec.tensor.name, inputs[spec.tensor.name]
        if x.ndim:
            other = np.zeros(x.shape, np.int16 if x.dtype != np.int16 else np.float32)
            yield f"{name} of another type", "type", call(**{name: other})
            yield f"{name} as a list", "type", call(**{name: x.tolist()})
            yield f"{name} of another rank", "rank", call(**{name: x[None]})
        if spec.inout:
            yield from _not_updatable(case, spec, inputs, call)
        for axis in _known_axes(case, spec):
            yield f"{name} longer on axis {axis}", "size", call(**{name: _longer(x, axis)})
    own = {name: x for name, x in want.items() if name not in case.updated}
    outputs = {name: np.empty(x.shape, x.dtype) for name, x in own.items()}
    for name, x in outputs.items():
        if x.ndim and x.size:
            read_only = np.array(x)
            read_only.flags.writeable = False
            yield f"out {name} read-only", "immutable", call(_out(outputs, name, read_only))
            longer = np.empty((*x.shape[:-1], x.shape[-1] + 1), x.dtype)
            yield f"out {name} longer", "size", call(_out(outputs, name, longer))
            for spec in case.inputs:
                shared = _sharing(inputs[spec.tensor.name], x)
                if shared is not None:
                    given = {spec.tensor.name: shared[0]}
                    out = _out(outputs, name, shared[1])
                    yield f"out {name} in an input", "immutable", call(out, **given)


def _not_updatable(
    case: Case, spec: Input, inputs: Mapping[str, Any], call: Callable[..., Call]
) -> Iterator[tuple[str, str, Call]]:
    """Arrays that a call must not write."""
    name, x = spec.tensor.name, inputs[spec.tensor.name]
    read_only = np.array(x)
    read_only.flags.writeable = False
    yield f"{name} read-only", "immutable", call(**{name: read_only})
    if not x.ndim:
        yield f"{name} a number", "type", call(**{name: x[()]})
    for other in case.inputs:
        y = inputs[other.tensor.name]
        shared = _sharing(x, y) if other is not spec and y.ndim else None
        if shared is not None:
            shared[1][...] = y
            both = {name: shared[0], other.tensor.name: shared[1]}
            yield f"{name} in {other.tensor.name}", "immutable", call(**both)


def _wrong_sizes(case: Case, sizes: Sizes, call: Any) -> Iterator[tuple[str, str, Call]]:
    """Of size parameters."""
    for name in case.given:
        yield f"{name} as a float", "type", call(**{name: float(sizes[name])})
        yield f"{name} twice, with other values", "size", call(**{name: sizes[name] + 1})


def _out(outputs: Mapping[str, Any], name: str, x: Any) -> Any:
    given = tuple({**outputs, name: x}.values())
    return given if len(given) > 1 else given[0]


def _known_axes(case: Case, spec: Input) -> Iterator[int]:
    """Axes whose extents other dimensions, `sizes=` or the declaration tell."""
    every = [str(e) for i in case.inputs for e in i.tensor.shape]
    for axis, extent in enumerate(spec.tensor.shape):
        if extent.as_int() is not None or every.count(str(extent)) > 1:
            yield axis


def _longer(x: Any, axis: int) -> Any:
    return np.repeat(x, 2, axis) if x.shape[axis] else np.zeros(_grown(x.shape, axis), x.dtype)


def _grown(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])


def _sharing(x: Any, output: Any) -> tuple[Any, Any] | None:
    """An input and an output that share their last bytes, where both are aligned."""
    if not x.ndim or not x.size or not output.size:
        return None
    size = max(x.itemsize, output.itemsize)
    n = -(-(x.nbytes + output.nbytes) // size) * size
    memory = np.zeros(n + size, np.uint8)
    given = memory[: x.nbytes].view(x.dtype).reshape(x.shape)
    given[...] = x
    start = (x.nbytes - 1) // output.itemsize * output.itemsize
    shared = memory[start : start + output.nbytes].view(output.dtype).reshape(output.shape)
    return given, shared
