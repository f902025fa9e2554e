# SPDX-License-Identifier: Apache-2.0
"""Steps whose result may take the storage of an input that dies there, and these steps as programs.

One statement alone reads the input, and it is the first that writes the result, each element from
the input's element at the same place. Then every point reads what only it overwrites, and the step
is the same program with one tensor, which it updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from tcsym.frontend.program import (
    Expr,
    For,
    If,
    Item,
    Program,
    Read,
    Statement,
    reads,
    rewritten,
    statements,
)
from tcsym.network.steps import Step, lifetimes, with_hash
from tcsym.network.turns import Turns

Pairs = Mapping[str, str]  # result -> input whose storage it may take


def pairs(program: Program, steps: Sequence[Step], turns: Turns) -> Pairs:
    """For each result the first such input; steps of its turn leave that alone."""
    alive = lifetimes(program, steps, turns)
    passed_on = {t.name for t in program.by_role("temporary")}
    found: dict[str, str] = {}
    for k, turn, beside in [(k, t, turns[t]) for t in range(len(turns)) for k in turns[t]]:
        step, others = steps[k], [steps[x] for x in beside if x != k]
        dying = [n for n in step.reads if n in passed_on and alive[n][1] == turn > alive[n][0]]
        dying = [n for n in dying if not any(n in x.reads for x in others)]
        for result in step.writes:
            name = next((n for n in dying if _replaces(step.program, result, n)), None)
            if name is not None and name not in found.values():
                found[result] = name
    return found


def _replaces(program: Program, result: str, name: str) -> bool:
    """`result` may be written over `name`."""
    to, source = program.tensor(result), program.tensor(name)
    if (to.role, to.dtype, to.shape) != ("output", source.dtype, source.shape):
        return False
    readers = [s for s in statements(program.body) if any(name == r.tensor for r in _reads(s))]
    first = next(s for s in statements(program.body) if s.target == result)
    if readers != [first] or first not in program.body or first.op != "=":
        return False
    if first.scattered or first.given or first.exists:
        return False
    own = [r for r in _reads(first) if r.tensor in (name, result)]
    return all(r.tensor == name and r.subscripts == first.subscripts for r in own)


def _reads(s: Statement) -> Iterator[Read]:
    for e in s.expressions:
        yield from reads(e)


def updating(step: Step, result: str, name: str) -> Step:
    """The step that has `name` in `result` at first."""
    program = step.program

    def renamed(e: Expr, _: Expr) -> Expr:
        return replace(e, tensor=result) if isinstance(e, Read) and e.tensor == name else e

    def item(x: Item) -> Item:
        match x:
            case Statement():
                return replace(x, value=rewritten(x.value, renamed)) if x.target == result else x
            case For():
                return replace(x, body=tuple(map(item, x.body)))
            case If():
                return replace(x, then=tuple(map(item, x.then)), orelse=tuple(map(item, x.orelse)))

    given = [t for t in program.inputs if t.name != name]
    updated = replace(program.tensor(result), role="inout")
    rest = [t for t in program.tensors if t.name not in (result, name) and t not in given]
    made = replace(
        program, tensors=(*given, updated, *rest), body=tuple(map(item, program.body)), checks=()
    )
    return replace(step, program=with_hash(made))
