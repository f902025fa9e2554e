# SPDX-License-Identifier: Apache-2.0
"""Layouts of a call's arguments -> the variant that serves them, compiled when first needed.

A kernel has at most `MAX_VARIANTS`: the first layouts that turn up, then one for any strides, which
serves everything new. Compilation is serialised in the process; a fork waits for it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from tcsym.errors import OptionError, TCWarning
from tcsym.ir.compiled import BINDING, LEFT_OUT, Compiled, Layout, stride_name
from tcsym.options import Options, plan_error
from tcsym.process.config import VERIFY
from tcsym.process.forks import at_fork
from tcsym.runtime.cache import CodeCache
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.processor import known_processor
from tcsym.runtime.stats import Counters
from tcsym.runtime.versions import code_key
from tcsym.runtime.view import View
from tcsym.target.names import resolve_target
from tcsym.target.target import Target

if TYPE_CHECKING:
    from tcsym.runtime.device import Code, LoadedCode
    from tcsym.sizes.context import Context

MAX_VARIANTS = 4
Layouts = tuple[Layout, ...]
Demand = Literal["required", "told", "free"]
Asked = tuple[Sequence[View], tuple[int, ...]]  # arguments and sizes of a call

_compiling = threading.RLock()
at_fork(
    before=_compiling.acquire,
    after_in_parent=_compiling.release,
    after_in_child=_compiling.release,
)


def layout_of(view: View) -> Layout:
    """The strictest layout class that an argument belongs to."""
    if view.dense:
        return "dense"
    if _has_steps(view, -1):
        return "rows"
    return "columns" if len(view.shape) > 1 and _has_steps(view, -2) else "any"


def _has_steps(view: View, dimension: int) -> bool:
    """Neighbours along the dimension lie side by side, if there are any."""
    return view.strides[dimension] == _itemsize(view) or view.shape[dimension] <= 1


def _loosest(rank: int) -> Layout:
    return "any" if rank else "dense"


def _itemsize(view: View) -> int:
    assert view.dtype is not None
    return view.dtype.bytes


Slots = tuple[int | tuple[int, int], ...]


def _values(slots: Slots, views: Sequence[View], sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        [
            sizes[s] if isinstance(s, int) else views[s[0]].strides[s[1]] // _itemsize(views[s[0]])
            for s in slots
        ]
    )


class Variant(Struct, frozen=True):
    """Loaded code and where its arguments come from. Some of it may be made yet, as calls need it.

    `pointers`: position of each of its arguments among inputs, outputs, and what is held of
    constants. `slots`: each of its sizes is a slot of the call, or the stride in elements of
    (argument, dimension); behind the slots is whether it runs at binding (`Kernel.held`).
    """

    layouts: Layouts
    kernel: Code
    pointers: tuple[int, ...]
    slots: Slots

    @property
    def compiled(self) -> Compiled:
        """What there is of it."""
        return self.kernel.compiled

    def whole(self) -> Variant:
        """With all of its code, compiled now."""
        return replace(self, kernel=self.kernel.whole())

    def values(self, views: Sequence[View], sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Sizes and strides as its code takes them."""
        return _values(self.slots, views, sizes)

    def run(self, views: Sequence[View], sizes: tuple[int, ...], threads: int) -> int:
        """Run on inputs and outputs in order; 0 or 1 + the index of a fault.

        LEFT_OUT with sizes that it leaves out (`Variants.run`).
        """
        values = self.values(views, sizes)
        pointers = [views[k].pointer for k in self.pointers]
        return self.kernel.run(pointers, values, threads, views[-1].place)


