# SPDX-License-Identifier: Apache-2.0
"""Proved schedule tree -> naive loop IR: serial loops with proved orders, stores, updates, guards.

Guards stand as far out as they go; neighbours under one condition share a branch, neighbours under
opposite conditions become its two arms. Temporaries are full-size arena buffers at the root; later
passes contract them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never, cast

from msgspec.structs import replace

from tcsym.frontend.positions import position_parts
from tcsym.frontend.program import MOST_GIVEN, Const, Expr, Program, Read, Select, Tensor
from tcsym.index.expr import (
    TRUE,
    ZERO,
    All,
    Condition,
    Index,
    all_of,
    condition_variables,
    ge,
    maximum,
    negate,
    var,
)
from tcsym.index.values import condition_substitute, conjuncts, substitute
from tcsym.ir.bounds import is_nonnegative
from tcsym.ir.compiled import Layout, layout_strides
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    LoopOrder,
    Node,
    Steps,
    Store,
    Update,
    Verify,
    allocated,
    block,
    conditional,
    given,
)
from tcsym.ir.regions import buffers_used
from tcsym.ir.traverse import substitute_value, walk
from tcsym.polyhedral.scop import Scop, ScopStatement
from tcsym.polyhedral.tree import Leaf, Sequence, Tree, TreeLoop, leaves
from tcsym.sizes.context import Context
from tcsym.types import DType

Renaming = Mapping[str, Mapping[str, Index]]  # statement -> iterator -> loop variable


def tree_to_loops(tree: Tree, scop: Scop) -> Node:
    """The loop nest of a tree that has bounds at every loop (see `has_bounds`)."""
    return _node(tree, scop, {})


def has_bounds(tree: Tree, scop: Scop) -> bool:
    """False if only isl can tell the bounds of some loop, or the loops around some statement."""
    return all(
        all(t.lower is not None and t.upper is not None for t in loops)
        and {t.value(name) for t in loops} >= {var(v) for v in scop.statement(name).iterators}
        for name, loops in leaves(tree)
    )


def private_around_uses(
    nest: Node, private: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """`private` without loops that isl took an iteration out of in which a temporary is used."""
    around: dict[str, frozenset[str]] = {}
    for n, loops in walk(nest):
        if isinstance(n, Block | Branch | Allocate):
            continue
        names = frozenset(x.variable for x in loops)
        for b in buffers_used(replace(n, body=Block(())) if isinstance(n, Loop) else n):
            around[b] = around.get(b, names) & names
    return {b: own & around.get(b, own) for b, own in private.items()}


def kernel_around(
    body: Node,
    program: Program,
    layouts: Mapping[str, Layout],
    private: Mapping[str, frozenset[str]],
    context: Context,
) -> Kernel:
    """Arguments, temporaries and run-time sizes for a loop nest."""
    buffers = tuple(_buffer(t, layouts, private) for t in program.tensors)
    strides = dict.fromkeys(
        name for b in buffers for stride in b.strides or () for name in sorted(stride.variables())
    )
    for t in reversed(program.by_role("temporary")):
        body = allocated(t.name, body)
    arguments = tuple(t.name for t in (*program.inputs, *program.outputs))
    sizes = (*program.sizes, *strides)
    constants = program.constants
    return Kernel(program.name, sizes, arguments, buffers, body, context, constants=constants)


def _buffer(
    t: Tensor, layouts: Mapping[str, Layout], private: Mapping[str, frozenset[str]]
) -> Buffer:
    if t.role == "temporary":
        own = private.get(t.name, frozenset())
        return Buffer(t.name, t.dtype, t.shape, space="arena", private=own)
    strides = layout_strides(t.name, len(t.shape), layouts.get(t.name, "dense"))
    return Buffer(t.name, t.dtype, t.shape, strides=strides)


def _node(t: Tree, scop: Scop, renaming: Renaming) -> Node:
    match t:
        case Leaf(name, _):
            return statement_node(scop.statement(name), renaming.get(name, {}))
        case Sequence(children):
            return joined([_node(c, scop, renaming) for c in children])
        case TreeLoop():
            return _loop(t, scop, renaming)
        case _:
            assert_never(t)


def _loop(t: TreeLoop, scop: Scop, renaming: Renaming) -> Node:
    """The loop, inside those parts of its body's guard that do not depend on it."""
    assert t.lower is not None and t.upper is not None
    inner = {m.statement: dict(renaming.get(m.statement, {})) for m in t.members}
    read = _read_here(t, scop, inner)
    for m in t.members:
        ((iterator, _),) = m.value.terms
        assert isinstance(iterator, str)
        inner.setdefault(m.statement, {})[iterator] = var(t.variable)
    body = _node(t.body, scop, inner)
    outside: Condition = TRUE
    if isinstance(body, Branch) and body.orelse is None:
        outside, inside = _split(body.condition, t.variable)
        body = conditional(inside, body.then)
    at = _position(t, scop)
    if at is not None:
        values = renaming.get(t.members[0].statement, {})
        found = _at_position(t, at, scop, body, values)
        return conditional(all_of((outside, _has_points(t, scop, values))), found)
    names = {g.name for m in t.members for g in scop.statement(m.statement).given}
    scalars = {v: x for v, x in inner[t.members[0].statement].items() if v in names}
    lower, upper = substitute(t.lower, scalars), substitute(t.upper, scalars)
    varies = _varies_inside(body, t.variable)
    loop: Node = Loop(
        t.variable,
        lower,
        upper if _is_checked(t, scop) else proper_end(lower, upper, t.order, scop.sizes),
        body,
        order="sequential" if varies else t.order,
        independent=varies and t.order == "parallel",
        steps=Steps(t.pipeline) if t.pipeline else None,
    )
    for variable, value in reversed(read):
        loop = given(variable, value, loop, MOST_GIVEN)
    return conditional(outside, loop)


