# SPDX-License-Identifier: Apache-2.0
"""The pipeline on one page: source text -> program -> schedule -> loops -> code of a target.

Every stage is a function between immutable values; each value prints as text (`explain_stage`).
From naive loops on, stages are those of the target's back end (`backend.BACKENDS`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tcsym.backend import BACKENDS, COSTS, DEVICE_STAGES, Backend, Modules
from tcsym.display.explained import Explanation
from tcsym.display.progress import Progress, tell
from tcsym.errors import OptionError, TargetError
from tcsym.frontend.program import Program
from tcsym.ir.compiled import Compiled, Layout
from tcsym.options import Bind, Options, plan_error
from tcsym.process.recursion import depth_checked
from tcsym.sizes.context import Context
from tcsym.target.target import Target

if TYPE_CHECKING:
    from tcsym.ir.loops import Kernel
    from tcsym.polyhedral.tree import Tree
    from tcsym.proved import Scheduled
    from tcsym.schedule.map_cpu import Mapped

FRONTEND = ("syntax", "program", "ranges")
STAGES = (*FRONTEND, "scop", "dependences", "schedule", "loops", "plan", "mapped")  # of all targets
Result = TypeVar("Result")


@depth_checked
def analyse(source: str, filename: str = "<tc>") -> dict[str, Program]:
    """Text -> typed programs, one for each def. Errors: every compile-phase kind of LANGUAGE D."""
    from tcsym.frontend.canonical import canonical_hash
    from tcsym.frontend.check import resolve
    from tcsym.frontend.infer import infer
    from tcsym.frontend.parser import parse

    resolved = resolve(parse(source, filename))
    return {n: replace(infer(p), canonical=canonical_hash(p)) for n, p in resolved.items()}


def schedule_tree(program: Program, options: Options) -> Tree:
    """The proved schedule of a program for all sizes, all arguments dense."""
    from tcsym.proved import schedule_program

    dense: Layout = "dense"
    layouts = {t.name: dense for t in (*program.inputs, *program.outputs)}
    return schedule_program(program, options, layouts).tree


class Lowering(Struct):
    """Values of all stages of one variant, and the milliseconds each took. wide: loops stay as they
    are, for sizes that leave no room for what mapping computes (`runtime.limits`)."""

    program: Program
    target: Target
    options: Options
    fixed: Mapping[str, int]
    layouts: tuple[Layout, ...]
    context: Context
    milliseconds: dict[str, float]
    wide: bool = False

    @property
    def backend(self) -> Backend:
        return BACKENDS[self.target.kind]

    def timed(self, stage: str, run: Callable[[], Result]) -> Result:
        """The milliseconds of a stage that runs several times add up."""
        tell(stage)
        start = time.perf_counter()
        result = run()
        spent = (time.perf_counter() - start) * 1e3
        self.milliseconds[stage] = self.milliseconds.get(stage, 0.0) + spent
        return result

    def scheduled(self) -> Scheduled:
        from tcsym.proved import schedule_program
        from tcsym.rewrite.bind import bind_kernel, bind_program
        from tcsym.schedule.analysis.assume import assume

        bound = bind_program(self.ordered(), self.bound("before"))
        arguments = [t.name for t in (*bound.inputs, *bound.outputs)]
        layouts = dict(zip(arguments, self.layouts, strict=True))
        given = self.options, layouts, self.context
        result = self.timed("schedule", lambda: schedule_program(bound, *given))
        return replace(result, kernel=assume(bind_kernel(result.kernel, self.bound("after"))))

    def bound(self, when: Bind) -> dict[str, int]:
        """The fixed sizes that become numbers then."""
        bind, bind_of = self.options.bind, self.options.bind_of
        return {n: v for n, v in self.fixed.items() if bind_of.get(n, bind) == when}

    def ordered(self) -> Program:
        """The program with its chains of products in the order that the options say."""
        from tcsym.rewrite.reorder_chains import best_chains, reorder_chains

        k = self.options.chains
        if k == 0:
            return best_chains(self.program, self.fixed)
        return self.program if k == 1 else reorder_chains(self.program, k - 1)

    def mapped(self, scheduled: Scheduled, whole: bool = False) -> Mapped:
        """whole: with the code for what few sizes need. Errors: OptionError for an unknown plan."""
        from tcsym.schedule.wanted import require_plans

        require_plans(self.options)
        given = scheduled.kernel, self.target, self.options, whole
        if self.wide:
            return self.timed("map", lambda: self.backend.plain(scheduled.kernel, self.target))
        return self.timed("map", lambda: self.backend.map(*given))

    def begun(self, mapped: Mapped) -> Modules:
        """Nothing but the main module, written."""
        given = mapped.kernel, self.target, self.options.min_work_per_thread
        return self.timed("emit", lambda: self.backend.begin(*given))


MOST_LOOPS_AT_ONCE = 370  # about half a second of emission and LLVM


class Unfinished:
    """A variant that is mapped; its code is made as calls need it. Not for two threads at once."""

    def __init__(self, stages: Lowering, whole: bool = False) -> None:
        from tcsym.ir.loops import Loop
        from tcsym.ir.traverse import walk
        from tcsym.schedule.stage.binding import held_bytes

        self._stages = stages
        scheduled = stages.scheduled()
        mapped = stages.mapped(scheduled, whole)
        self._left_out = mapped.kernel.left_out
        self.sizes = mapped.kernel.sizes
        self._about = mapped.kernel.arguments, scheduled.notes, mapped.notes, mapped.warnings
        self._held = held_bytes(mapped.kernel)
        self._code = stages.begun(mapped)
        loops = sum(isinstance(x, Loop) for x, _ in walk(mapped.kernel.body))
        self.is_large = loops > MOST_LOOPS_AT_ONCE

    def needed(self, sizes: Sequence[int]) -> frozenset[str]:
        """The modules that calls of these sizes wait for: all, unless that would take long."""
        if not self.is_large:
            return frozenset(self._code.missing())
        return frozenset(self._code.needed(dict(zip(self.sizes, sizes, strict=True))))

    def leaves_out(self, sizes: Sequence[int]) -> bool:
        """True if a call of these sizes is left to another variant."""
        return self._code.leaves_out(dict(zip(self.sizes, sizes, strict=True)))

    def missing(self) -> tuple[str, ...]:
        """The modules that are not made yet, in the order in which they may be linked."""
        return self._code.missing()

    @depth_checked
    def make(self, names: Sequence[str]) -> None:
        """Make these modules for a call that waits. LLVM works beside the emission: its time is
        what remains.
        """
        if not names:
            return
        code, timed = self._code, self._stages.timed
        assembling = self._stages.backend.assembler(self._stages.target)
        with Progress(f"compile {self._stages.program.name}"), assembling as assembler:
            written = timed("emit", lambda: code.write(names, assembler.add))
            code.add(written, timed("llvm", assembler.objects))

    @depth_checked
    def write(self, name: str) -> tuple[list[str], list[str]]:
        """This module and what it calls: names and texts of those that are not made yet."""
        texts = list[str]()
        written = self._stages.timed("rest", lambda: self._code.write([name], texts.append))
        return written, texts

    def assembled(self, texts: Iterable[str]) -> list[bytes]:
        """Their object code, made in this thread. (Others may work on this variant meanwhile.)"""
        target, assemble = self._stages.target, self._stages.backend.assemble
        return self._stages.timed("rest", lambda: [assemble(x, target) for x in texts])

    def add(self, names: Iterable[str], objects: Iterable[bytes]) -> None:
        """The code of modules that were written."""
        self._code.add(names, objects)

    def compiled(self) -> Compiled:
        """What there is. Without some of its modules a call of other sizes would miss a task."""
        code, (arguments, fallbacks, notes, warnings) = self._code, self._about
        return Compiled(
            object_code=code.archive(),
            sizes=self.sizes,
            arguments=arguments,
            faults=code.faults,
            shared_bytes=code.shared_bytes,
            private_bytes=code.private_bytes,
            fallbacks=fallbacks,
            notes=notes,
            warnings=warnings,
            milliseconds=tuple(self._stages.milliseconds.items()),
            left_out=self._left_out,
            device_code=code.device_code,
            device_functions=code.device_functions,
            held=self._held,
        )


@depth_checked
def begin_program(
    program: Program,
    target: Target,
    options: Options,
    fixed: Mapping[str, int],
    layouts: tuple[Layout, ...],
    context: Context = (),
    whole: bool = False,
    wide: bool = False,
) -> Unfinished:
    """One variant of `program`: arguments (inputs, then outputs) in the given layouts.

    Each of the `fixed` sizes becomes a number when `options.bind` says so; the caller guarantees
    their values, and that sizes lie in `context`. whole: it serves all of these; else it may leave
    some out. wide: as of `Lowering`.
    """
    stages = Lowering(program, target, options, fixed, layouts, context, {}, wide)
    with Progress(f"compile {program.name}"):
        return Unfinished(stages, whole)


def compile_program(
    program: Program,
    target: Target,
    options: Options,
    fixed: Mapping[str, int],
    layouts: tuple[Layout, ...],
    context: Context = (),
    wide: bool = False,
) -> Compiled:
    """As `begin_program`, with all of its code."""
    given = program, target, options, fixed, layouts, context
    begun = begin_program(*given, whole=True, wide=wide)
    begun.make(begun.missing())
    return begun.compiled()


def is_frontend(stage: str) -> bool:
    """True if the value of `stage` is the same for all versions of a program."""
    return stage in FRONTEND


def _stage_hint(stage: str, backend: Backend) -> str:
    from difflib import get_close_matches

    known = (*STAGES, *backend.stages, "options", "variants")
    close = get_close_matches(stage, known, 1)
    return f"{f'did you mean `{close[0]}`? ' if close else ''}stages are {', '.join(known)}"


@depth_checked
def explain_stage(
    program: Program,
    stage: str,
    target: Target,
    options: Options,
    fixed: Mapping[str, int],
    context: Context = (),
    wide: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> Explanation:
    """The value of `stage` as text, all arguments dense. OptionError for an unknown stage.

    sizes: what the reader asks for: lines that do not run at these are told (`Explanation.idle`).
    """
    backend = BACKENDS[target.kind]
    if stage in DEVICE_STAGES and stage not in backend.stages:
        hint = 'define the kernel with target="cuda:sm_90a", or another of its kind'
        raise TargetError(f"stage `{stage}` needs a CUDA target", hint=hint)
    if stage not in STAGES and stage not in backend.stages:
        raise OptionError(f"unknown stage `{stage}`", hint=_stage_hint(stage, backend))
    if is_frontend(stage):
        return Explanation(_frontend_text(program, stage), stage)
    n_arguments = len(program.inputs) + len(program.outputs)
    dense: tuple[Layout, ...] = tuple("dense" for _ in range(n_arguments))
    stages = Lowering(program, target, options, fixed, dense, context, {}, wide)
    scheduled = stages.scheduled()
    if stage in ("scop", "dependences"):
        return Explanation(str(getattr(scheduled, stage)), stage)
    if stage == "schedule":
        return Explanation(str(scheduled.tree), stage)
    if stage == "loops":
        return _loops_text(stage, scheduled.kernel, (), sizes or {})
    if stage == COSTS:
        return _costs_text(scheduled.kernel, target, options, {**fixed, **(sizes or {})})
    mapped = stages.mapped(scheduled)
    if stage == "plan":
        return _plan_text(mapped, target, options, sizes or {})
    if stage == "mapped":
        return _loops_text(stage, mapped.kernel, (*scheduled.notes, *mapped.notes), sizes or {})
    made = backend.explain(stage, mapped.kernel, target, options.min_work_per_thread)
    return Explanation(made, stage)


def _loops_text(
    stage: str, kernel: Kernel, notes: Iterable[object], sizes: Mapping[str, int]
) -> Explanation:
    from tcsym.ir.idle import idle_lines
    from tcsym.ir.text import kernel_text

    text = kernel_text(kernel)
    made = Explanation(text, stage, idle_lines(kernel, sizes, text.count("\n")))
    told = [f"# {note}" for note in notes]
    return made.after("\n".join(told)) if told else made


def _costs_text(
    kernel: Kernel, target: Target, options: Options, sizes: Mapping[str, int]
) -> Explanation:
    from tcsym.plan_costs import costs_text

    missing = [name for name in kernel.sizes if name not in sizes]
    if missing:
        example = ", ".join(f"{name}=37" for name in kernel.sizes)
        told = f"stage `{COSTS}` is of a call, and sizes lack a value: {', '.join(missing)}"
        raise OptionError(told, hint=f'give all sizes, as `explain("{COSTS}", {example})`')
    given = {name: sizes[name] for name in kernel.sizes}
    return Explanation(costs_text(kernel, target.machine, options, given), COSTS)


def _plan_text(
    mapped: Mapped, target: Target, options: Options, sizes: Mapping[str, int]
) -> Explanation:
    from tcsym.ir.idle import body_ranges
    from tcsym.plan_costs import told_by_cost
    from tcsym.schedule.plan_text import choices_lines

    known = body_ranges(mapped.kernel, sizes) if sizes else {}
    mapped = told_by_cost(mapped, target.machine, sizes)
    told = [str(plan_error(text, options)) for text in mapped.warnings]
    lines = [(f"# {line}", True) for text in told for line in text.splitlines()]
    lines += choices_lines(mapped.choices, mapped.kernel.sizes, known)
    idle = [k for k, (_, serves) in enumerate(lines) if not serves]
    return Explanation("".join(f"{text}\n" for text, _ in lines), "plan", idle)


def _frontend_text(program: Program, stage: str) -> str:
    from tcsym.frontend.program_text import program_text, ranges_text

    if stage == "syntax":
        from tcsym.frontend.format import format_program
        from tcsym.frontend.parser import parse

        return format_program(parse(program.source, program.filename))
    return program_text(program) if stage == "program" else ranges_text(program)
