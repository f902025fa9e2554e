"""A kernel -> an operator of torch, `torch.ops.tcsym.<name>`, with all that torch asks of one.

Its name ends with a digest of what the kernel was defined from, so that graphs which torch keeps on
disk find the same operator in another process. Arguments are the inputs in order, then free sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from keyword import iskeyword
from typing import Any
from weakref import WeakKeyDictionary

import torch
from msgspec import Struct

from tcsym.errors import OptionError
from tcsym.operators.called import Called, operator_name
from tcsym.operators.shapes import result_shapes, shape_view
from tcsym.operators.torch.gradients import Recorder, recorded_function, run, transformed_function
from tcsym.operators.torch.symbols import TorchSymbols
from tcsym.runtime.packing import packed
from tcsym.runtime.torch_views import element_type
from tcsym.types import DType

_library = torch.library.Library("tcsym", "FRAGMENT")
_AUTOCAST = ("cpu", "cuda")


class Operator(Struct, frozen=True, eq=False):
    """packet: what graphs call; its `default` is the one operator. record: `apply` of the function
    that records a plain call. transform: the same for tensors that torch.func transforms."""

    kernel: Called
    packet: Any
    record: Any
    transform: Any


_of_kernel: WeakKeyDictionary[Called, Operator] = WeakKeyDictionary()
_of_name: dict[str, Operator] = {}


def operator_of(kernel: Called) -> Operator:
    """Registered when it is first asked for; equal kernels share one, which then stays."""
    found = _of_kernel.get(kernel)
    if found is None:
        name = operator_name(kernel)
        found = _of_name.get(name)
        if found is None:
            found = _of_name[name] = _registered(kernel, name)
        _of_kernel[kernel] = found
    return found


def _registered(kernel: Called, name: str) -> Operator:
    program = kernel.program
    recorder = Recorder(kernel)
    n_inputs = recorder.n_inputs
    dtypes = tuple([torch_type(t.dtype) for t in program.inputs])
    results = [torch_type(t.dtype) for t in program.outputs]

    def fake(*args: Any) -> Any:
        tensors = args[:n_inputs]
        sizes = dict(zip(program.free_sizes, args[n_inputs:]))
        views = [shape_view(tuple(x.shape), element_type(x.dtype, torch), x) for x in tensors]
        shapes = result_shapes(kernel._plan, views, sizes, TorchSymbols)
        device = next((x.device for x in tensors if x.dim()), None)
        device = device or next((x.device for x in tensors), None)
        made = [torch.empty(s, dtype=d, device=device) for s, d in zip(shapes, results)]
        return packed(kernel._plan.output_names, tuple(made)) if len(made) < 2 else tuple(made)

    def define(name: str) -> Any:
        _library.define(name + _schema(kernel), tags=_tags())
        _library.impl(
            name,
            lambda *args: run(kernel, n_inputs, args, program.free_sizes),
            "CompositeExplicitAutograd",
        )
        torch.library.register_fake(f"tcsym::{name}", fake, lib=_library)
        return getattr(torch.ops.tcsym, name)

    packet = define(name)
    updated = tuple([t.role == "inout" for t in program.inputs])
    for device in _AUTOCAST:
        cast = _autocast(packet.default, dtypes, updated, device)
        _library.impl(name, cast, f"Autocast{device.upper()}")
    if program.inouts:
        _library.impl(name, _unrecorded(kernel, define(f"{name}_unrecorded").default), "Autograd")
        return Operator(kernel, packet, _refusing(kernel), _refusing(kernel))
    qualified = f"tcsym::{name}"
    torch.library.register_autograd(
        qualified,
        recorder.backward,
        setup_context=lambda ctx, inputs, output: recorder.setup(ctx, inputs, output),
        lib=_library,
    )
    torch.library.register_vmap(
        qualified, lambda info, in_dims, *args: _batch(kernel, in_dims, args), lib=_library
    )
    record = recorded_function(kernel, recorder).apply
    transformed = transformed_function(kernel, recorder, lambda *given: _batch(kernel, *given))
    return Operator(kernel, packet, record, transformed.apply)


def _tags() -> tuple[Any, ...]:
    """Traced by torch.compile without danger; arguments may have any strides."""
    return torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout


def torch_type(dtype: DType) -> torch.dtype:
    made: torch.dtype = getattr(torch, dtype.value)
    return made


def _schema(kernel: Called) -> str:
    program = kernel.program
    given = []
    for k, t in enumerate(program.inputs):
        kind = f"Tensor(a{k}!)" if t.role == "inout" else "Tensor"
        given.append(f"{kind} {_plain(t.name)}")
    given += [f"SymInt {_plain(n)}" for n in program.free_sizes]
    results = ["Tensor"] * len(program.outputs)
    return f"({', '.join(given)}) -> ({', '.join(results)})"


def _plain(name: str) -> str:
    return f"{name}_" if iskeyword(name) else name


def _batch(kernel: Called, in_dims: Sequence[int | None], args: tuple[Any, ...]) -> Any:
    """All elements of a batch at once, by a kernel with one more index."""
    program = kernel.program
    names = [t.name for t in program.inputs]
    batched = [n for n, d in zip(names, in_dims) if d is not None]
    made = kernel.batched(batched)
    given = [x if d is None else x.movedim(d, 0) for x, d in zip(args, in_dims)]
    known = dict(zip(program.free_sizes, args[len(names) :]))
    sizes = {n: known[n] for n in made.program.free_sizes}
    arguments, left = made.program.arguments(given[: len(names)], sizes)
    results = made(*arguments, **({"sizes": left} if left else {}))
    pairs = zip(made.program.outputs, program.outputs)
    dims = [0 if len(b.shape) > len(o.shape) else None for b, o in pairs]
    return (results, dims[0]) if len(dims) == 1 else (tuple(results), tuple(dims))


def _refusing(kernel: Called) -> Any:
    """What stands for functions that torch would record or transform."""
    name = kernel.program.inouts[0].name

    def refused(*args: Any) -> Any:
        raise OptionError(
            f"{kernel.name} updates `{name}` in place, which torch cannot differentiate",
            hint="call it under `with torch.no_grad():`, or call `kernel.functional()`",
        )

    return refused


def _unrecorded(kernel: Called, overload: Any) -> Any:
    """The operator where no gradient is asked for. overload: of one without rules for autograd,
    for that of torch.library is for what updates nothing."""
    refused = _refusing(kernel)

    def run_plainly(*args: Any) -> Any:
        if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in args):
            refused()
        return overload(*args)

    return run_plainly


def _autocast(
    overload: Any, dtypes: tuple[torch.dtype, ...], updated: tuple[bool, ...], device: str
) -> Any:
    """The text says the types: where torch chooses them, floating tensors get those; not what is
    updated, of which a copy would be."""

    def cast(*args: Any) -> Any:
        tensors = [
            x.to(t) if t.is_floating_point and x.is_floating_point() and not u else x
            for x, t, u in zip(args, dtypes, updated)
        ]
        with torch.autocast(device, enabled=False):
            return overload(*tensors, *args[len(dtypes) :])

    return cast
