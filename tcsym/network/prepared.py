# SPDX-License-Identifier: Apache-2.0
"""A plan at some sizes, for arguments of some layouts -> all that its calls need, made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from msgspec import Struct

from tcsym.dispatch.entries import is_read
from tcsym.index.values import evaluate
from tcsym.ir.compiled import Layout
from tcsym.network.allocate import Allocator, Scratch
from tcsym.network.made import MadeStep
from tcsym.network.plan import Plan
from tcsym.network.turns import tasks_of
from tcsym.options import Options
from tcsym.process.threads import address_of_choice, available_cores
from tcsym.runtime.arguments import Bound
from tcsym.runtime.device import LoadedCode
from tcsym.runtime.entering import argument_names, read_tensors
from tcsym.runtime.entry_image import type_words
from tcsym.runtime.formulas import packed_words
from tcsym.runtime.native import native
from tcsym.runtime.overlap import span_of
from tcsym.runtime.packing import packed
from tcsym.runtime.plan import Parameter
from tcsym.runtime.pool import process_pool
from tcsym.runtime.size_functions import Shape, shapes_of
from tcsym.runtime.variants import Variant, layout_of
from tcsym.runtime.view import CUDA, Library, Place, View
from tcsym.types import DType

_LIBRARIES = {"numpy": 1, "torch": 2}  # as tcsym/native/native.h counts them; others are 0, and
_DESCRIBED = 3  # on a device
MOST_CHOSEN = 64  # sizes of its own for which a step is kept as it was chosen
_LARGE_WORK = 32768  # product of sizes from which on calls release Python's lock


class Prepared(Struct, frozen=True):
    """chain: runs the kernels. inputs: that a call gives. memory: storages that are written, all of
    them in `span`, from the first byte to behind the last. outputs: of a call. state: what the next
    call takes for states.
    """

    chain: Any
    inputs: tuple[Parameter, ...]
    memory: tuple[View, ...]
    span: tuple[int, int]
    outputs: tuple[View, ...]
    state: Mapping[str, Any]


class _Choice(Struct, frozen=True):
    """What runs a step at some of its own sizes, whatever the others are.

    pointers: of the places of its arguments, behind which is what is `held` of constants. scratch:
    shared bytes, and private ones of a task.
    """

    kernel: LoadedCode
    pointers: tuple[int, ...]
    values: tuple[int, ...]
    held: tuple[int, ...]
    scratch: tuple[int, int]


class _Launch(Struct, frozen=True):
    """Of one step. places: for each argument of its code, an input's place or an address."""

    step: MadeStep
    chosen: _Choice
    places: tuple[tuple[int, int], ...]


