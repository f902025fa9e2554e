# SPDX-License-Identifier: Apache-2.0
"""What serves the calls of one def: its program, how a call is checked, its versions.

A call binds its arguments (`runtime.arguments`), prepares outputs (`runtime.results`), picks a
version by sizes (`dispatch`) and its variant by memory layout (`variants`), and runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from tcsym.dispatch.choose import policy_for
from tcsym.dispatch.dispatcher import Dispatcher
from tcsym.dispatch.making import Making
from tcsym.dispatch.points import COMPILE_SECONDS
from tcsym.dispatch.policy import Single
from tcsym.dispatch.version import Version
from tcsym.errors import SizeError
from tcsym.frontend.program import Program
from tcsym.index.text import condition_text
from tcsym.ir.compiled import Compiled
from tcsym.kernel import ready
from tcsym.kernel.analysed import analysed
from tcsym.kernel.settings import Settings, validated
from tcsym.kernel.tracing import traced_call
from tcsym.kernel.warned import warnings_of
from tcsym.options import Options
from tcsym.process.forks import Inside
from tcsym.process.recursion import depth_checked
from tcsym.process.threads import get_num_threads, require_threads
from tcsym.runtime.arguments import MISSING, Bound, bind, checked_sizes, match_arguments
from tcsym.runtime.arrays import (
    dense_view,
    empty,
    note_written,
    numpy_array,
    result_object,
    view_of,
)
from tcsym.runtime.device import device_of
from tcsym.runtime.packing import packed
from tcsym.runtime.plan import CallPlan, GivenSize, Parameter, plan_call
from tcsym.runtime.results import (
    match_outputs,
    original_of,
    prepare_outputs,
    require_updatable,
    result_library,
)
from tcsym.runtime.stats import Counters
from tcsym.runtime.variants import Variant
from tcsym.runtime.view import View
from tcsym.sizes.dims import Dim, Sizes
from tcsym.sizes.shaping import shaping_sizes
from tcsym.sizes.values import size_value
from tcsym.strategy import Auto, Strategy, Symbolic

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from tcsym.display.explained import Explanation
    from tcsym.network.plan import Plan
    from tcsym.runtime._native import Entry
    from tcsym.runtime.entering import EntryImage
    from tcsym.runtime.switch import Switch
    from tcsym.tuning.choice import Choice

Function = Callable[..., Any]
_OPTIONS = ("out", "sizes", "threads")


class Text:
    """The programs of one text, and its settings, checked. Errors: all of the compile phase."""

    @depth_checked
    def __init__(self, settings: Settings, programs: Mapping[str, Program] | None = None) -> None:
        self.programs = programs or analysed(settings.source, settings.filename)
        self.settings = validated(settings, self.programs)
        self.warnings = warnings_of(self.programs.values())
        self.all_sizes = frozenset(name for p in self.programs.values() for name in p.sizes)

    @depth_checked
    def serving(self, name: str, slow: Function, install: Callable[[Function], None]) -> Serving:
        """`slow` serves every call of def `name`; `install` makes calls enter a function."""
        program = self.programs[name]
        plan = plan_call(program, self.settings.sizes, self.all_sizes, self.settings.target)
        made = Serving(program, self.settings, plan, Counters())
        made.dispatch(slow, install)
        if self._is_kept(plan):
            made.dispatcher.keep = self._keep
        return made

    def _is_kept(self, plan: CallPlan) -> bool:
        """True if later processes will find what serves calls of dense arrays (`ready`)."""
        given = self.settings
        if self.warnings or shaping_sizes(plan.program):
            return False  # who defines it again is warned again; versions follow the first call
        plain = not given.sizes and given.target in (None, "cpu") and given.options is None
        types = {x.dtype.value for x in plan.inputs} | {x.dtype.value for x in plan.outputs}
        return plain and given.strategy in (Symbolic(), Auto()) and "bfloat16" not in types

    def _keep(
        self,
        version: Version,
        variant: Variant,
        image: EntryImage,
        switch: Switch | None,
        place: int | None,
    ) -> None:
        if version.kind == "symbolic" and (place is None or version.region.origin == "analytic"):
            compiled, given = variant.compiled, self.settings
            manifest = {**compiled.manifest(), "options": str(version.region.options)}
            kernel = compiled.object_code, manifest
            made = *kernel, image.fields, _kept_switch(given.strategy, switch, place)
            names, counted = tuple(self.programs), isinstance(given.strategy, Auto)
            ready.keep(given.source, counted, names, image.name, made)


def _kept_switch(
    strategy: Strategy, switch: Switch | None, place: int | None
) -> ready.KeptSwitch | None:
    """With the seconds that calls of the same sizes take before somebody should look at them."""
    counted = isinstance(strategy, Auto)
    if switch is None or not (counted or place is not None):
        return None
    seconds = strategy.hot * COMPILE_SECONDS if isinstance(strategy, Auto) else 0.0
    return switch.image.fields, seconds, place


class Serving:
    """Calls of one kernel, served."""

    dispatcher: Dispatcher

    def __init__(
        self, program: Program, settings: Settings, plan: CallPlan, stats: Counters
    ) -> None:
        self.program = program
        self.settings = settings
        self.plan = plan
        self.stats = stats

    def dispatch(
        self,
        slow: Function,
        install: Callable[[Function], None],
        ahead: Mapping[Options, Compiled] | None = None,
    ) -> None:
        """Versions are chosen afresh, by what the options stores have now.

        ahead: code of tuned regions, which is kept; calls go on with what there is meanwhile.
        """
        given = self.settings
        making = Making(self.plan, given.target, given.options, self.stats)
        dispatcher = Dispatcher(policy_for(given.strategy, making), slow, install)
        if ahead is not None and dispatcher.policy.refusal is None:
            dispatcher.adopt_regions(ahead)
            dispatcher.succeed(self.dispatcher)
        self.dispatcher = dispatcher
        self.stats.counter = dispatcher.counts

    def adopt(self, kept: ready.Ready, entry: Entry, switch: Switch | None) -> None:
        """An earlier process made the code and its call entry: calls go on entering it."""
        code, manifest, *_ = kept
        versions = self.dispatcher.versions
        place = None if kept[3] is None else kept[3][2]
        version = versions[place or 0]
        is_divided = len(versions) > 1
        if is_divided == (place is None) or str(version.region.options) != manifest["options"]:
            return  # tuned meanwhile: what was kept goes on serving until something else is asked
        compiled = Compiled.from_manifest(manifest, code)
        variant = version.variants.adopt(version.variants.dense, compiled)
        self.dispatcher.adopt(version, variant, entry, switch)

    def pinned(
        self,
        sizes: tuple[int, ...],
        version: Version,
        slow: Function,
        install: Callable[[Function], None],
    ) -> Serving:
        """The same, accepting only these sizes, which `version` serves."""
        literals = self.plan.initial[len(sizes) :]
        plan = replace(self.plan, initial=(*sizes, *literals), fixed_where="fixed at `compile`")
        made = Serving(self.program, self.settings, plan, self.stats)
        making = self.dispatcher.making
        made.dispatcher = Dispatcher(Single(making, version), slow, install, plan)
        return made

    # ---- calls

    def call(
        self,
        /,
        *args: Any,
        out: Any = None,
        sizes: Any = None,
        threads: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Serves every call, the straight way."""
        plan = self.plan
        traced = traced_call(plan, args, kwargs)
        if traced is not NotImplemented:
            return traced
        given = match_arguments(plan, args, kwargs)
        targets = match_outputs(plan, out)
        bound = bind(plan, given, sizes)
        outputs = prepare_outputs(plan, bound, targets)
        views = (*bound.views, *outputs.views)
        n_threads = get_num_threads() if threads is None else require_threads(threads)
        version = self.dispatcher.answering(bound.sizes)
        variant, fault = version.run(views, bound.sizes, n_threads)
        self.dispatcher.ran(version)
        if fault:
            raise plan.fault_error(variant.compiled.faults[fault - 1])
        self.dispatcher.served(bound.sizes, views, version, variant)
        self._warn_beyond(bound.sizes)
        return packed(plan.output_names, outputs.finished())

    def _warn_beyond(self, sizes: tuple[int, ...]) -> None:
        """Default options where others were tuned elsewhere; the first such call comes here."""
        making, program = self.dispatcher.making, self.program
        if len(making.regions) == 1:
            return
        region = self.dispatcher.policy.region_of(sizes)
        if region.origin == "user" and region.options == Options():
            from tcsym.tuning.stores import warn_beyond

            warn_beyond(program.canonical, program.name, making.target, program.sizes, sizes)

    def sizes_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
        """The sizes of a call that was served."""
        named = {n: x for n, x in kwargs.items() if n not in _OPTIONS}
        given = match_arguments(self.plan, args, named)
        return bind(self.plan, given, kwargs.get("sizes")).sizes

    def reference(self, args: tuple[Any, ...], sizes: Any, kwargs: Mapping[str, Any]) -> Any:
        """As `call`, by the interpreter."""
        with Inside():
            from tcsym.frontend.interpret import interpret

        plan = replace(self.plan, device=device_of("cpu"))
        bound = bind(plan, match_arguments(plan, args, kwargs), sizes)
        if plan.inouts:
            require_updatable(plan, bound)
        inputs = {p.name: numpy_array(v) for p, v in zip(plan.inputs, bound.views)}
        arrays = interpret(self.program, inputs, dict(zip(plan.sizes, bound.sizes)))
        for k in plan.inouts:
            view = original_of(bound.views[k])
            np.copyto(numpy_array(view), arrays[plan.inputs[k].name])
            note_written(view.owner)
        library = result_library(bound.views)
        results = []
        for output in plan.outputs:
            array = arrays[output.name]
            view = empty(library, array.shape, output.dtype)
            np.copyto(numpy_array(view), array)
            results.append(result_object(view))
        return packed(plan.output_names, tuple(results))

    # ---- shapes without arrays

    def bind_shapes(
        self, inputs: tuple[Any, ...], named: Mapping[str, Any], plan: CallPlan | None = None
    ) -> Bound:
        """As `bind`, from arrays, specs, or sizes alone."""
        plan = plan or self.plan
        parameters = {p.name for p in plan.inputs}
        arrays = {n: x for n, x in named.items() if n in parameters}
        sizes = {n: x for n, x in named.items() if n not in parameters}
        given = match_arguments(plan, inputs, arrays)
        values = dict(zip(plan.sizes, plan.initial)) | checked_sizes(plan, sizes)
        shaped = [_shaped(p, x, values) for p, x in zip(plan.parameters, given)]
        return bind(plan, shaped, sizes, _view_of_shaped)

    def version_for(self, bound: Bound) -> tuple[Version, tuple[View, ...], Variant]:
        """What would serve arguments of these shapes and layouts, compiled."""
        outputs = [dense_view(s, o.dtype) for s, o in zip(bound.shapes, self.plan.outputs)]
        version = self.dispatcher.serving(bound.sizes)
        views = (*bound.views, *outputs)
        return version, views, version.prepared(views)

    # ---- what it is

    def planned(self, bounds: Mapping[str, int] | None, parallel: bool | None = None) -> Plan:
        """As a program of several kernels."""
        from tcsym.network.plan import plan_program

        given = self.settings
        shared = self.plan, given.target, given.options, given.sizes
        return plan_program(*shared, bounds, parallel)

    def exported(
        self,
        path: str | PathLike[str],
        bounds: Mapping[str, int] | None,
        targets: Sequence[str] | None,
        strategy: object = None,
        constants: Mapping[str, object] | Collection[str] = (),
    ) -> Path:
        """As a folder that runs without a compiler."""
        from tcsym.artifact.build import export
        from tcsym.artifact.constants import constants_of, without_constants
        from tcsym.display.progress import Progress
        from tcsym.network.plan import known_bounds
        from tcsym.strategy import resolve_strategy

        given = self.settings
        most = known_bounds(self.plan, given.sizes, bounds)
        chosen = given.strategy if strategy is None else resolve_strategy(strategy)
        is_own = strategy is None and not constants
        table = self.dispatcher.table if is_own else None
        settings = given.target, given.options, most, targets, chosen, table
        with Progress(f"export {self.program.name}"):
            own = (
                constants_of(self.planned(bounds), constants)
                if constants
                else without_constants(self.plan)
            )
            return export(path, own, *settings)

    def sizes(self) -> Sizes:
        """The size parameters, fixed or declared, and what a call checks."""
        declared = self.settings.sizes
        return Sizes(
            {name: declared.get(name, Dim()) for name in self.plan.sizes},
            free=self.program.free_sizes,
            constraints=tuple([condition_text(c.condition) for c in self.program.checks]),
        )

    def options_for(self, sizes: Mapping[str, int]) -> Choice:
        """Which options serve these sizes."""
        from tcsym.tuning.choice import choice_of

        plan = self.plan
        given = dict(zip(plan.sizes, plan.initial)) | checked_sizes(plan, sizes)
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise SizeError(f"size `{missing[0]}` of {self.program.name} is not given")
        values = tuple([given[name] or 0 for name in plan.sizes])
        making = self.dispatcher.making
        region = self.dispatcher.policy.region_of(values)
        return choice_of(self.program.canonical, making.target, region, values)

    def explain(self, stage: str, sizes: Mapping[str, int]) -> Explanation:
        """The text of one stage, of the version that serves the given sizes."""
        from tcsym.dispatch.texts import explain_version, explain_versions

        given = checked_sizes(self.plan, sizes)
        if stage == "variants":
            return explain_versions(self.dispatcher, given)
        text = explain_version(self.dispatcher, stage, given)
        if stage == "plan" and len((plan := self.planned(None)).steps) > 1:
            return text.after("".join(f"# {x}\n" for x in plan.steps_text().splitlines()))
        return text


def _shaped(p: Parameter | GivenSize, x: Any, sizes: Mapping[str, int | None]) -> Any:
    """`x` with specs and shapes turned into views; a missing one follows from sizes if they do."""
    from tcsym.kernel.signature import Spec

    if isinstance(p, GivenSize):
        return x
    if x is MISSING:
        extents = [d if isinstance(d, int) else sizes[d] for d in p.dimensions]
        known = tuple([extent for extent in extents if extent is not None])
        return dense_view(known, p.dtype) if len(known) == p.rank else MISSING
    if isinstance(x, tuple) and all(size_value(extent) is not None for extent in x):
        x = Spec(x)
    return dense_view(x.shape, x.dtype or p.dtype) if isinstance(x, Spec) else x


def _view_of_shaped(x: object) -> View:
    return x if isinstance(x, View) else view_of(x)
