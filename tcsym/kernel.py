"""One def, ready to be called: `Kernel`.

A call binds its arguments (`runtime.arguments`), prepares outputs (`runtime.results`), picks a
version by sizes (`dispatch`) and its variant by memory layout (`variants`), and runs it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsym.analysed import analysed
from tcsym.dispatch.choose import dispatcher_for, require_one_served
from tcsym.dispatch.dispatcher import Dispatcher, Single
from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.dispatch.version import Version
from tcsym.errors import SizeError, TargetError
from tcsym.frontend.program import Program
from tcsym.index import condition_text
from tcsym.recording import register, timed_call
from tcsym.runtime.arguments import MISSING, Bound, bind, checked_sizes, match_arguments
from tcsym.runtime.arrays import View, dense_view, empty, numpy_array, result_object, view_of
from tcsym.runtime.direct import Direct
from tcsym.runtime.plan import Parameter, plan_call
from tcsym.runtime.results import match_outputs, packed, prepare_outputs, result_library
from tcsym.settings import Settings, validated
from tcsym.sizes import Dim, Sizes, size_value
from tcsym.stats import Stats
from tcsym.threads import get_num_threads, require_threads

if TYPE_CHECKING:
    from tcsym.executable import Executable
    from tcsym.signature import Signature
    from tcsym.tuning.choice import Choice
    from tcsym.tuning.report import TuningReport

_DEVICE_STAGES = ("cuda", "ptx")
_OPTIONS = ("out", "sizes", "threads")


def kernels_of(settings: Settings) -> dict[str, Kernel]:
    """The kernels of a text, in text order. Errors: all of the compile phase, OptionError."""
    programs = analysed(settings.source, settings.filename)
    checked = validated(settings, programs)
    all_sizes = frozenset(name for p in programs.values() for name in p.sizes)
    kernels = {name: Kernel(p, checked, all_sizes) for name, p in programs.items()}
    require_one_served([kernel._dispatcher for kernel in kernels.values()])
    return kernels


def rebuild_kernel(settings: Settings, name: str) -> Kernel:
    """The kernel that was pickled."""
    return kernels_of(settings)[name]


class Kernel(Direct):
    """A compiled-on-demand function of arrays. Made by `tcsym.define`.

    Call it with arrays in declaration order or by name; see `help(tcsym.define)`. Attributes:
    `name`, `source`, `signature`, `sizes`, `stats`.
    """

    def __init__(self, program: Program, settings: Settings, all_sizes: frozenset[str]) -> None:
        self.program = program
        self.settings = settings
        self.stats = Stats()
        self._plan = plan_call(program, settings.sizes, all_sizes)
        self._inner: Callable[..., Any] = self._checked_call
        self._entry: Callable[..., Any] = self._inner
        self._dispatcher = self._dispatch()
        register(self)

    def _dispatch(self) -> Dispatcher:
        settings = self.settings
        making = Making(self._plan, settings.target, settings.options, self.stats)
        return dispatcher_for(settings.strategy, making, self._entrance())

    @property
    def name(self) -> str:
        return self.program.name

    # ---- calls

    def __call__(
        self,
        /,
        *args: Any,
        out: Any = None,
        sizes: Mapping[str, int] | None = None,
        threads: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run on arrays, in declaration order or by name.

        out: where to write: an array, or for several outputs a tuple or a mapping by name.
        sizes: values of free sizes; others may be repeated and must agree.
        threads: most threads for this call; default `tcsym.get_num_threads()`.
        Returns one array, or a named tuple in declaration order, of the inputs' library.
        Errors: TCError of the kinds call, size, rank, type, bounds, init, immutable.
        """
        # Once an entry is made, only explicit calls of this method come here: `runtime.direct`.
        if out is None and sizes is None and threads is None:
            return self._entry(*args, **kwargs)
        return self._entry(*args, out=out, sizes=sizes, threads=threads, **kwargs)

    def _checked_call(
        self,
        /,
        *args: Any,
        out: Any = None,
        sizes: Any = None,
        threads: Any = None,
        **kwargs: Any,
    ) -> Any:
        """What `_entry` does, the straight way: it serves every call."""
        plan = self._plan
        given = match_arguments(plan, args, kwargs)
        targets = match_outputs(plan, out)
        bound = bind(plan, given, sizes)
        outputs = prepare_outputs(plan, bound, targets)
        views = (*bound.views, *outputs.views)
        n_threads = get_num_threads() if threads is None else require_threads(threads)
        version = self._dispatcher.serving(bound.sizes)
        variant, fault = version.run(views, bound.sizes, n_threads)
        if fault:
            raise plan.fault_error(variant.compiled.faults[fault - 1])
        self._dispatcher.served(bound.sizes, views, version, variant)
        return packed(plan.output_names, outputs.finished())

    def _entrance(self) -> Entrance:
        return Entrance(self._plan, self._checked_call, self._install)

    def _install(self, entry: Callable[..., Any]) -> None:
        """From now on, calls enter `entry`, or what records them does."""
        recorded, self._inner = self._entry is not self._inner, entry
        if not recorded:
            self._entry = entry

    def _enter_recorded(self, recorded: bool) -> None:
        """Calls are timed and noted from now on, or no longer."""
        self._entry = self._recorded_call if recorded else self._inner

    def _recorded_call(self, /, *args: Any, **kwargs: Any) -> Any:
        return timed_call(self, self._inner, args, kwargs)

    def _sizes_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
        """The sizes of a call that was served."""
        named = {n: x for n, x in kwargs.items() if n not in _OPTIONS}
        given = match_arguments(self._plan, args, named)
        return bind(self._plan, given, kwargs.get("sizes")).sizes

    def reference(
        self, /, *args: Any, sizes: Mapping[str, int] | None = None, **kwargs: Any
    ) -> Any:
        """As a call, but by the interpreter: slow, and the definition of what is right."""
        from tcsym.frontend.interpret import interpret

        plan = self._plan
        bound = bind(plan, match_arguments(plan, args, kwargs), sizes)
        inputs = {p.name: numpy_array(v) for p, v in zip(plan.inputs, bound.views)}
        arrays = interpret(self.program, inputs, dict(zip(plan.sizes, bound.sizes)))
        library = result_library(bound.views)
        results = []
        for output in plan.outputs:
            array = arrays[output.name]
            view = empty(library, array.shape, output.dtype)
            np.copyto(numpy_array(view), array)
            results.append(result_object(view))
        return packed(plan.output_names, tuple(results))

    # ---- compiling

    def compile(self, /, *inputs: Any, **named: Any) -> Executable:
        """The kernel for fixed shapes, compiled and loaded.

        Inputs are arrays, `Spec`s or shapes; keywords are inputs or sizes by name: `compile(A, B)`,
        `compile((64, 8), (8, 9))`, `compile(M=64, K=8, N=9)`.
        """
        from tcsym.executable import Executable

        bound = self._bind_shapes(inputs, named)
        outputs = [dense_view(s, o.dtype) for s, o in zip(bound.shapes, self._plan.outputs)]
        version = self._dispatcher.serving(bound.sizes)
        views = (*bound.views, *outputs)
        variant = version.prepared(views)
        pinned = self._pinned(bound.sizes, version)
        pinned._dispatcher.served(bound.sizes, views, version, variant)
        shapes = tuple(view.shape for view in bound.views)
        return Executable(pinned, dict(zip(self._plan.sizes, bound.sizes)), shapes)

    def _pinned(self, sizes: tuple[int, ...], version: Version) -> Kernel:
        """This kernel, accepting only these sizes, which `version` serves."""
        pinned = Kernel.__new__(Kernel)
        pinned.__dict__ |= self.__dict__
        literals = self._plan.initial[len(sizes) :]
        pinned._plan = dataclasses.replace(
            self._plan, initial=(*sizes, *literals), fixed_where="fixed at `compile`"
        )
        pinned._dispatcher = Single(self._dispatcher.making, pinned._entrance(), version)
        pinned._inner = pinned._entry = pinned._checked_call
        register(pinned)
        return pinned

    def _bind_shapes(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Bound:
        """As `bind`, from arrays, specs, or sizes alone."""
        plan = self._plan
        parameters = {p.name for p in plan.inputs}
        arrays = {n: x for n, x in named.items() if n in parameters}
        sizes = {n: x for n, x in named.items() if n not in parameters}
        given = match_arguments(plan, inputs, arrays)
        values = dict(zip(plan.sizes, plan.initial)) | checked_sizes(plan, sizes)
        shaped = [_shaped(p, x, values) for p, x in zip(plan.inputs, given)]
        return bind(plan, shaped, sizes, _view_of_shaped)

    def precompile(self) -> Kernel:
        """Compile every version that calls with dense arrays will need; returns the kernel.

        Needs declared sizes (`Dim` with bounds) where versions are for single sizes or ranges.
        """
        self._dispatcher.precompile()
        return self

    # ---- tuning

    def tune(
        self,
        sizes: Sequence[Mapping[str, int]] | Mapping[str, Dim | int] | None = None,
        budget: str | int = "60s",
        **settings: Any,
    ) -> TuningReport:
        """Search for better options; they go to the user's store and serve the next call.

        sizes: sizes to be quick at, as a list of mappings (`weights=` says how often each occurs),
            or ranges to draw from (`tcsym.Sizes`, or a mapping to `Dim`); None: as declared.
        budget: time as in "60s", "2min", or a number of candidates.
        start: options to try first. seed: of all that is random. search: "guided" or "genetic".
        executor: a `concurrent.futures` executor for the candidates, on machines like this one;
            default: worker processes here, which survive what candidates do.
        progress: True, False, or None: only on a terminal.
        Ctrl-C ends the search, not the report. Options change no results. Errors: SizeError,
        OptionError for the arguments; TCError if the kernel cannot be run at these sizes.
        """
        from tcsym.tuning.tune import tune_program

        target, declared = self._dispatcher.making.target, self.settings.sizes
        report = tune_program(self.program, target, declared, sizes, budget, **settings)
        self._dispatcher = self._dispatch()
        self._install(self._checked_call)
        return report

    def options_for(self, **sizes: int) -> Choice:
        """Which options serve these sizes, and why: region, origin, distance to what was tuned."""
        from tcsym.tuning.choice import choice_of

        given = dict(zip(self._plan.sizes, self._plan.initial)) | checked_sizes(self._plan, sizes)
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise SizeError(f"size `{missing[0]}` of {self.name} is not given")
        values = tuple([given[name] or 0 for name in self._plan.sizes])
        making = self._dispatcher.making
        region = making.region_of(values)
        return choice_of(self.program.canonical, making.target, region, values)

    # ---- what it is

    @property
    def source(self) -> str:
        return self.program.source

    @property
    def signature(self) -> Signature:
        """Types of inputs and outputs, with symbolic shapes."""
        from tcsym.signature import Signature

        return Signature(self.program)

    @property
    def sizes(self) -> Sizes:
        """The size parameters: fixed values or declared ranges, and what a call checks."""
        declared = self.settings.sizes
        return Sizes(
            {name: declared.get(name, Dim()) for name in self._plan.sizes},
            free=self.program.free_sizes,
            constraints=tuple(condition_text(c.condition) for c in self.program.checks),
        )

    def output_shapes(self, /, *inputs: Any, **named: Any) -> dict[str, tuple[int, ...]]:
        """Shape of each output, from inputs (arrays, specs or shapes) or from sizes alone."""
        bound = self._bind_shapes(inputs, named)
        return dict(zip(self._plan.output_names, bound.shapes))

    def explain(self, stage: str, /, **sizes: int) -> str:
        """The text of one stage of compilation (for given sizes: with these substituted).

        Stages: syntax program ranges scop dependences schedule loops mapped promoted llvm asm
        options variants. Errors: OptionError for another name, TargetError for cuda and ptx.
        """
        if stage in _DEVICE_STAGES:
            raise TargetError(f"stage `{stage}` needs a CUDA target", hint="this version has none")
        from tcsym.compiler import explain_stage
        from tcsym.dispatch.texts import explain_versions

        given = checked_sizes(self._plan, sizes)
        if stage == "variants":
            return explain_versions(self._dispatcher, given)
        options = self.settings.options
        if stage == "options":
            return options.to_json()
        if given and options.bind == "never":
            options = dataclasses.replace(options, bind="before")
        making = self._dispatcher.making
        fixed = {**({} if self.settings.options.bind == "never" else making.known), **given}
        return explain_stage(self.program, stage, making.target, options, fixed)

    def __repr__(self) -> str:
        return f"<tcsym kernel {self.signature!r}>"

    def _repr_html_(self) -> str:
        import html

        text = html.escape(self.source.strip("\n"))
        return f"<code>{html.escape(repr(self.signature))}</code><pre>{text}</pre>"

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_kernel, (self.settings, self.name)


def _shaped(p: Parameter, x: Any, sizes: Mapping[str, int | None]) -> Any:
    """`x` with specs and shapes turned into views; a missing one follows from sizes if they do."""
    from tcsym.signature import Spec

    if x is MISSING:
        extents = [d if isinstance(d, int) else sizes[d] for d in p.dimensions]
        known = tuple([extent for extent in extents if extent is not None])
        return dense_view(known, p.dtype) if len(known) == p.rank else MISSING
    if isinstance(x, tuple) and all(size_value(extent) is not None for extent in x):
        x = Spec(x)
    return dense_view(x.shape, x.dtype or p.dtype) if isinstance(x, Spec) else x


def _view_of_shaped(x: object) -> View:
    return x if isinstance(x, View) else view_of(x)
