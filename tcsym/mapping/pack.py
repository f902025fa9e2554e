# SPDX-License-Identifier: Apache-2.0
"""Sums of products of short numbers -> dot products of two or four terms at once (`ir.packed`).

A loop of such a sum counts packs of terms; what is left of it stays as it was, behind it.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Call, Expr, Read
from tcsym.index.expr import ZERO, floordiv, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Loop, Node, Store, Update, Value, block
from tcsym.ir.packed import PACK, SHORT, available, dot, pack
from tcsym.ir.traverse import loads, map_node, substitute_node, substitute_value, subvalues, walk
from tcsym.mapping.dot_terms import DotTerm, dot_terms
from tcsym.mapping.plan import Refused
from tcsym.mapping.tree import Mapping_, found, replaced, variables_of
from tcsym.target.machine import Machine


def term_of(x: Update, sums: frozenset[str], machine: Machine) -> DotTerm | None:
    """How the target adds several terms at once, if it does without owing anything."""
    return next((t for t in dot_terms(x, None, sums, available(machine)) if not t.owed), None)


def steps_at_once(x: Update, loops: tuple[Loop, ...], machine: Machine) -> int:
    """Terms of a sum in these loops that one instruction adds."""
    term = term_of(x, frozenset(y.variable for y in loops), machine)
    return 1 if term is None else term.steps


def adds_apart(x: Update, machine: Machine) -> bool:
    """Another instruction than makes a product of packs adds it to the sum, on many processors."""
    if isinstance(x.value, Call):
        return x.value.function == SHORT
    term = term_of(x, frozenset(), machine)
    return term is not None and term.function == SHORT


def is_run(x: Update, operand: str, machine: Machine) -> bool:
    """What is packed of the operand is what lies in memory, if that is along the terms."""
    term = term_of(x, frozenset(), machine)
    sides = () if term is None else (term.left, term.right)
    return any(isinstance(v, Read) and v.tensor == operand for v in sides)


def packed(m: Mapping_, axis: str, steps: int) -> Mapping_:
    """The loop counts packs of so many terms, and another one what is left."""
    loop = found(m.node, axis)
    statements = [x for x, _ in walk(loop) if isinstance(x, Store | Update)]
    inside = [x for x, _ in walk(loop) if isinstance(x, Loop)]
    x = statements[0]
    if loop.order != "reduction" or len(statements) != 1 or not isinstance(x, Update):
        raise Refused(f"{axis} is no loop of one sum alone")
    if any(axis in y.end_variables for y in inside):
        raise Refused(f"ranges inside of {axis} move")
    around = next(y for z, y in walk(m.node) if z is loop)
    sums = frozenset(y.variable for y in (*around, *inside) if y.order == "reduction")
    term = term_of(x, sums, m.machine)
    if term is None:
        raise Refused(f"no instruction of the target adds several terms of {axis}")
    if term.steps != steps:
        raise Refused(f"{term.steps} terms of {axis} are added at once, not {steps}")
    sides = (term.left, term.right)
    if not all(axis in variables_of(s for r in loads(v) for s in r.subscripts) for v in sides):
        raise Refused(f"{axis} moves one factor only")
    most = {axis: floordiv(m.most[axis], steps)} if axis in m.most else {}
    node = replaced(m.node, axis, lambda _: _in_packs(loop, x, term))
    return replace(m, node=node, most={**m.most, **most})


def _in_packs(loop: Loop, x: Update, term: DotTerm) -> Node:
    n, axis = extent(loop), loop.variable
    first = loop.lower + var(axis) * term.steps

    def side(v: Expr) -> Expr:
        moved = (substitute_value(v, {axis: first + k}) for k in range(term.steps))
        return pack(tuple(moved))  # type: ignore[arg-type]

    value = dot(term.function, side(term.left), side(term.right))
    body = map_node(loop.body, lambda y: replace(y, value=value) if y is x else y)
    whole = replace(loop, lower=ZERO, upper=floordiv(n, term.steps), body=body)
    if n.constant % term.steps == 0 and all(c % term.steps == 0 for _, c in n.terms):
        return whole
    rest = f"{axis}_rest"
    left = substitute_node(loop.body, {axis: var(rest)})
    lower = loop.lower + whole.upper * term.steps
    return block(whole, replace(loop, variable=rest, lower=lower, body=left))


def packs_of(value: Value, operand: str) -> list[Value]:
    """What packs elements of the operand in a value."""
    parts = (v for v in subvalues(value) if is_pack(v))
    return [v for v in parts if any(r.tensor == operand for r in loads(v))]


def is_pack(v: Value | None) -> bool:
    return isinstance(v, Call) and v.function == PACK


def first_read(v: Value, operand: str) -> Read:
    return next(r for r in loads(v) if r.tensor == operand)