def _position(t: TreeLoop, scop: Scop) -> Index | Expr | None:
    """The position at which the loop's one statement is, if it goes along a scattered dimension."""
    s = scop.statement(t.members[0].statement)
    v = s.iterator(t.members[0].value)
    return None if v is None else s.range_of(v).at


def _has_points(t: TreeLoop, scop: Scop, values: Mapping[str, Index]) -> Condition:
    """The loops inside have iterations: else nothing is written, wherever the position is."""
    s = scop.statement(t.members[0].statement)
    left = [r for r in s.ranges if r.at is None and r.variable not in values]
    return all_of(ge(substitute(r.upper - r.lower, values), 1) for r in left)


def _at_position(
    t: TreeLoop, at: Index | Expr, scop: Scop, body: Node, values: Mapping[str, Index]
) -> Node:
    """The loop over a scattered dimension, behind the check that its position lies inside."""
    assert t.lower is not None and t.upper is not None
    loop = Loop(t.variable, t.lower, t.upper, body)
    if isinstance(at, Index):
        return replace(loop, at=substitute(at, values))
    s = scop.statement(t.members[0].statement)
    condition, place = position_parts(cast(Expr, substitute_value(at, values)))
    assert not isinstance(place, Index)
    own = [t.members[0].value == x for x in s.subscripts]
    others = [
        substitute(x, values) if x.variables() <= values.keys() else ZERO for x in s.subscripts
    ]
    subscripts = tuple(place if here else x for here, x in zip(own, others))
    dtype = scop.tensor(s.target).dtype
    checked: Expr = Read(s.target, subscripts, dtype, tuple(own), span=s.span)
    if condition is not None:  # else no iteration of the loop runs
        checked = Select(condition, checked, Const(0, dtype), dtype)
        place = Select(condition, place, Const(-1, DType.INT64), DType.INT64)
    return block(Verify(checked, f"{s.name}.position"), replace(loop, at=place))


