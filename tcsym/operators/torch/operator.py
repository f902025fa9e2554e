# SPDX-License-Identifier: Apache-2.0
"""A kernel -> an operator of torch, `torch.ops.tcsym.<name>`, with all that torch asks of one.

Its name ends with a digest of what the kernel was defined from, so that graphs which torch keeps on
disk find the same operator in another process. Arguments are the inputs in order, then free sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from typing import Any
from weakref import WeakKeyDictionary

import torch
from msgspec import Struct

from tcsym.errors import OptionError
from tcsym.operators.called import Called, operator_name
from tcsym.operators.shapes import result_shapes, shape_view
from tcsym.operators.torch.gradients import Keeping, Recorder, run
from tcsym.operators.torch.symbols import TorchSymbols
from tcsym.runtime.torch_views import element_type, thread
from tcsym.types import DType

_library = torch.library.Library("tcsym", "FRAGMENT")
_AUTOCAST = ("cpu", "cuda")


class Operator(Struct, frozen=True, eq=False):
    """packet: what graphs call; its `default` is the one operator. record: a plain call that is
    recorded; recorded: what does so where all arguments are tensors, by which need a gradient.
    transform: the call for tensors that torch.func batches or moves; differentiate: for those that
    it differentiates backwards."""

    kernel: Called
    packet: Any
    record: Any
    recorded: Mapping[tuple[bool | None, ...], Callable[..., Any]]
    transform: Any
    differentiate: Any


_of_kernel: WeakKeyDictionary[Called, Operator] = WeakKeyDictionary()
_of_name: dict[str, Operator] = {}
_keeping: dict[str, tuple[str, int]] = {}  # names, and of which operators with how many results


def operator_of(kernel: Called) -> Operator:
    """Registered when it is first asked for; equal kernels share one, which then stays."""
    found = _of_kernel.get(kernel)
    if found is None:
        name = operator_name(kernel)
        found = _of_name.get(name)
        if found is None:
            found = _of_name[name] = _registered(kernel, name)
        _of_kernel[kernel] = found
        kernel._recorded = found.recorded
    return found


def keeping_operator(kernel: Called, needs: tuple[bool, ...]) -> tuple[str, int]:
    """Name of the operator that graphs call where these inputs need a gradient, with how many
    results: behind the kernel's own it may have some that the gradient takes. Errors:
    DerivativeError."""
    plain = operator_name(kernel)
    name = f"{plain}_keeping_{''.join('01'[need] for need in needs)}"
    if name not in _keeping:
        keeping = Keeping(kernel, saving=True, needs=needs)
        if keeping.called is kernel:
            operator_of(kernel)
            _keeping[name] = plain, keeping.n_outputs
        else:
            _keeping[name] = name, _registered_keeping(keeping, name)
    return _keeping[name]


def _registered_keeping(keeping: Keeping, name: str) -> int:
    called, n = keeping.called, keeping.n_inputs
    n_results = len(called.program.outputs)

    def fake(*args: Any) -> tuple[Any, ...]:
        _without_data(keeping.kernel, args[:n], args[n:])  # errors in words of its text
        return _without_data(called, args[:n], keeping.sizes(args)[1])

    def batch(info: Any, in_dims: Sequence[int | None], *args: Any) -> Any:
        return _batch(called, in_dims, keeping.of_batch(in_dims, args))

    _define(name, keeping.kernel, n_results, keeping.forward, fake)
    _differentiate(name, keeping.setup, keeping.backward, batch)
    return n_results


def _registered(kernel: Called, name: str) -> Operator:
    program = kernel.program
    recorder = Recorder(kernel)
    n = recorder.n_inputs
    dtypes = tuple([torch_type(t.dtype) for t in program.inputs])

    def fake(*args: Any) -> Any:
        return _single(_without_data(kernel, args[:n], args[n:]))

    def run_plainly(*args: Any) -> Any:
        return run(kernel, n, args, program.free_sizes)

    def define(name: str) -> Any:
        return _define(name, kernel, len(program.outputs), run_plainly, fake)

    packet = define(name)
    updated = tuple([t.role == "inout" for t in program.inputs])
    for device in _AUTOCAST:
        cast = _autocast(packet.default, dtypes, updated, device)
        _library.impl(name, cast, f"Autocast{device.upper()}")
    if program.inouts:
        _library.impl(name, _unrecorded(kernel, define(f"{name}_unrecorded").default), "Autograd")
        refused = _refusing(kernel)
        return Operator(kernel, packet, refused, {}, refused, refused)

    def batch(info: Any, in_dims: Sequence[int | None], *args: Any) -> Any:
        results, dims = _batch(kernel, in_dims, args)
        return _single(results), _single(dims)

    _differentiate(name, recorder.setup, recorder.backward, batch)
    return Operator(
        kernel,
        packet,
        recorder.record,
        {} if program.free_sizes else recorder.recorded,
        _transform(Keeping(kernel, saving=False)),
        _transform(Keeping(kernel, saving=True)),
    )


def _define(name: str, kernel: Called, n_results: int, run: Any, fake: Any) -> Any:
    """The operator of this name, with the arguments of `kernel`."""
    _library.define(name + _schema(kernel, n_results), tags=_tags())
    _library.impl(name, _below(run), "CompositeExplicitAutograd")
    torch.library.register_fake(f"tcsym::{name}", fake, lib=_library)
    return getattr(torch.ops.tcsym, name)


def _below(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, of which torch has no more to know."""

    def inner(*args: Any) -> Any:
        before, thread.is_below = thread.is_below, True
        try:
            return run(*args)
        finally:
            thread.is_below = before

    return inner


