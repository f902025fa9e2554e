# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which sums of a loop in order that need no step of it come before it.

`for t in T { G(n,h) +=! X(t,n,i) * W(h,i) ... }` is a product of matrices for each step, whose few
rows read all of W again. Here one product over all steps comes before the loop. A sum qualifies if
the loop writes nothing that it reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from msgspec.structs import replace

from tcsym.frontend.program import (
    Expr,
    For,
    Item,
    Program,
    Range,
    Read,
    Statement,
    Tensor,
    reads,
    statements,
)
from tcsym.index.expr import ZERO, Index, var
from tcsym.ir.traverse import substitute_value
from tcsym.types import DType


def hoist_sums(program: Program) -> Program:
    """Sums in loops that are not inside others."""
    body: list[Item] = []
    tensors: list[Tensor] = []
    for item in program.body:
        if isinstance(item, For) and item.lower == ZERO:
            inside: list[Item] = []
            written = {s.target for s in statements(item.body)}
            for s in item.body:
                if isinstance(s, Statement) and _is_apart(s, item, written, program):
                    tensors.append(_all_steps(s, item, program))
                    body.append(_at_once(s, item, program))
                    s = _one_step(s, item, tensors[-1])
                inside.append(s)
            item = replace(item, body=tuple(inside))
        body.append(item)
    if not tensors:
        return program
    return replace(program, body=tuple(body), tensors=(*program.tensors, *tensors))


def _is_apart(s: Statement, loop: For, written: Iterable[str], program: Program) -> bool:
    """A sum of products of what moves with the step and what does not, none of it from the loop."""
    target = program.tensor(s.target)
    if s.op != "+=" or not s.initialise or s.scattered or s.exists or not s.is_box:
        return False
    if target.role != "temporary" or target.dtype not in (DType.FLOAT32, DType.FLOAT64):
        return False
    ends = [e for r in s.domain for e in (r.lower, r.upper)]
    if any(loop.variable in e.variables() for e in (*ends, *s.subscripts)):
        return False
    found = tuple(reads(s.value))
    if any(r.tensor in written or r.unwritten is not None or any(r.checked) for r in found):
        return False
    moves = {_moves(r, loop.variable) for r in found}
    return moves == {True, False} and any(r.reduced for r in s.domain)


def _moves(r: Read, step: str) -> bool:
    return any(not isinstance(i, Index) or step in i.variables() for i in r.subscripts)


def _all_steps(s: Statement, loop: For, program: Program) -> Tensor:
    """One name for each statement, as a target may have several."""
    target = program.tensor(s.target)
    shape = (loop.upper, *target.shape)
    return Tensor(f"{s.target}.{s.name}", target.dtype, shape, "temporary")


def _at_once(s: Statement, loop: For, program: Program) -> Statement:
    used = {*program.sizes, *(r.variable for r in s.domain)}
    step = next(n for k in range(len(used) + 1) if (n := f"{loop.variable}_{k}") not in used)
    return replace(
        s,
        name=f"{s.name}.steps",
        target=f"{s.target}.{s.name}",
        subscripts=(var(step), *s.subscripts),
        domain=(Range(step, ZERO, loop.upper, False), *s.domain),
        value=cast(Expr, substitute_value(s.value, {loop.variable: var(step)})),
    )


def _one_step(s: Statement, loop: For, steps: Tensor) -> Statement:
    subscripts = (var(loop.variable), *s.subscripts)
    value = Read(steps.name, subscripts, steps.dtype, (False,) * len(subscripts), span=s.span)
    domain = tuple(r for r in s.domain if not r.reduced)
    return replace(s, op="=", initialise=False, domain=domain, value=value)
