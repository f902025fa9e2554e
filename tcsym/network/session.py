# SPDX-License-Identifier: Apache-2.0
"""Calls of a plan that reuse memory: a session owns it, and calls allocate nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tcsym.errors import OptionError
from tcsym.network.allocate import DeviceScratch, Scratch, allocator_of
from tcsym.network.calls import constants_call, free_call, known_call, require_within
from tcsym.network.made import made_steps
from tcsym.network.plan import Plan
from tcsym.network.prepared import Preparation, Prepared
from tcsym.network.states import checked_feeds, read_states, require_state
from tcsym.process.config import SYNC
from tcsym.process.threads import get_num_threads, require_threads
from tcsym.runtime.arguments import MISSING, Bound, bind, match_arguments
from tcsym.runtime.arrays import Array, note_written, numpy_array, numpy_view
from tcsym.runtime.native import HAS_ENTRIES
from tcsym.runtime.overlap import overlap
from tcsym.runtime.packing import packed
from tcsym.runtime.plan import GivenSize, Parameter
from tcsym.runtime.processor import known_processor
from tcsym.runtime.results import original_of, require_updatable, result_library
from tcsym.runtime.scalars import is_scalar, scalar_array
from tcsym.runtime.switch import Switch
from tcsym.runtime.switch_image import switch_image
from tcsym.runtime.view import ANY_STREAM, Library, Place, Unusable, View
from tcsym.sizes.dims import Dim
from tcsym.sizes.values import size_value
from tcsym.target.names import resolve_target
from tcsym.target.target import Target

KEPT_SIZES = 64  # choices of sizes whose views a session keeps


class Session:
    """Calls of a program in memory of its own.

    Called like the kernel. Results are views of the session's memory: the next call overwrites
    them. Calls from several threads go one after the other; use a session for each thread.
    state: what goes from an output to an input of the next call, and stays here between calls; so
    does what calls update (`inout`) and do not give.
    On a device the memory is that device's; calls there follow each other, on whatever stream.
    constants: inputs that calls do not give; `bind` says what they are, and that they changed.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        memory: Literal["planned", "exact"] | None = None,
        state: Mapping[str, str] | None = None,
        constants: Mapping[str, object] | None = None,
    ) -> None:
        self.plan, self._device, target = plan, plan.call.device, plan.target
        if not isinstance(target, Target):
            target = resolve_target(target, known_processor())
        self._device.require(target)
        self._feeds = checked_feeds(plan, state or {})
        self._updates = tuple([t.name for t in plan.program.inouts])
        self._states = (*self._feeds, *self._updates)
        self._lock = threading.RLock()
        self._allocator = allocator_of(plan, memory)
        count, is_here = max([len(turn) for turn in plan.turns], default=1), self._device.waits
        self._scratch = Scratch(count) if is_here else DeviceScratch(self._device)
        self._number: int | None = 0 if is_here else None  # of the device
        shared = self._allocator, self._scratch, self._lock, self._serve
        self._preparation = Preparation(plan, made_steps(plan), self._feeds, *shared)
        self._prepared: OrderedDict[Any, Prepared] = OrderedDict()
        self._state: dict[str, Any] = {}
        self._constants: dict[str, Any] = {}
        self._held: dict[str, Any] = {}
        self._call = self._whole = plan.call
        if plan.constants:
            self.bind(**(constants or {}))
        else:
            self._begin()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a session has memory of its own: pickle its kernel, and plan there again")

    def bind(self, /, **constants: object) -> None:
        """Say what constants are from now on: those that are given, or have changed.

        What follows from constants alone is computed now, and what kernels make of them by the next
        calls. Their memory stays the caller's, and is not to be written until they are bound again.
        Errors: OptionError for what is no constant of this session; else those of a call.
        """
        names = self.plan.constants
        for name in constants:
            if name not in names:
                hint = f"constants are {', '.join(names) or 'none'}"
                raise OptionError(f"`{name}` is no constant of this session", hint=hint)
        with self._lock:
            given: dict[str, object] = {**self._constants, **constants}
            header = constants_call(self.plan)
            bound = bind(header, [given.get(p.name, MISSING) for p in header.parameters], None)
            require_within(self.plan, header, bound.sizes)
            known: dict[str, Dim | int] = {
                n: v for n, v in zip(header.sizes, bound.sizes) if v is not None
            }
            if any(v.shape for v in bound.views):
                self._require_number(bound.place)
            self._scratch.enter(bound.place)
            inputs = {
                p.name: self._outside(v, given[p.name]) for p, v in zip(header.inputs, bound.views)
            }
            if self.plan.binding is not None:
                made = self.plan.binding.session(memory="exact")(**inputs)
                results = made if isinstance(made, tuple) else (made,)
                self._held = {n: self._copied(x) for n, x in zip(self.plan.held, results)}
            self._constants, self._call = inputs, free_call(self.plan, known)
            self._whole = known_call(self.plan, known)
            self._forget()
            self._preparation.forget_held()
            self._begin()

    def _begin(self) -> None:
        """What calls enter, before any was made."""
        self._place = {p.name: k for k, p in enumerate(self._call.parameters)}
        is_plain = not (self._states or self._call.given_sizes)
        image = switch_image(self._call) if is_plain else None
        self._switch = Switch(image, self._serve) if image is not None else None
        self._enter: Callable[..., Any] = self._switch.function if self._switch else self._serve

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run. Arguments, results and errors are those of the kernel, but for `out=`.

        Errors also: SizeError for sizes beyond the bounds, before anything is written.
        """
        return self._enter(*args, **kwargs)

    def _serve(
        self,
        /,
        *args: Any,
        sizes: Mapping[str, int] | None = None,
        threads: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Any call, by Python; later ones like it enter native code."""
        plan = self._whole
        with self._lock:
            given = match_arguments(self._call, args, kwargs)
            number = self._number if self._number is not None else self._number_of(given)
            for name in self._states:
                k = self._place[name]
                if given[k] is MISSING and name in self._state:
                    given[k] = self._state[name] = self._there(self._state[name], number)
            first = self._first_states(given, sizes, number)
            named = {p.name: x for p, x in zip(self._call.parameters, given)} | first
            known = {**named, **self._constants, **self._held}
            kept = self._state, self._constants, self._held, first
            own = {id(x) for arrays in kept for x in arrays.values()}
            arguments = [known[p.name] for p in plan.parameters]
            bound = bind(plan, arguments, sizes, lambda x: self._view_of(x, id(x) in own))
            require_within(self.plan, plan, bound.sizes)
            self._require_number(bound.place)
            self._scratch.enter(bound.place)
            pending = require_updatable(plan, bound) if plan.inouts else []
            n_threads = get_num_threads() if threads is None else require_threads(threads)
            for name in self._feeds:
                self._set_state(name, bound.views[self._preparation.position[name]])
            library = result_library(bound.views)
            updated = {n: first.get(n, self._state.get(n)) for n in self._updates}
            held = {n: x for n, x in updated.items() if x is not None and x is known[n]}
            prepared = self._prepare(bound, library, n_threads, held)
            for k in plan.inouts:
                self._require_outside(plan.inputs[k], original_of(bound.views[k]), prepared)
            self._state |= {n: x for n, x in first.items() if n not in self._feeds}
            views = [bound.views[self._preparation.position[p.name]] for p in prepared.inputs]
            inputs = [self._apart(view, prepared) for view in views]
            results = prepared.chain.run(tuple([view.pointer for view in inputs]), n_threads)
            if SYNC.read():
                self._device.synchronize()
            for to, source in pending:
                plan.device.copy(to, source)
            for k in plan.inouts:
                note_written(original_of(bound.views[k]).owner)
            self._state |= prepared.state
            if library != "jax":
                return results
            copies = [self._device.in_library(v, "jax") for v in prepared.outputs]
            return packed(plan.output_names, tuple(copies))

    @property
    def bytes(self) -> int:
        """That it holds now: storages, scratch memory of its kernels, and what follows from
        constants."""
        held = sum([int(x.nbytes) for x in self._held.values()])
        return self._allocator.bytes + self._scratch.bytes + held + self._preparation.held_bytes

    # ---- memory of some sizes

    def _apart(self, view: View, prepared: Prepared) -> View:
        """An input; a copy of a result that is still in memory which this call writes."""
        low, high = prepared.span
        if view.dense and (view.pointer >= high or view.end <= low):
            return view
        if any(overlap(view, storage) for storage in prepared.memory):
            return self._device.private_copy(view)
        return view

    def _outside(self, view: View, given: object) -> Any:
        """A constant; a copy of a result in memory of this session, which its calls write."""
        memory = [storage for x in self._prepared.values() for storage in x.memory]
        if any(overlap(view, storage) for storage in memory):
            return self._device.private_copy(view).owner
        return numpy_array(view) if self._device.waits else given

    def _copied(self, x: Any) -> Any:
        """An array of the session with the same elements; what calls do then comes after it."""
        view = self._device.view_of(x)
        if view.place.stream == ANY_STREAM:
            view = view._replace(place=view.place._replace(stream=0))
        self._scratch.enter(view.place)
        return self._device.private_copy(view).owner

    # ---- which device it is on: that of the first call

    def _view_of(self, x: object, is_own: bool) -> View:
        """What a call of this session put there is ready for the next: on any stream."""
        view = self._device.view_of(x)
        if self._device.waits or not is_own:
            return view
        return view._replace(place=view.place._replace(stream=ANY_STREAM))

    def _number_of(self, given: Sequence[object]) -> int:
        for x in given:
            with suppress(Unusable):
                place = self._device.view_of(x).place
                if place.type in self._device.reads:
                    return place.number
        return 0

    def _there(self, x: Any, number: int) -> Any:
        """A state that was set on the host."""
        is_here = isinstance(x, np.ndarray) and not self._device.waits
        return self._device.moved(x, number).owner if is_here else x

    def _require_number(self, place: Place) -> None:
        if self._number not in (None, place.number):
            message = f"is called on {place.name}, but has its memory on cuda:{self._number}"
            hint = "use a session for each device"
            raise self.plan.call.error("device", message, self.plan.program.span, hint)
        self._number = place.number

    def _require_outside(self, p: Parameter, view: View, prepared: Prepared) -> None:
        """What a call updates is not in memory which it writes beside."""
        if any(overlap(view, storage) for storage in prepared.memory):
            message = f"`{p.name}` is updated in place, but is a result of this session"
            raise self.plan.call.error("immutable", message, p.span, "give a copy")

    def _prepare(
        self, bound: Bound, library: Library, threads: int, held: Mapping[str, Any]
    ) -> Prepared:
        """held: what calls update, and find here."""
        layouts = tuple([v.strides for v in bound.views])
        state = {**{name: self._state[name] for name in self._feeds}, **held}
        states = tuple([(n, self._device.view_of(x).pointer) for n, x in state.items()])
        kinds = tuple([type(v.owner) for v in bound.views]) if library == "dlpack" else library
        key = bound.sizes, layouts, kinds, threads, states
        found = self._prepared.get(key)
        if found is None:
            if self._allocator.is_exact:
                self._forget()  # their memory is given back
            found = self._preparation.made(bound, library, state, threads)
            self._prepared[key] = found
            if len(self._prepared) > KEPT_SIZES:
                (sizes, *_), _ = self._prepared.popitem(last=False)
                if self._switch:
                    self._switch.remove(sizes)
        else:
            self._prepared.move_to_end(key)
        if HAS_ENTRIES and self._is_steady(found):
            if self._switch:
                self._switch.put(bound.sizes, found.chain)
            else:
                self._enter = found.chain
        return found

    def _is_steady(self, prepared: Prepared) -> bool:
        """States stay where they are, so that the next call finds them there."""
        if SYNC.read() and not self._device.waits:
            return False
        return not self.plan.call.given_sizes and all(
            prepared.state[name] is self._state[name] for name in self._feeds
        )

    def _forget(self) -> None:
        for sizes, *_ in self._prepared:
            if self._switch:
                self._switch.remove(sizes)
            else:
                self._enter = self._serve
        self._prepared.clear()

    # ---- state

    def _first_states(self, given: list[object], sizes: Any, where: int) -> dict[str, Any]:
        """Zeros for states that no call has set, where other arguments tell their sizes."""
        missing = [n for n in self._states if given[self._place[n]] is MISSING]
        if not missing:
            return {}
        known = {n: v for n, v in zip(self._call.sizes, self._call.initial) if v is not None}
        for p, x in zip(self._call.parameters, given):
            number = size_value(x)
            if isinstance(p, GivenSize):
                known |= {p.name: number} if number is not None else {}
                continue
            known |= {d: n for d, n in zip(p.dimensions, self._shape(x)) if isinstance(d, str)}
        known |= dict(sizes or {})
        found: dict[str, Any] = {}
        for name in missing:
            p = self._parameter(name)
            extents = [d if isinstance(d, int) else known.get(d) for d in p.dimensions]
            if None not in extents:
                zeros = np.zeros([n or 0 for n in extents], p.dtype.numpy)
                found[name] = self._there(zeros, where)
        return found

    def _shape(self, x: object) -> tuple[int, ...]:
        with suppress(Unusable):
            return tuple(getattr(x, "shape", None) or self._device.view_of(x).shape)
        return ()

    def _set_state(self, name: str, view: View) -> None:
        """What this call takes for a state; if that is new, it is copied."""
        kept = self._state.get(name)
        if kept is not None and view.owner is kept:
            return
        if kept is None or kept.shape != view.shape:
            self._state[name] = self._device.private_copy(view).owner
        else:
            to = self._device.view_of(kept)._replace(place=view.place)
            self._device.copy(to, view)

    @property
    def state(self) -> dict[str, Array]:
        """What the next call takes for inputs that are states, as copies in numpy's arrays."""
        with self._lock:
            return {name: self._fetched(x) for name, x in self._state.items()}

    @state.setter
    def state(self, values: Mapping[str, Any]) -> None:
        for name in values:
            if name not in self._states:
                hint = f"states are {', '.join(self._states) or 'none'}"
                raise OptionError(f"`{name}` is no state of this session", hint=hint)
        made = {name: self._set(self._parameter(name), x) for name, x in values.items()}
        known = {n: v for n, v in zip(self._call.sizes, self._call.initial) if v is not None}
        for name, x in made.items():
            view = numpy_view(x) if isinstance(x, np.ndarray) else self._device.view_of(x)
            require_state(self._parameter(name), view, known)
        with self._lock:
            self._enter = self._switch.function if self._switch else self._serve
            self._state = made

    def _parameter(self, name: str) -> Parameter:
        p = self._call.parameters[self._place[name]]
        assert not isinstance(p, GivenSize)
        return p

    def _set(self, p: Parameter, x: Any) -> Any:
        number = scalar_array(x, p.dtype) if is_scalar(x) and p.rank == 0 else None
        if number is not None:
            return number
        protocols = "__dlpack_device__", "__cuda_array_interface__"
        if isinstance(x, np.ndarray) or not any(hasattr(x, name) for name in protocols):
            return np.array(x, order="C")
        return self._copied(x)

    def _fetched(self, x: Any) -> Array:
        if isinstance(x, np.ndarray):
            return x.copy()
        return self._device.fetched(self._device.view_of(x))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state, in numpy's format of several arrays."""
        with Path(path).open("wb") as file:
            np.savez(file, **self.state)  # type: ignore[arg-type]

    def load(self, path: str | PathLike[str]) -> None:
        """Set the state to what was saved. Errors: OptionError if it is that of another session, of
        other types or shapes, or if the file cannot be read."""
        types = {name: self._parameter(name).dtype for name in self._states}
        self.state = read_states(path, types)