def _differentiate(name: str, setup: Any, backward: Any, batch: Any) -> None:
    qualified = f"tcsym::{name}"
    torch.library.register_autograd(
        qualified,
        backward,
        setup_context=lambda ctx, inputs, output: setup(ctx, inputs, output),
        lib=_library,
    )
    torch.library.register_vmap(qualified, batch, lib=_library)


def _transform(keeping: Keeping) -> Callable[..., Any]:
    """Results of arguments in order, of tensors that torch.func knows."""
    apply = keeping.function(_batch).apply
    return lambda *args: _single(apply(*args)[: keeping.n_outputs])


def _single(results: Sequence[Any]) -> Any:
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def _without_data(kernel: Called, tensors: Sequence[Any], sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The results as torch fakes them."""
    program = kernel.program
    views = [shape_view(tuple(x.shape), element_type(x.dtype, torch), x, "torch") for x in tensors]
    given = dict(zip(program.free_sizes, sizes))
    shapes = result_shapes(kernel._plan, views, given, TorchSymbols)
    device = next((x.device for x in tensors if x.dim()), None)
    device = device or next((x.device for x in tensors), None)
    types = [torch_type(t.dtype) for t in program.outputs]
    return tuple([torch.empty(s, dtype=d, device=device) for s, d in zip(shapes, types)])


def _tags() -> tuple[Any, ...]:
    """Traced by torch.compile without danger; arguments may have any strides."""
    return torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout


def torch_type(dtype: DType) -> torch.dtype:
    made: torch.dtype = getattr(torch, dtype.value)
    return made


def _schema(kernel: Called, n_results: int) -> str:
    program = kernel.program
    given = []
    for k, t in enumerate(program.inputs):
        kind = f"Tensor(a{k}!)" if t.role == "inout" else "Tensor"
        given.append(f"{kind} {_plain(t.name)}")
    given += [f"SymInt {_plain(n)}" for n in program.free_sizes]
    results = ["Tensor"] * n_results
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
    dims = tuple([0 if len(b.shape) > len(o.shape) else None for b, o in pairs])
    return (tuple(results) if len(dims) > 1 else (results,)), dims


def _refusing(kernel: Called) -> Any:
    """What stands for functions that torch would record or transform."""
    name = kernel.program.inouts[0].name

    def refused(*args: Any) -> Any:
        raise OptionError(
            f"{kernel.name} updates `{name}` in place, which torch cannot differentiate or batch",
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
