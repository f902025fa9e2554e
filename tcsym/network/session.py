"""Calls of a plan that reuse memory: a session owns an arena, and calls allocate nothing."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from msgspec import Struct

from tcsym.errors import OptionError, TargetError
from tcsym.ir.compiled import ARENA_LINE
from tcsym.network.made import MadeStep, made_steps
from tcsym.network.plan import Plan, require_within
from tcsym.process.threads import get_num_threads, require_threads
from tcsym.runtime.arguments import MISSING, Bound, bind, match_arguments
from tcsym.runtime.arrays import Array, note_written, numpy_view, result_object
from tcsym.runtime.overlap import overlap
from tcsym.runtime.packing import packed
from tcsym.runtime.plan import Parameter
from tcsym.runtime.results import original_of, require_updatable, result_library
from tcsym.runtime.size_functions import shapes_of
from tcsym.runtime.variants import Variant
from tcsym.runtime.view import HERE, Library, View
from tcsym.types import DType

KEPT_SIZES = 64  # choices of sizes whose views a session keeps
Sizes = tuple[int, ...]


class Allocator(Protocol):
    """Memory for the storages of a plan."""

    bytes: int  # that it holds now

    def storages(self, byte_counts: Sizes) -> list[Array]:
        """Bytes for each storage, at a line; those of the last call are given back."""


class Arena:
    """All storages at their offsets, as planned at the bounds."""

    def __init__(self, plan: Plan) -> None:
        assert plan.arena_bytes is not None
        self.bytes = plan.arena_bytes
        self._memory = _aligned(plan.arena_bytes)
        self._offsets = [s.offset or 0 for s in plan.storages]

    def storages(self, byte_counts: Sizes) -> list[Array]:
        return [self._memory[at : at + n] for at, n in zip(self._offsets, byte_counts)]


class Exact:
    """Each storage as large as the sizes of the call ask for."""

    def __init__(self) -> None:
        self.bytes = 0

    def storages(self, byte_counts: Sizes) -> list[Array]:
        self.bytes = sum(byte_counts)
        return [_aligned(n) for n in byte_counts]


def _aligned(n: int) -> Array:
    memory = np.empty(n + ARENA_LINE, np.uint8)
    start = -memory.ctypes.data % ARENA_LINE
    return memory[start : start + n]


class _Run(Struct, frozen=True):
    """Of one step. inputs: for each argument its place among the call's inputs; None for a planned
    tensor, whose address is in `planned`. sizes: as the code takes them.
    """

    step: MadeStep
    variant: Variant
    inputs: tuple[int | None, ...]
    planned: tuple[int, ...]
    sizes: Sizes

    def __call__(self, given: Sequence[int], threads: int) -> None:
        """Run. given: addresses of the inputs. Errors: what the kernel checks while it runs."""
        pairs = zip(self.inputs, self.planned)
        pointers = [address if k is None else given[k] for k, address in pairs]
        fault = self.variant.kernel.run(pointers, self.sizes, threads)
        if fault:
            raise self.step.error(self.variant, fault)


class _Prepared(Struct, frozen=True):
    """All that a call of some sizes and layouts needs. memory: storages that are written, all of
    them in `span`, from the first byte to behind the last. outputs: of a call.
    """

    runs: tuple[_Run, ...]
    memory: tuple[View, ...]
    span: tuple[int, int]
    outputs: tuple[View, ...]
    library: Library
    arrays: tuple[Any, ...]  # of the outputs, in a library that shares memory

    @property
    def results(self) -> tuple[Any, ...]:
        """What the call gives back, once it has run."""
        if self.library == "jax":  # whose arrays are copies
            return tuple([result_object(v._replace(library="jax")) for v in self.outputs])
        return self.arrays


class Session:
    """Calls of a program in memory of its own.

    Called like the kernel. Results are views of the session's memory: the next call overwrites
    them. Calls from several threads go one after the other; use a session for each thread.
    state: what goes from an output to an input of the next call, and stays here between calls; so
    does what calls update (`inout`) and do not give.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        memory: Literal["planned", "exact"] | None = None,
        state: Mapping[str, str] | None = None,
    ) -> None:
        if HERE.type not in plan.call.device.reads:
            raise TargetError(
                f"sessions on a {plan.call.device.name} are not there yet",
                hint='call the kernel itself, or define it with target="cpu"',
            )
        self.plan = plan
        self._allocator = _allocator(plan, memory)
        self._feeds = _checked_state(plan, state or {})
        self._states = (*self._feeds, *(t.name for t in plan.program.inouts))
        self._steps = made_steps(plan)
        self._place = {t.name: k for k, t in enumerate(plan.program.inputs)}
        held = [t for t in plan.tensors if t.storage is not None]
        self._held = {t.name: t for t in held}
        shapes = [*(t.shape for t in held), tuple(s.bytes for s in plan.storages)]
        self._shapes = shapes_of(shapes, plan.call.sizes)
        self._prepared: OrderedDict[object, _Prepared] = OrderedDict()
        self._state: dict[str, Array] = {}
        self._lock = threading.RLock()

    def __call__(
        self,
        /,
        *args: Any,
        sizes: Mapping[str, int] | None = None,
        threads: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run. Arguments, results and errors are those of the kernel.

        Errors also: SizeError for sizes beyond the bounds, before anything is written.
        """
        plan = self.plan.call
        with self._lock:
            given = match_arguments(plan, args, kwargs)
            for name in self._states:
                k = self._place[name]
                if given[k] is MISSING and name in self._state:
                    given[k] = self._state[name]
            first = self._first_states(given, sizes)
            given = [first.get(p.name, x) for p, x in zip(plan.inputs, given)]
            bound = bind(plan, given, sizes)
            require_within(self.plan, bound.sizes)
            pending = require_updatable(plan, bound) if plan.inouts else []
            n_threads = get_num_threads() if threads is None else require_threads(threads)
            prepared = self._prepare(bound)
            for k in plan.inouts:
                self._require_outside(plan.inputs[k], original_of(bound.views[k]), prepared)
            self._state |= {n: x for n, x in first.items() if n not in self._feeds}
            inputs = [self._apart(view, prepared) for view in bound.views]
            addresses = [view.pointer for view in inputs]
            for run in prepared.runs:
                run(addresses, n_threads)
            for to, source in pending:
                plan.device.copy(to, source)
            for k in plan.inouts:
                note_written(original_of(bound.views[k]).owner)
            self._keep_state(prepared)
            return packed(plan.output_names, prepared.results)

    @property
    def bytes(self) -> int:
        """Of its storages, as they are allocated now."""
        return self._allocator.bytes

    # ---- memory of some sizes

    def _apart(self, view: View, prepared: _Prepared) -> View:
        """An input; a copy of a result that is still in memory which this call writes."""
        low, high = prepared.span
        if view.dense and (view.pointer >= high or view.end <= low):
            return view
        if any(overlap(view, storage) for storage in prepared.memory):
            return self.plan.call.device.private_copy(view)
        return view

    def _require_outside(self, p: Parameter, view: View, prepared: _Prepared) -> None:
        """What a call updates is not in memory which it writes beside."""
        if any(overlap(view, storage) for storage in prepared.memory):
            message = f"`{p.name}` is updated in place, but is a result of this session"
            raise self.plan.call.error("immutable", message, p.span, "give a copy")

    def _prepare(self, bound: Bound) -> _Prepared:
        library = result_library(bound.views)
        layouts = tuple([v.strides for v in bound.views])
        key = bound.sizes, layouts, library
        found = self._prepared.get(key)
        if found is None:
            if not isinstance(self._allocator, Arena):
                self._prepared.clear()  # their memory is given back
            found = self._prepared[key] = self._made(bound, library)
            if len(self._prepared) > KEPT_SIZES:
                self._prepared.popitem(last=False)
        else:
            self._prepared.move_to_end(key)
        return found

    def _made(self, bound: Bound, library: Library) -> _Prepared:
        *shapes, byte_counts = self._shapes(*bound.sizes)
        memory = self._allocator.storages(tuple(byte_counts))
        views: dict[str, View] = {}
        for t, shape in zip(self._held.values(), shapes):
            assert t.storage is not None
            n = int(np.prod(shape, dtype=np.int64)) * t.dtype.bytes
            array = memory[t.storage][:n].view(t.dtype.numpy).reshape(shape)
            views[t.name] = numpy_view(array)
        runs = []
        for step in self._steps:
            arguments = (*step.step.program.inputs, *step.step.program.outputs)
            places = tuple(
                [views[t.name] if t.name in views else self._place[t.name] for t in arguments]
            )
            own = step.sizes(bound.sizes)
            shown = [bound.views[x] if isinstance(x, int) else x for x in places]
            variant = step.variant(shown, own)
            used = [places[k] for k in variant.pointers]
            inputs = tuple([x if isinstance(x, int) else None for x in used])
            planned = tuple([0 if isinstance(x, int) else x.pointer for x in used])
            runs.append(_Run(step, variant, inputs, planned, variant.values(shown, own)))
        outputs = tuple([views[name] for name in self.plan.call.output_names])
        arrays = () if library == "jax" else tuple([_in_library(v, library) for v in outputs])
        written = tuple([numpy_view(storage) for storage in memory])
        span = (
            min([v.pointer for v in written], default=0),
            max([v.end for v in written], default=0),
        )
        return _Prepared(tuple(runs), written, span, outputs, library, arrays)

    # ---- state

    def _first_states(self, given: list[object], sizes: Any) -> dict[str, Array]:
        """Zeros for states that no call has set, where other arguments tell their sizes."""
        missing = [n for n in self._states if given[self._place[n]] is MISSING]
        if not missing:
            return {}
        known: dict[str, int] = {}
        for p, x in zip(self.plan.call.inputs, given):
            shape = getattr(x, "shape", ())
            known |= {d: n for d, n in zip(p.dimensions, shape) if isinstance(d, str)}
        known |= dict(sizes or {})
        found: dict[str, Array] = {}
        for name in missing:
            p = self.plan.call.inputs[self._place[name]]
            extents = [d if isinstance(d, int) else known.get(d) for d in p.dimensions]
            if None not in extents:
                found[name] = np.zeros([n or 0 for n in extents], p.dtype.numpy)
        return found

    def _keep_state(self, prepared: _Prepared) -> None:
        for name, output in self._feeds.items():
            array = prepared.outputs[self.plan.call.output_names.index(output)].owner
            kept = self._state.get(name)
            if kept is None or kept.shape != array.shape:
                self._state[name] = array.copy()
            else:
                np.copyto(kept, array)

    @property
    def state(self) -> dict[str, Array]:
        """What the next call takes for inputs that are states, as copies."""
        with self._lock:
            return {name: array.copy() for name, array in self._state.items()}

    @state.setter
    def state(self, values: Mapping[str, Any]) -> None:
        for name in values:
            if name not in self._states:
                hint = f"states are {', '.join(self._states) or 'none'}"
                raise OptionError(f"`{name}` is no state of this session", hint=hint)
        with self._lock:
            self._state = {name: np.array(x) for name, x in values.items()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state, in numpy's format of several arrays."""
        with Path(path).open("wb") as file:
            np.savez(file, **self.state)  # type: ignore[arg-type]

    def load(self, path: str | PathLike[str]) -> None:
        """Set the state to what was saved. Errors: OptionError if it is that of another session."""
        with np.load(Path(path)) as found:
            self.state = {name: found[name] for name in found.files}


def _in_library(view: View, library: Library) -> Any:
    if library != "torch":
        return view.owner
    torch = sys.modules["torch"]
    if view.dtype is DType.BFLOAT16:  # numpy's is unknown to torch
        return torch.from_numpy(view.owner.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(view.owner)


def _allocator(plan: Plan, memory: str | None) -> Allocator:
    if memory not in (None, "planned", "exact"):
        raise OptionError(f"`memory` is {memory!r}", hint='use "planned" or "exact"')
    if memory == "exact" or (memory is None and plan.arena_bytes is None):
        return Exact()
    if plan.arena_bytes is None:
        missing = [n for n in plan.call.sizes if n not in plan.bounds]
        raise OptionError(
            f"memory of {plan.program.name} cannot be planned: {', '.join(missing)} have no bound",
            hint='give `plan(bounds={"N": 128, ...})`, or use memory="exact"',
        )
    return Arena(plan)


def _checked_state(plan: Plan, state: Mapping[str, str]) -> dict[str, str]:
    inputs = {t.name: t for t in plan.program.inputs}
    outputs = {t.name: t for t in plan.program.outputs}
    for name, source in state.items():
        if name not in inputs or source not in outputs:
            what, known = (name, inputs) if name not in inputs else (source, outputs)
            kind = "input" if name not in inputs else "output"
            hint = f"{kind}s are {', '.join(known)}"
            raise OptionError(f"`state` has `{what}`, which is no {kind}", hint=hint)
        a, b = inputs[name], outputs[source]
        if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
            raise OptionError(f"`{source}` cannot become `{name}`: they differ in type or rank")
    return dict(state)