def _varies_inside(body: Node, variable: str) -> bool:
    """Ranges of loops inside vary, with the variable or with another one."""
    for x, _ in walk(body):
        if isinstance(x, Loop):
            if x.independent or x.value is not None:
                return True
            if variable in x.lower.variables() | x.upper.variables():
                return True
    return False


def _read_here(
    t: TreeLoop, scop: Scop, renaming: dict[str, dict[str, Index]]
) -> list[tuple[str, Expr]]:
    """Scalars to read in front of the loop: as far outside as all that they vary with is known.

    Under a condition of the program only where the range itself is, with what checks its ends.
    `renaming` learns their names.
    """
    found: list[tuple[str, Expr]] = []
    for m in t.members:
        s = scop.statement(m.statement)
        values = renaming.setdefault(s.name, {})
        late = s.condition != TRUE
        ends = (t.lower, t.upper)
        names = {x.name for x in s.given}
        used = {v for e in ends if e is not None for v in e.variables()} & names
        for g in s.given:
            inside = (frozenset(s.iterators) | names) - values.keys()
            is_of_range = bool(({g.name} | g.variables()) & used)
            if g.name in values or g.variables() & inside or (late and not is_of_range):
                continue
            values[g.name] = var(f"{s.name}.{g.name}")
            found.append((f"{s.name}.{g.name}", cast(Expr, substitute_value(g.value, values))))
    return found


def _is_checked(t: TreeLoop, scop: Scop) -> bool:
    """The range is one of a left-hand side, which no call gives a negative extent."""
    for m in t.members:
        s = scop.statement(m.statement)
        v = s.iterator(m.value)
        r = None if v is None else s.range_of(v)
        if r in s.ranges and not r.reduced and (r.lower, r.upper) == (t.lower, t.upper):
            return True
    return False


def proper_end(lower: Index, upper: Index, order: LoopOrder, sizes: tuple[str, ...]) -> Index:
    """`upper`, not below `lower`: who tiles the loop divides its extent, never negative.

    A loop that runs in order is never tiled.
    """
    if order == "sequential" or is_nonnegative(upper - lower, frozenset(sizes)):
        return upper
    return maximum(lower, upper)


def _split(c: Condition, variable: str) -> tuple[Condition, Condition]:
    """The conjuncts that do not depend on `variable`, and those that do."""
    parts = conjuncts(c)
    outside = tuple(p for p in parts if variable not in condition_variables(p))
    inside = tuple(p for p in parts if variable in condition_variables(p))
    return _conjunction(outside), _conjunction(inside)


def _conjunction(parts: tuple[Condition, ...]) -> Condition:
    return parts[0] if len(parts) == 1 else All(parts)


def statement_node(s: ScopStatement, values: Mapping[str, Index]) -> Node:
    """The statement at one point, under its guard; `values`: its iterators over loop variables."""
    value = substitute_value(s.value, values)
    subscripts = tuple(substitute(x, values) for x in s.subscripts)
    node: Node
    match s.role:
        case "assign" | "init":
            node = Store(s.target, subscripts, value, s.name)
        case "update":
            node = Update(s.target, subscripts, s.op, value, s.name)
        case "check":
            node = Verify(value, s.name)
        case _:
            assert_never(s.role)
    return conditional(condition_substitute(s.condition, values), node)


def joined(nodes: list[Node]) -> Node:
    """A block in which neighbours with equal or opposite guards share one branch."""
    out: list[Node] = []
    for n in nodes:
        for x in n.body if isinstance(n, Block) else (n,):
            merged = _merged(out[-1], x) if out else None
            if merged is None:
                out.append(x)
            else:
                out[-1] = merged
    return block(*out)


def _merged(a: Node, b: Node) -> Node | None:
    if not isinstance(a, Branch) or not isinstance(b, Branch) or b.orelse is not None:
        return None
    if a.orelse is None and a.condition == b.condition:
        return Branch(a.condition, joined([a.then, b.then]))
    if b.condition == negate(a.condition):
        other = b.then if a.orelse is None else joined([a.orelse, b.then])
        return replace(a, orelse=other)
    return None