class Preparation:
    """Makes `Prepared` values for one session. kept: inputs that are states -> outputs."""

    def __init__(
        self,
        plan: Plan,
        steps: Sequence[MadeStep],
        kept: Mapping[str, str],
        allocator: Allocator,
        scratch: Scratch,
        lock: Any,
        slow: Callable[..., Any],
    ) -> None:
        self.plan, self.steps, self.kept = plan, steps, kept
        self.allocator, self.scratch = allocator, scratch
        self._lock, self._slow = lock, slow
        self.position = {p.name: k for k, p in enumerate(plan.call.inputs)}
        self.held = [t for t in plan.tensors if t.storage is not None]
        shapes = [*(t.shape for t in self.held), tuple(s.bytes for s in plan.storages)]
        self._shapes = shapes_of(shapes, plan.call.sizes)
        self._held: dict[tuple[int, str], View] = {}
        self._chosen: dict[object, _Choice] = {}

    @property
    def held_bytes(self) -> int:
        """Of what kernels made of constants."""
        return sum([view.n_bytes for view in self._held.values()])

    def forget_held(self) -> None:
        """The constants are others."""
        self._held.clear()
        self._chosen.clear()

    def made(
        self, bound: Bound, library: Library, state: Mapping[str, Any], threads: int
    ) -> Prepared:
        """state: what the call takes for states, those that it updates too. library: of the
        results."""
        *shapes, byte_counts = self._shapes(*bound.sizes)
        if sum(byte_counts) >= 1 << 63:
            call = self.plan.call
            raise call.error("size", "sizes are too large together", call.program.span)
        device, place = self.plan.call.device, bound.place
        memory = self.allocator.storages(tuple(byte_counts), place)
        views = {name: bound.views[self.position[name]] for name in self.plan.program.constants}
        views |= {name: device.view_of(array) for name, array in state.items()}
        for t, shape in zip(self.held, shapes):
            assert t.storage is not None
            views[t.name] = device.part(memory[t.storage], 0, shape, t.dtype)
        inputs = tuple([p for p in self.plan.call.inputs if p.name not in views])
        given = [bound.views[self.position[p.name]] for p in inputs]
        where = {p.name: k for k, p in enumerate(inputs)}
        launches = [self._launch(step, bound, views, where, threads) for step in self.steps]
        self._make_room(launches, threads, place, len(inputs))
        outputs = tuple([views[name] for name in self.plan.call.output_names])
        after = {name: self._kept(state[name], views[out]) for name, out in self.kept.items()}
        copies = [
            (after[name].pointer, views[out].pointer, views[out].n_bytes)
            for name, out in self.kept.items()
        ]
        shown = [v.owner if library == "jax" else device.in_library(v, library) for v in outputs]
        results = packed(self.plan.call.output_names, tuple(shown))
        span = (
            min([v.pointer for v in memory], default=0),
            max([v.end for v in memory], default=0),
        )
        groups = self._groups(bound.sizes, threads)
        constants = [bound.views[self.position[name]] for name in self.plan.program.constants]
        heads = [len(inputs), len(launches), len(groups), len(copies), len(constants)]
        is_long = prod(bound.sizes) >= _LARGE_WORK
        if library == "torch":
            read_tensors()
        described = next((v.owner for v in given if v.place.type == CUDA and v.shape), None)
        code = _LIBRARIES.get(library, 0)
        if described is not None and not code and all(map(is_read, given)):
            code = _DESCRIBED
        heads += [code, *span, int(is_long), threads]
        words = [
            *heads,
            *[w for p, v in zip(inputs, given) for w in _input_words(p, v)],
            *[w for x in launches for w in _launch_words(x)],
            *[w for group in groups for w in group],
            *[w for copy in copies for w in copy],
            *[w for x in constants for w in span_of(x)],
        ]

        def failed(k: int, result: int) -> None:
            chosen = launches[k].chosen
            raise launches[k].step.error(chosen.kernel, result, chosen.scratch, threads)

        chain = native.Chain(
            packed_words(words),
            argument_names(tuple([p.name for p in inputs])),
            tuple([p.dtype.numpy for p in inputs]),
            results,
            address_of_choice(),
            self.scratch.launchers([x.chosen.kernel for x in launches]),
            process_pool().native,
            available_cores(),
            self._lock,
            self.scratch.cells,
            type(described[0] if isinstance(described, tuple) else described),
            (launches, memory, after, state, constants),
            failed,
            self._slow,
        )
        states = {name: view.owner for name, view in after.items()}
        return Prepared(chain, inputs, tuple(memory), span, outputs, states)

    def _kept(self, before: Any, output: View) -> View:
        """Where a state is kept: in the same memory, unless its shape changes."""
        device, view = self.plan.call.device, self.plan.call.device.view_of(before)
        assert output.dtype is not None
        if view.shape == output.shape:
            return view
        return device.temporary(output.shape, output.dtype, output.place)

    def _launch(
        self,
        step: MadeStep,
        bound: Bound,
        views: Mapping[str, View],
        place: Mapping[str, int],
        threads: int,
    ) -> _Launch:
        names = [t.name for t in (*step.step.program.inputs, *step.step.program.outputs)]
        shown = [views[n] if n in views else bound.views[self.position[n]] for n in names]
        own, layouts = step.sizes(bound.sizes), tuple([v.strides for v in shown])
        key = step.step.name, own, layouts, threads
        chosen = self._chosen.get(key)
        if chosen is None:
            if len(self._chosen) >= MOST_CHOSEN * len(self.steps):
                self._chosen.clear()
            chosen = self._choice(step, shown, own, threads, bound.place)
            self._chosen[key] = chosen
        known = [(-1, views[n].pointer) if n in views else (place[n], 0) for n in names]
        known += [(-1, pointer) for pointer in chosen.held]
        places = tuple([known[k] for k in chosen.pointers])
        return _Launch(step, chosen, places)

    def _choice(
        self,
        step: MadeStep,
        shown: Sequence[View],
        sizes: tuple[int, ...],
        threads: int,
        place: Place,
    ) -> _Choice:
        variant = step.variant(shown, sizes)
        held = self._made_of_constants(step, variant, shown, sizes, threads, place)
        values = variant.values(shown, (*sizes, 0))
        kernel = variant.kernel.ready(values)
        scratch = kernel.byte_counts(values, threads)
        return _Choice(kernel, variant.pointers, values, held, scratch)

    def _made_of_constants(
        self,
        step: MadeStep,
        variant: Variant,
        shown: Sequence[View],
        sizes: tuple[int, ...],
        threads: int,
        place: Place,
    ) -> tuple[int, ...]:
        """Where what this kernel holds of constants is; made now if no sizes before needed it."""
        values = variant.values(shown, (*sizes, 1))
        named = dict(zip(variant.compiled.sizes, values))
        pointers, is_new = list[int](), False
        for name, count in variant.compiled.held:
            n, key = evaluate(count, named), (id(variant), name)
            if n and key not in self._held:
                self._held[key], is_new = self.plan.call.device.block(n, place), True
            pointers.append(self._held[key].pointer if n else 0)
        if is_new:
            known = [*[v.pointer for v in shown], *pointers]
            result = variant.kernel.run(
                [known[k] for k in variant.pointers], values, threads, place
            )
            if result:
                raise step.call.fault_error(variant.compiled.faults[result - 1])
        return tuple(pointers)

    def _make_room(
        self, launches: Sequence[_Launch], threads: int, place: Place, n_inputs: int
    ) -> None:
        """Scratch memory for steps in turn, and for those that may run beside the first of one."""
        self.scratch.begin(is_exact=self.allocator.is_exact)
        for turn in self.plan.turns:
            for k, step in enumerate(turn):
                shared, private = launches[step].chosen.scratch
                self.scratch.require(0, shared, private * threads)
                if k and threads > 1:
                    self.scratch.require(k, shared, private)
        self.scratch.hold(place, n_inputs)

    def _groups(self, sizes: tuple[int, ...], threads: int) -> list[tuple[int, int, int, int]]:
        values = dict(zip(self.plan.call.sizes, sizes))
        grain = (self.plan.options or Options()).min_work_per_thread
        groups = []
        for turn in self.plan.turns:
            tasks, time = 1, 0
            if len(turn) > 1 and threads > 1:
                steps = [self.plan.steps[k] for k in turn]
                tasks, time = tasks_of(steps, values, threads, grain)
            groups.append((turn[0], len(turn), tasks, time))
        return groups


def _input_words(p: Parameter, view: View) -> tuple[int, ...]:
    return _words_of_input(p.dtype, p.inout, layout_of(view), view.shape, view.strides)


@lru_cache(1024)  # calls of other sizes mostly share some, as their weights
def _words_of_input(
    dtype: DType, inout: bool, layout: Layout, shape: Shape, strides: tuple[int, ...]
) -> tuple[int, ...]:
    """What the input must be to be served at once: as a view is, apart from its address."""
    steps = [s * (n - 1) for s, n in zip(strides, shape)]
    low, high = sum(min(0, s) for s in steps), sum(max(0, s) for s in steps) + dtype.bytes
    low, high = (low, high) if prod(shape) else (0, 0)
    return (len(shape), *type_words(dtype, layout), low, high, int(inout), *shape, *strides)


def _launch_words(x: _Launch) -> list[int]:
    chosen = x.chosen
    heads = [chosen.kernel.address, len(x.places), len(chosen.values), *chosen.scratch]
    return [*heads, *[w for place in x.places for w in place], *chosen.values]
