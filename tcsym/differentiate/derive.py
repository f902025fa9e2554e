# SPDX-License-Identifier: Apache-2.0
"""Program -> the text of a def with gradients of its inputs, or tangents of its outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from tcsym.differentiate.activity import Activity, activity
from tcsym.differentiate.forward import Forward
from tcsym.differentiate.header import Header, program_of
from tcsym.differentiate.names import Names, Renamed, gradient_names, names_of
from tcsym.differentiate.needed import (
    dear,
    defined_first,
    needed_for,
    needed_items,
    of_other_roundings,
    with_all,
    zeros,
)
from tcsym.differentiate.normalised import from_quotients
from tcsym.differentiate.parts import with_parts
from tcsym.differentiate.reverse import Reverse
from tcsym.differentiate.segments import Segmented, in_segments
from tcsym.differentiate.single import Single, single_assignment
from tcsym.differentiate.vanishing import forms_of
from tcsym.errors import DerivativeError, IndependentError, InitError, TCSyntaxError
from tcsym.frontend.names import written_plainly
from tcsym.frontend.program import For, Item, Program, Statement, Tensor, Trap, reads, statements
from tcsym.frontend.unparse import is_declarable
from tcsym.index.expr import Index


class _Analysed(Struct, frozen=True):
    """A program in single assignment, and what its derivative is about.

    called: names of gradients or tangents. outputs: those that depend on `inputs`.
    """

    program: Program
    segmented: Segmented
    names: Names
    called: dict[str, str]
    activity: Activity
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]

    @property
    def single(self) -> Single:
        return self.segmented.single


def _analysed(
    program: Program, wrt: Collection[str] | None, cut_loops: Collection[str] = ()
) -> _Analysed:
    """cut_loops: those, by their variables, that go segment by segment. Errors: DerivativeError."""
    assert not program.inouts  # they are inputs and outputs by now
    program = written_plainly(program)
    program = replace(program, body=Renamed({}).items(program.body))
    inputs = differentiable(program, wrt)
    names, called = names_of(program), gradient_names(program)
    names.taken |= set(called.values())
    single = with_parts(single_assignment(program, names), names)
    cut = in_segments(single, names, program.sizes, cut_loops)
    single = cut.single
    floats = [t for t in program.outputs if t.dtype.is_float]
    found = activity(single, frozenset(t.name for t in inputs), frozenset(t.name for t in floats))
    outputs = [t for t in floats if t.name in found.active]
    if not outputs:
        raise _independent(program, inputs)
    return _Analysed(program, cut, names, called, found, inputs, outputs)


class Recompute(StrEnum):
    """What a gradient computes again; it takes the rest as arguments."""

    AUTO = "auto"  # all but outputs
    ALL = "all"
    NONE = "none"  # nothing
    CHEAP = "cheap"  # what takes no sum and no steps, from what did
    SQRT = "sqrt"  # all but outputs; states of loops from some of them, segment by segment


class Gradient(Struct, frozen=True):
    """The statements of a gradient: what is computed again, then those that go back.

    taken: tensors of the program that are arguments. saved: those of them that are no outputs;
    `beside` belongs behind statements of the program, for these.
    """

    whole: _Analysed
    forward: tuple[Item, ...]
    back: tuple[Item, ...]
    used: frozenset[str]
    taken: frozenset[str]
    saved: tuple[Tensor, ...]
    beside: Mapping[int, tuple[Statement, ...]]
    given: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    in_parts: frozenset[str]  # what loops over segments write

    @property
    def copies(self) -> tuple[Trap, ...]:
        """What is to be said of the copies that it keeps."""
        return copied(self.whole.single, self.used)

    @property
    def program(self) -> Program:
        return self.whole.program


def gradient(program: Program, wrt: Collection[str] | None, recompute: Recompute) -> Gradient:
    """Errors: DerivativeError."""
    loops = set[str]()
    if recompute is Recompute.SQRT:  # of loops that are run again, and store all their states
        plain = gradient(program, wrt, Recompute.AUTO)
        loops = {x.variable for x in plain.forward if isinstance(x, For)}
    whole = _analysed(program, wrt, loops)
    program, single, names, called = whole.program, whole.single, whole.names, whole.called
    cut = whole.segmented
    given = {t.name: replace(t, name=called[t.name], role="input") for t in whole.outputs}
    results = {t.name: replace(t, name=called[t.name], role="output") for t in whole.inputs}
    outputs = {t.name for t in program.outputs}
    taken = outputs | cut.kept if recompute is not Recompute.ALL else set[str]()
    sizes = cut.sizes.union(program.sizes)
    forms = forms_of(single.items)
    activity = whole.activity
    are_compared = recompute in (Recompute.AUTO, Recompute.SQRT)
    again = of_other_roundings(single.items, taken) if are_compared else set[str]()
    of_tensors = given, forms, results, frozenset(taken), frozenset(again)
    reverse = Reverse(cut, names, activity, sizes, *of_tensors)
    back = tuple(reverse.run())
    items = with_all(single.items, reverse.beside)
    if recompute is Recompute.NONE:
        taken |= {s.target for s in statements(items)}
    elif recompute is Recompute.CHEAP:
        taken |= dear(items)
        items = from_quotients(items, taken)
    parts = [x for x in items if isinstance(x, For) and x.variable in cut.inner]
    in_parts = frozenset(s.target for s in statements(tuple(parts)))
    forward, used = needed_items(items, back, taken | in_parts)
    made = dict.fromkeys(s.target for s in statements(items))
    saved = [single.tensors[n] for n in made]
    saved = [t for t in saved if t.name in used & taken and t.name not in outputs]
    said = {str(e) for t in saved for e in t.shape}
    back = tuple(cut.ranged(cut.counted(back, cut.counts.keys() - said)))
    return Gradient(
        whole,
        forward,
        back,
        used,
        frozenset(taken),
        tuple(saved),
        reverse.beside,
        tuple(given.values()),
        tuple(results.values()),
        in_parts,
    )


def copied(single: Single, used: Collection[str]) -> tuple[Trap, ...]:
    return tuple(dict.fromkeys(trap for name, trap in single.copied.items() if name in used))


def segment_steps(program: Program, wrt: Collection[str]) -> Mapping[str, Index]:
    """Of what `Recompute.SQRT` makes: size parameter -> the steps of the loops that it cuts."""
    return gradient(program, wrt, Recompute.SQRT).whole.segmented.steps


def gradient_program(made: Gradient) -> Program:
    """The def `<name>_grad`. Errors: DerivativeError."""
    program, single, names = made.program, made.whole.single, made.whole.names
    named = [t.name for t in made.results]
    own = (*made.forward, *made.back)
    items = defined_first(own, single, named, names)
    items = (*made.whole.segmented.ranged(items[: len(items) - len(own)]), *own)
    taken = [t for t in program.outputs if t.name in made.used & made.taken]
    header = Header(
        f"{program.name}_grad",
        program,
        tuple(t for t in program.inputs if t.name in made.used),
        (*taken, *made.saved),
        made.given,
        made.results,
        tuple(made.whole.segmented.steps),
    )
    return _shown(header, items, single, names)


def _shown(header: Header, items: tuple[Item, ...], single: Single, names: Names) -> Program:
    """The def; DerivativeError if it cannot be shown to write what it reads, or be written."""
    try:
        return program_of(header, items, single.tensors, names)
    except InitError as error:  # of segments, not all that is true can be seen
        message = f"a derivative of `{header.program.name}` cannot be shown right: {error.message}"
        hint = 'that of another gradient may be: recompute="auto", "cheap" or "all"'
        raise DerivativeError(message, hint=hint) from None
    except TCSyntaxError as error:  # only limits of the text can be
        message = f"the derivative is too large: {error.message}"
        raise DerivativeError(
            message, hint="name parts of long values in statements of their own"
        ) from None


def saving_program(made: Gradient) -> Program:
    """The def `<name>_saving`: it also gives what the gradient takes beside outputs."""
    program, single, names = made.program, made.whole.single, made.whole.names
    cut, results = made.whole.segmented, (*program.outputs, *made.saved)
    named = [t.name for t in results]
    declared = [t.name for t in results if is_declarable(t, program)]
    items = needed_for(with_all(single.items, made.beside), named)
    items = defined_first(items, single, declared, names)
    # segment by segment, it cannot be seen that all is written
    partly = [n for n in named if n in made.in_parts and n not in cut.checkpoints]
    results = tuple(replace(t, shape=tuple(map(cut.count, t.shape))) for t in results)
    sizes = (*(p.name for p in program.size_parameters), *cut.steps)  # it is called like `program`
    header = Header(f"{program.name}_saving", program, program.inputs, (), (), results, sizes)
    items = (*zeros(partly, single, names), *items)
    while True:
        try:
            found = program_of(header, cut.counted(items), single.tensors, names)
            said = [c.message for c in found.checks if c.kind == "init"]
        except InitError as error:
            found, said = None, [e.message for e in (error, *error.others)]
        more = _not_whole(said, made.saved, partly)
        if found is not None and not more:
            return found
        if not more:
            raise DerivativeError(said[0])
        partly += more
        items = (*zeros(more, single, names), *items)


def _not_whole(said: Collection[str], saved: Collection[Tensor], known: Sequence[str]) -> list[str]:
    """Names of results of which some elements may not be written: nothing reads those."""
    found = [t.name for t in saved if any(f"`{t.name}`" in text for text in said)]
    return [n for n in found if n not in known]


def tangent_program(
    program: Program, wrt: Collection[str] | None, recompute: Recompute = Recompute.ALL
) -> Program:
    """The def `<name>_jvp`: inputs and tangents of those in `wrt` -> tangents of the outputs.

    Unless all is computed again, it also takes outputs.
    """
    whole = _analysed(program, wrt)
    program, single, names, called = whole.program, whole.single, whole.names, whole.called
    inputs, outputs = whole.inputs, whole.outputs
    tangents = {t.name: replace(t, name=called[t.name]) for t in (*inputs, *outputs)}
    given = {t.name for t in program.outputs} if recompute is not Recompute.ALL else set[str]()
    again = frozenset(of_other_roundings(single.items, given))
    forward = Forward(single, names, whole.activity, again)
    results = tuple(tangents[t.name] for t in outputs)
    items = from_quotients(forward.run(tangents), given)
    items = needed_for(items, [t.name for t in results], given)
    declared = [t.name for t in results if is_declarable(t, program)]
    items = defined_first(items, single, declared, names)
    used = {r.tensor for s in statements(items) for e in s.expressions for r in reads(e)}
    header = Header(
        f"{program.name}_jvp",
        program,
        tuple(t for t in program.inputs if t.name in used),
        tuple(t for t in program.outputs if t.name in used & given),
        tuple(tangents[t.name] for t in inputs),
        results,
    )
    return _shown(header, items, single, names)


def differentiable(program: Program, wrt: Collection[str] | None) -> Sequence[Tensor]:
    """The inputs that `wrt` names. Errors: DerivativeError."""
    known = {t.name: t for t in program.inputs}
    if wrt is None:
        found = [t for t in program.inputs if t.dtype.is_float]
        if not found:
            raise DerivativeError(f"`{program.name}` has no input of a floating type")
        return found
    wanted = [wrt] if isinstance(wrt, str) else list(wrt)
    for name in wanted:
        if name not in known:
            listed = ", ".join(known) or "none"
            message = f"`{name}` in `wrt` is no input of `{program.name}`"
            raise DerivativeError(message, hint=f"inputs are {listed}")
        if not known[name].dtype.is_float:
            message = f"`{name}` in `wrt` has type {known[name].dtype}: it has no gradient"
            raise DerivativeError(message, hint="leave it out of `wrt`")
    if not wanted:
        raise DerivativeError("`wrt` names no input")
    return [t for t in program.inputs if t.name in wanted]


def _independent(program: Program, inputs: Sequence[Tensor]) -> IndependentError:
    listed = ", ".join(f"`{t.name}`" for t in inputs)
    return IndependentError(f"no floating output of `{program.name}` depends on {listed}")
