"""Program -> the text of a def with gradients of its inputs, or tangents of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.differentiate.activity import Activity, activity
from tcsym.differentiate.forward import Forward
from tcsym.differentiate.header import Header, written
from tcsym.differentiate.names import Names, gradient_names, names_of, written_plainly
from tcsym.differentiate.needed import defined_first, needed_for, needed_items
from tcsym.differentiate.reverse import Reverse
from tcsym.differentiate.single import Single, single_assignment
from tcsym.errors import DerivativeError
from tcsym.frontend.program import Program, Tensor, reads, statements

Analyse = Callable[[str], Program]


class _Analysed(Struct, frozen=True):
    """A program in single assignment, and what its derivative is about.

    called: names of gradients or tangents. outputs: those that depend on `inputs`.
    """

    program: Program
    single: Single
    names: Names
    called: dict[str, str]
    activity: Activity
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


def _analysed(program: Program, wrt: Collection[str] | None) -> _Analysed:
    """Errors: DerivativeError."""
    assert not program.inouts  # they are inputs and outputs by now
    program = written_plainly(program)
    inputs = differentiable(program, wrt)
    names, called = names_of(program), gradient_names(program)
    names.taken |= set(called.values())
    single = single_assignment(program, names)
    floats = [t for t in program.outputs if t.dtype.is_float]
    found = activity(single, frozenset(t.name for t in inputs), frozenset(t.name for t in floats))
    outputs = [t for t in floats if t.name in found.active]
    if not outputs:
        raise _independent(program, inputs)
    return _Analysed(program, single, names, called, found, inputs, outputs)


def gradient_text(
    program: Program, wrt: Collection[str] | None, *, outputs: bool, analyse: Analyse
) -> str:
    """The def `<name>_grad`. outputs: whether it may take what the program computed.

    analyse: text of one def -> its program.
    """
    whole = _analysed(program, wrt)
    program, single, names, called = whole.program, whole.single, whole.names, whole.called
    given = {t.name: replace(t, name=called[t.name], role="input") for t in whole.outputs}
    results = {t.name: replace(t, name=called[t.name], role="output") for t in whole.inputs}
    reverse = Reverse(single, names, whole.activity, frozenset(program.sizes), given)
    back = reverse.run(results)
    taken = {t.name for t in program.outputs} if outputs else set()
    forward, used = needed_items(single, back, reverse.beside, taken)
    named = [t.name for t in results.values()]
    items = defined_first((*forward, *back), single, named, names)
    header = Header(
        f"{program.name}_grad",
        program,
        tuple(t for t in program.inputs if t.name in used),
        tuple(t for t in program.outputs if t.name in used and t.name in taken),
        tuple(given.values()),
        tuple(results.values()),
    )
    return written(header, items, names, analyse)


def tangent_text(program: Program, wrt: Collection[str] | None, *, analyse: Analyse) -> str:
    """The def `<name>_jvp`: inputs and tangents of those in `wrt` -> tangents of the outputs."""
    whole = _analysed(program, wrt)
    program, single, names, called = whole.program, whole.single, whole.names, whole.called
    inputs, outputs = whole.inputs, whole.outputs
    tangents = {t.name: replace(t, name=called[t.name]) for t in (*inputs, *outputs)}
    forward = Forward(single, names, whole.activity)
    results = tuple(tangents[t.name] for t in outputs)
    items = needed_for(forward.run(tangents), [t.name for t in results])
    items = defined_first(items, single, [t.name for t in results], names)
    used = {r.tensor for s in statements(items) for e in s.expressions for r in reads(e)}
    header = Header(
        f"{program.name}_jvp",
        program,
        tuple(t for t in program.inputs if t.name in used),
        (),
        tuple(tangents[t.name] for t in inputs),
        results,
    )
    return written(header, items, names, analyse)


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


def _independent(program: Program, inputs: Sequence[Tensor]) -> DerivativeError:
    listed = ", ".join(f"`{t.name}`" for t in inputs)
    return DerivativeError(f"no floating output of `{program.name}` depends on {listed}")
