# SPDX-License-Identifier: Apache-2.0
"""One def, ready to be called: `Kernel`, the face of what serves its calls (`serving`).

Where an earlier process kept how calls are served (`ready`), the rest is loaded when it is wanted.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from sys import modules
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, overload

from tcsym.kernel import in_torch, ready
from tcsym.kernel.differentiable import Differentiable
from tcsym.kernel.registry import Through, documented, register
from tcsym.process.forks import Inside, inside
from tcsym.process.outside_graphs import graph_name, outside_graphs

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path
    from typing import Protocol, TypeVar

    from numpy.typing import NDArray

    from tcsym.dispatch.dispatcher import Dispatcher
    from tcsym.display.explained import Explanation
    from tcsym.display.picture import Picture
    from tcsym.frontend.program import Program
    from tcsym.kernel.executable import Executable
    from tcsym.kernel.serving import Serving
    from tcsym.kernel.settings import Settings
    from tcsym.kernel.signature import Signature
    from tcsym.network.memory import Memory
    from tcsym.network.plan import Plan
    from tcsym.options import Options
    from tcsym.runtime._native import Entry
    from tcsym.runtime.plan import CallPlan
    from tcsym.runtime.stats import Counters, Stats
    from tcsym.runtime.switch import Switch
    from tcsym.sizes.dims import Dim, Sizes
    from tcsym.strategy import Strategy
    from tcsym.tuning.choice import Choice
    from tcsym.tuning.report import TuningReport
    from tcsym.tuning.request import Search

    class Shaped(Protocol):
        """An array of any library."""

        @property
        def shape(self) -> tuple[int, ...]: ...

    Array = TypeVar("Array", bound=Shaped)

Function = Callable[..., Any]
Shapes = tuple[tuple[int, ...], ...]
Make = Callable[["Kernel"], "Serving"]


class Kernel(Differentiable):
    """One def, ready to be called with arrays. Made by `tcsym.define`; compiled when called.

    name: of the def.
    source: the text it stands in.
    signature: types and symbolic shapes of inputs and outputs.
    sizes: its sizes with what is known of them: numbers, or ranges as a `Dim`.
    stats: what it did so far: compilations, versions, calls of each, decisions; prints well.
    """

    def __init__(self, name: str, make: Make, kept: ready.Ready | None = None) -> None:
        self.name = self.__name__ = self.__qualname__ = name
        self._make = make
        self._made: Serving | None = None
        self._kept = kept
        self._entered: tuple[ready.Ready, Entry, Switch | None] | None = None
        self._lock = RLock()
        self._through: Through | None = None
        self._stats: Stats | None = None
        self._graph_name = graph_name(self)
        self._derivatives: dict[tuple[Any, ...], Kernel] = {}
        self._recorded: Mapping[tuple[bool | None, ...], Function] = {}
        self._inner: Function = self._checked_call if kept is None else self._first_call
        self._entry: Function = self._inner
        register(self)

    @property
    def _serving(self) -> Serving:
        if self._made is None:
            with Inside(), self._lock:
                if self._made is None:
                    made = self._make(self)
                    self._made = made
                    if self._entered is not None:
                        made.adopt(*self._entered)
        return self._made

    @property
    def program(self) -> Program:
        return self._serving.program

    @property
    def settings(self) -> Settings:
        return self._serving.settings

    @property
    def stats(self) -> Stats:
        if self._stats is None:
            from tcsym.runtime.stats import Stats  # most processes only call

            self._stats = Stats(self._counters)
        return self._stats

    def _counters(self) -> list[Counters]:
        recorded = [k for key, k in self._derivatives.items() if key[0] == "saving"]
        return [self._serving.stats, *(counters for k in recorded for counters in k._counters())]

    @property
    def _plan(self) -> CallPlan:
        return self._serving.plan

    @property
    def _dispatcher(self) -> Dispatcher:
        return self._serving.dispatcher

    # ---- calls

    @overload
    def __call__(
        self,
        first: NDArray[Any],
        /,
        *rest: Any,
        out: Any = None,
        sizes: Mapping[str, int] | None = None,
        threads: int | None = None,
        **named: Any,
    ) -> NDArray[Any]: ...

    @overload
    def __call__(
        self,
        first: Array,
        /,
        *rest: Any,
        out: Any = None,
        sizes: Mapping[str, int] | None = None,
        threads: int | None = None,
        **named: Any,
    ) -> Array: ...

    @overload
    def __call__(
        self,
        /,
        *args: Any,
        out: Any = None,
        sizes: Mapping[str, int] | None = None,
        threads: int | None = None,
        **kwargs: Any,
    ) -> Any: ...

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
        if "torch" in modules and in_torch.in_graph():
            return self._graph_call(args, kwargs, out, sizes, threads)
        if out is None and sizes is None and threads is None:
            return self._entry(*args, **kwargs)
        return self._entry(*args, out=out, sizes=sizes, threads=threads, **kwargs)

    def _graph_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, sizes: Any, threads: Any
    ) -> Any:
        """A call that torch.compile reads, as an operator. It imports what it reads here."""
        from tcsym.operators.torch.graphs import graph_call

        given = {"out": out, "sizes": sizes, "threads": threads}
        return graph_call(self, args, kwargs, {n: x for n, x in given.items() if x is not None})

    @outside_graphs
    def _outside_call(self, /, *args: Any, **kwargs: Any) -> Any:
        """A call that torch.compile is not to read."""
        return self._entry(*args, **kwargs)

    def _checked_call(self, /, *args: Any, **kwargs: Any) -> Any:
        """What `_entry` does, the straight way: it serves every call."""
        if "torch" in modules:
            served = in_torch.in_torch(self, args, kwargs)
            if served is not NotImplemented:
                return served
        if "jax" in modules:
            from tcsym.kernel.in_jax import in_jax

            served = in_jax(self, args, kwargs)
            if served is not NotImplemented:
                return served
        return self._plain_call(*args, **kwargs)

    @outside_graphs
    @inside
    def _plain_call(self, /, *args: Any, **kwargs: Any) -> Any:
        """A call of arrays whose memory is there."""
        return self._serving.call(*args, **kwargs)

    @outside_graphs
    @inside
    def _first_call(self, /, *args: Any, **kwargs: Any) -> Any:
        """From now on, calls enter what an earlier process kept."""
        with self._lock:
            kept, self._kept = self._kept, None
            if kept is not None:
                self._enter_kept(kept)
        return self._inner(*args, **kwargs)

    def _enter_kept(self, kept: ready.Ready) -> None:
        from tcsym.runtime.loader import LoadError

        try:
            loaded = ready.load_kept(kept, self._checked_call, self._failed)
        except LoadError:
            from tcsym.strategy import Auto

            given, loaded = self.settings, None
            ready.forget(given.source, isinstance(given.strategy, Auto))
        if loaded is None:
            self._install(self._checked_call)
            return
        entry, switch = loaded
        self._install(entry if switch is None else switch.function)
        if switch is not None and kept[3] is not None and kept[3][1]:
            switch.track(self._notice)
        self._entered = kept, entry, switch
        if self._made is not None:
            self._made.adopt(*self._entered)

    @outside_graphs
    @inside
    def _notice(self, /, *args: Any, **kwargs: Any) -> Any:
        """A call that the switch thinks is one of many with its sizes (as `Dispatcher._notice`)."""
        assert self._entered is not None
        kept, entry, switch = self._entered
        assert switch is not None and kept[3] is not None
        start = perf_counter()
        result = entry(*args, **kwargs)
        seconds = perf_counter() - start
        sizes = switch.sizes_of(args, kwargs)
        from tcsym.runtime.switch import NOTICED_FROM, missing_calls

        missing = missing_calls(seconds, switch.calls(sizes), worth=kept[3][1])
        switch.again(sizes, missing or NOTICED_FROM)  # then by the dispatcher
        if not missing:
            from tcsym.runtime.background import beside

            beside(lambda: self._serving)
        return result

    @inside
    def _failed(self, fault: int) -> None:
        """What a check found in the code that an earlier process kept."""
        from tcsym.ir.compiled import Compiled

        assert self._entered is not None
        compiled = Compiled.from_manifest(self._entered[0][1], b"")
        raise self._plan.fault_error(compiled.faults[fault - 1])

    def _install(self, entry: Function) -> None:
        """From now on, calls enter `entry`, or what they enter through does."""
        self._inner = entry
        if self._through is None:
            self._entry = entry

    def _enter_through(self, through: Through | None) -> None:
        """Calls enter by way of `through` from now on, or no longer."""
        self._through = through
        self._entry = self._inner if through is None else self._call_through

    @outside_graphs
    def _call_through(self, /, *args: Any, **kwargs: Any) -> Any:
        through = self._through
        if through is None:  # another thread has just ended it
            return self._inner(*args, **kwargs)
        return through(self, self._inner, args, kwargs)

    @outside_graphs
    def reference(
        self, /, *args: Any, sizes: Mapping[str, int] | None = None, **kwargs: Any
    ) -> Any:
        """As a call, but by an interpreter of the text: slow, and the definition of what is right.

        Results are as of a call. Errors: those of a call.
        """
        return self._serving.reference(args, sizes, kwargs)

    # ---- compiling

    @outside_graphs
    @inside
    def compile(self, /, *inputs: Any, **named: Any) -> Executable:
        """The kernel for fixed shapes, compiled and loaded.

        Inputs are arrays, `Spec`s or shapes; keywords are inputs or sizes by name: `compile(A, B)`,
        `compile((64, 8), (8, 9))`, `compile(M=64, K=8, N=9)`. The result is called like the kernel.
        Errors: SizeError if the shapes do not say all sizes, or contradict each other.
        """
        from tcsym.kernel.executable import Executable  # most processes only call

        serving = self._serving
        bound = serving.bind_shapes(inputs, named)
        version, views, variant = serving.version_for(bound)
        pinned = Kernel(
            self.name,
            lambda k: serving.pinned(bound.sizes, version, k._checked_call, k._install),
        )
        pinned._dispatcher.served(bound.sizes, views, version, variant)
        shapes = tuple([view.shape for view in bound.views])
        return Executable(pinned, dict(zip(self._plan.sizes, bound.sizes)), shapes)

    @outside_graphs
    @inside
    def precompile(self) -> Kernel:
        """Compile every version that calls with dense arrays will need; returns the kernel.

        Needs declared sizes (`Dim` with bounds) where versions are for single sizes or ranges.
        """
        self._dispatcher.policy.precompile()
        return self

    # ---- tuning

    def tune(
        self,
        sizes: Sequence[Mapping[str, int]] | Mapping[str, Dim | int | range] | None = None,
        budget: str | float | None = None,
        *,
        candidates: int | None = None,
        weights: Sequence[float] | None = None,
        start: Options | Sequence[Options] | None = None,
        executor: Any = None,
        progress: bool | None = None,
        seed: int = 0,
        search: Search = "guided",
    ) -> TuningReport:
        """Search for better options; they go to the user's store and serve the next call.

        sizes: sizes to be quick at, as a list of mappings, or ranges to draw from, as a mapping to
            `Dim`, `range` and numbers; None: as declared.
        budget: seconds, or time as in "2min", of which it takes no more than a tenth longer;
            default: 60 s.
        candidates: how many to try at most, however long it takes, in place of `budget`.
        weights: how often each of the listed sizes occurs.
        start: options to try first, `tcsym.Options` or a list of them.
        seed: of all that is random.
        search: "guided" or "genetic".
        executor: a `concurrent.futures` executor for the candidates, or a Dask client, on machines
            like this one; default: worker processes here, which survive what candidates do.
        progress: True, False, or None: on terminals and in notebooks, as TCSYM_PROGRESS says.
        Ctrl-C ends the search, not the report. Options change no results. Errors: SizeError,
        OptionError for the arguments; TCError if the kernel cannot be run at these sizes.
        """
        began = monotonic()  # what is loaded for it counts, too
        with Inside():  # not for as long as it takes
            from tcsym.tuning.tune import tune_program

        target, declared = self._dispatcher.making.target, self.settings.sizes
        given = self.program, target, declared, sizes, budget
        report = tune_program(
            *given,
            candidates=candidates,
            weights=weights,
            start=start,
            executor=executor,
            progress=progress,
            seed=seed,
            search=search,
            began=began,
        )
        self._serving.dispatch(self._checked_call, self._install, ahead=report.code)
        self._install(self._checked_call)
        return report

    @inside
    def options_for(self, **sizes: int) -> Choice:
        """Which options serve these sizes, and why: region, origin, distance to what was tuned."""
        return self._serving.options_for(sizes)

    # ---- as part of another program

    @outside_graphs
    @inside
    def batched(self, inputs: Iterable[str] | None = None) -> Kernel:
        """The kernel for a batch: another dimension in front of these inputs, by default of all.

        Results have it, too, if they depend on one of them. It is one program, not a loop, with a
        text to read. Errors: OptionError for what is no input.
        """
        from tcsym.kernel.batched import batched_kernel

        known = [t.name for t in self.program.inputs]
        given = known if inputs is None else [inputs] if isinstance(inputs, str) else inputs
        names = frozenset(given)
        return self._derived(("batched", names), lambda: batched_kernel(self, names))

    def functional(self) -> Kernel:
        """The kernel that leaves its arguments as they are: what this one updates in `Y` is its
        result `Y_new`, behind the others. One that updates nothing is its own.
        """
        if not self.program.inouts:
            return self
        from tcsym.kernel.batched import functional_kernel

        return self._derived(("functional",), lambda: functional_kernel(self))

    # ---- as a program of several kernels

    @outside_graphs
    @inside
    def plan(
        self, bounds: Mapping[str, int] | None = None, *, parallel: bool | None = None
    ) -> Plan:
        """The kernels that it consists of, and memory for what they hand on, planned once.

        bounds: largest values of sizes; default: what is declared of them. Where they tell the
            bytes of all tensors, storage is planned at them.
        parallel: kernels that do not need each other may run at once, which may take more memory;
            default: where it takes no more.
        Errors: SizeError for bounds of what is no size, or no number.
        """
        return self._serving.planned(bounds, parallel)

    @outside_graphs
    @inside
    def memory(self) -> Memory:
        """Bytes that a call in a session needs, as formulas in the sizes. Compiles the program."""
        return self._serving.planned(None).memory()

    @outside_graphs
    @inside
    def export(
        self,
        path: str | PathLike[str],
        *,
        bounds: Mapping[str, int] | None = None,
        targets: Sequence[str] | None = None,
        strategy: str | Strategy | None = None,
        constants: Mapping[str, object] | Collection[str] = (),
    ) -> Path:
        """Write a folder that runs the kernel without a compiler: library, C header, manifest.

        `tcsym.load` calls it from Python, the header from C, and `apache-tvm-ffi` from what that
        serves. One library has the code of all sizes; arguments are dense there.
        bounds: sizes beyond them are errors.
        targets: kinds of processors as "cpu:avx2", and of devices as "cuda:sm_80", of which the
            best is chosen when it runs; default: the kernel's.
        strategy: whose versions there are; default: those that serve the kernel's calls now.
        constants: inputs that calls do not give, as for `Plan.session`: arrays by name, which the
            folder then has, or names of what is bound where it is loaded.
        Returns the folder. Errors: OptionError if the folder has something else, for unknown
        targets, for a strategy that cannot serve; SizeError for bounds of what is no size;
        TargetError without a C compiler.
        """
        return self._serving.exported(path, bounds, targets, strategy, constants)

    # ---- what it is

    @property
    def source(self) -> str:
        return self.program.source

    @property
    @inside
    def signature(self) -> Signature:
        """Types of inputs and outputs, with symbolic shapes."""
        from tcsym.kernel.signature import Signature

        return Signature(self.program)

    @property
    @inside
    def sizes(self) -> Sizes:
        """The size parameters: fixed values or declared ranges, and what a call checks."""
        return self._serving.sizes()

    @inside
    def output_shapes(self, /, *inputs: Any, **named: Any) -> dict[str, tuple[int, ...]]:
        """Shape of each output, from inputs (arrays, specs or shapes) or from sizes alone."""
        bound = self._serving.bind_shapes(inputs, named)
        return dict(zip(self._plan.output_names, bound.shapes))

    @inside
    def explain(self, stage: str = "variants", /, **sizes: int) -> Explanation:
        """The text of one stage of compilation, of the version that serves the given sizes.

        Without a stage, what serves these sizes and what was decided: `explain(N=37)`.
        Without sizes, or with some, a stage is that of the first of the versions which may serve;
        its first line says which. Arguments are taken to be dense.
        Stages: syntax program ranges scop dependences schedule loops plan mapped costs llvm asm
        options variants; for a device also cuda ptx sass; `costs` needs all sizes. Errors:
        OptionError for another name or missing sizes, SizeError
        for what is no size of this def, TargetError for a device's stages on another target.
        A `str`; as the last line of a notebook's cell it is coloured and folds, with what runs at
        these sizes open.
        """
        return self._serving.explain(stage, sizes)

    @outside_graphs
    @inside
    def picture(
        self,
        element: str,
        /,
        *inputs: Any,
        statement: str | None = None,
        through: bool = False,
        **named: Any,
    ) -> Picture:
        """Which elements are read for one that is written: an SVG, which notebooks show.

        element: as the text names it, `"Y(0, 2, 3)"`, or several, `"Y(0, :, 1:4)"`: of a result,
            of what is updated, or of a temporary.
        inputs, named: as for `compile`: arrays, shapes, or sizes by name. What data decide
            (gathers, ragged rows, conditions on values) needs arrays. Small ones: it is for the
            eye.
        statement: its name in `explain("program")`; default: all that write the element.
        through: not what these statements read, but what the element is made of: arguments only.
        Nothing is updated. Errors: TCError of kinds syntax, name, rank and bounds for the element;
        size if data are missing, or if more than four million points would run; those of a call.
        """
        from tcsym.kernel.pictured import picture  # most processes only call

        return picture(self._serving, element, inputs, named, statement, through)

    def _doc(self, of_class: str | None) -> str | None:
        return f"{self.signature!r}\n\n{self.source.strip()}\n"

    def __repr__(self) -> str:
        return f"<tcsym kernel {self.signature!r}>"

    def _repr_html_(self) -> str:
        from tcsym.kernel.kernel_html import kernel_html

        return kernel_html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        from tcsym.kernel.module import rebuild_kernel

        return rebuild_kernel, (self.settings, self.name)


documented(Kernel)