class Variants:
    """All variants of one kernel. plans: those that options ask for in vain are an error (where
    arguments are dense: others are offered fewer), or told, or, as a search found them, neither."""

    def __init__(
        self,
        plan: CallPlan,
        target_name: str | Target | None,
        options: Options,
        fixed: Mapping[str, int],
        stats: Counters,
        context: Context = (),
        wide: bool = False,
        plans: Demand = "required",
    ) -> None:
        self.plan = plan
        self.wide = wide
        self.plans = plans
        self.target_name = target_name
        self.options = options
        self.fixed = fixed
        self.context = context
        self.stats = stats
        self._made: dict[Layouts, Variant] = {}
        self.ranks = {p.name: p.rank for p in plan.inputs}
        self.ranks |= {o.name: len(o.shape) for o in plan.outputs}
        dense: Layout = "dense"
        self.dense: Layouts = (dense,) * len(self.ranks)
        self.general: Layouts = tuple(map(_loosest, self.ranks.values()))

    @property
    def target(self) -> Target:
        if isinstance(self.target_name, Target):
            return self.target_name
        return resolve_target(self.target_name, known_processor())

    @property
    def made(self) -> tuple[Variant, ...]:
        """The variants there are so far."""
        return tuple(self._made.values())

    def serving(self, views: Sequence[View], sizes: tuple[int, ...]) -> Variant:
        """The variant for these arguments; its code may be made yet, as calls need it."""
        return self.ready(views) or self._made_for(self.wanted(views), asked=(views, sizes))

    def wanted(self, views: Sequence[View]) -> Layouts:
        """The layouts of the variant for these arguments: theirs, or general if there are many."""
        layouts = tuple([layout_of(view) for view in views])
        if layouts not in self._made and len(self._made) >= MAX_VARIANTS - 1:
            return self.general
        return layouts

    def ready(self, views: Sequence[View]) -> Variant | None:
        """The variant for these arguments, if it is compiled."""
        return self._made.get(self.wanted(views))

    @property
    def ready_dense(self) -> Variant | None:
        """The variant for dense arguments, if it is compiled."""
        return self._made.get(self.dense)

    def run(
        self, variant: Variant, views: Sequence[View], sizes: tuple[int, ...], threads: int
    ) -> tuple[Variant, int]:
        """As `Variant.run`, by a variant for all sizes if this one leaves some out; the one that
        served."""
        result = variant.run(views, sizes, threads)
        if result == LEFT_OUT:
            variant = self._made_for(variant.layouts, whole=True)
            result = variant.run(views, sizes, threads)
        return variant, result

    def made_for(self, layouts: Layouts) -> Variant:
        """The variant for these layouts, or the general one if there are enough, compiled."""
        return self._made_for(layouts, whole=True).whole()

    def part_of(self, layouts: Layouts, whole: bool) -> Variant:
        """A variant of its own, whatever there is: for all sizes if `whole`, else for those that
        are no seldom ones. Its code may be made yet, and need not run here."""
        with _compiling:
            return self._make(layouts, whole, None, exactly=True)

    def _made_for(
        self, layouts: Layouts, whole: bool = False, asked: Asked | None = None
    ) -> Variant:
        """whole: one that leaves no sizes out, in place of one that does. asked: by which call."""
        with _compiling:
            if layouts not in self._made and len(self._made) >= MAX_VARIANTS - 1:
                layouts = self.general
            made = self._made.get(layouts)
            if made is None or (whole and made.compiled.leaves_out):
                made = self._made[layouts] = self._make(layouts, whole, asked)
            return made

    def adopt(self, layouts: Layouts, compiled: Compiled) -> Variant:
        """The variant for these layouts, from code that was compiled elsewhere."""
        with _compiling:
            if layouts not in self._made:
                self.stats.note(layouts, compiled)
                self._made[layouts] = self._loaded(layouts, compiled)
            return self._made[layouts]

    def cached(self, layouts: Layouts) -> Compiled | None:
        """Its code, if the code cache has it."""
        return None if VERIFY.read() else self._load(self.target, layouts)

    def _load(
        self, target: Target, layouts: Layouts, whole: bool = False, exactly: bool = False
    ) -> Compiled | None:
        """From the code cache: for all sizes if it has that, or else `whole` is asked for."""
        parts = ("all", "") if whole else ("some", "") if exactly else ("all", "some", "")
        found = (CodeCache.default().load(self._key(target, layouts, part)) for part in parts)
        return next((x for x in found if x and not (whole and x.leaves_out)), None)

    def _make(
        self, layouts: Layouts, whole: bool, asked: Asked | None, exactly: bool = False
    ) -> Variant:
        target = self.target
        if not exactly:
            self.plan.device.require(target)
        found = None if VERIFY.read() else self._load(target, layouts, whole, exactly)
        if found is not None:
            self.require_plans(layouts, found)
            self.stats.note(layouts, found)
            return self._loaded(layouts, found)
        return self._begun(target, layouts, whole, asked)

    def _begun(self, target: Target, layouts: Layouts, whole: bool, asked: Asked | None) -> Variant:
        """Code is generated, and kept once there is all of it."""
        from tcsym.compiler import begin_program
        from tcsym.runtime.growing import GrowingKernel

        given = self.options, self.fixed, layouts, self.context
        begun = begin_program(self.plan.program, target, *given, whole=whole, wide=self.wide)
        if asked is not None and begun.leaves_out(_values(self._slots(begun.compiled()), *asked)):
            begun = begin_program(self.plan.program, target, *given, whole=True)
        self.require_plans(layouts, begun.compiled())
        noted = [self.stats.note(layouts, begun.compiled())]

        def grown(compiled: Compiled, is_all: bool) -> None:
            noted.append(self.stats.renew(noted.pop(), compiled))
            if is_all:
                self.keep(layouts, compiled, whole)

        kernel = GrowingKernel(begun, self._load_code, grown)
        if self.plan.inouts:
            kernel.whole()  # a call that lacks some of it would have to be begun again
        return self.variant_of(layouts, kernel.compiled, kernel)

    def require_plans(self, layouts: Layouts, compiled: Compiled) -> None:
        """Nothing is asked for in vain, also where the code was kept. Errors: OptionError."""
        if self.plans == "free" or not compiled.warnings:
            return
        found = [plan_error(text, self.options) for text in compiled.warnings]
        if self.plans == "required" and layouts == self.dense:
            first, *others = found
            if not first.line:
                raise OptionError("; ".join(compiled.warnings))
            first.others = tuple(others)
            raise first
        for error in found:
            warnings.warn(TCWarning("plan", error), stacklevel=3)

    def _loaded(self, layouts: Layouts, compiled: Compiled) -> Variant:
        return self.variant_of(layouts, compiled, self._load_code(compiled))

    def _load_code(self, compiled: Compiled) -> LoadedCode:
        return self.plan.device.load(compiled, self.plan.fault_error)

    def variant_of(self, layouts: Layouts, compiled: Compiled, kernel: Code) -> Variant:
        """Loaded code, and where its arguments come from."""
        known = (*self.ranks, *[name for name, _ in compiled.held])
        position = {name: k for k, name in enumerate(known)}
        pointers = tuple(position[name] for name in compiled.arguments)
        return Variant(layouts, kernel, pointers, self._slots(compiled))

    def keep(self, layouts: Layouts, compiled: Compiled, whole: bool) -> None:
        """Put code into the code cache. whole: it was asked to serve all sizes."""
        target = self.target
        about = {"name": self.plan.program.name, "target": target.name}
        part = "all" if whole else "some" if compiled.leaves_out else ""
        key = self._key(target, layouts, part)
        CodeCache.default().store(key, compiled, about)

    def _key(self, target: Target, layouts: Layouts, part: str) -> str:
        """part: of the sizes; empty where no sizes are so seldom that they may be left out."""
        program = self.plan.program
        # made of another: another hash, padded: more sizes
        parts = program.name, program.source, program.canonical, *program.sizes
        identity = "\n".join((*parts, part, *["wide"] * self.wide))
        return code_key(identity, target, self.options, self.fixed, layouts, self.context)

    def _slots(self, compiled: Compiled) -> Slots:
        known = (*self.plan.sizes, BINDING)
        where: dict[str, int | tuple[int, int]] = {n: k for k, n in enumerate(known)}
        for k, (name, rank) in enumerate(self.ranks.items()):
            where |= {stride_name(name, d): (k, d) for d in range(rank)}
        return tuple(where[name] for name in compiled.sizes)
