"""Sums of products of short numbers -> dot products of two or four steps at once.

    C(m,n) += float(A(m,k)) * float(B(k,n))         k < K
->  C(m,n) += dot(pack(A(m,2q), A(m,2q+1)), pack(B(2q,n), B(2q+1,n)))   q < K/2, and what is left

Where the target has instructions for them (`dot_terms`). Panels then hold packed elements, and rows
whose elements lie side by side are read as they are. What is left of a sum stays as it was, in a
loop of its own; what a term owes is summed in front of the nest and added once.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.frontend.program import Binary, Const, Expr, Read
from tcsym.index import ONE, ZERO, floordiv, var
from tcsym.loop_ir import (
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    block,
    loads,
    map_node,
    substitute_value,
    walk,
)
from tcsym.packed import BYTES, available, dot, pack
from tcsym.polyhedral.passes.common.access import accesses, stride, value_variables
from tcsym.polyhedral.passes.common.band import Roles
from tcsym.polyhedral.passes.common.bounds import extent
from tcsym.polyhedral.passes.common.loops import chain_of, find_loop, loops_around, replace_loop
from tcsym.polyhedral.passes.common.names import Names, renamed_loops
from tcsym.polyhedral.passes.common.setting import Setting
from tcsym.polyhedral.passes.common.tile_loop import is_multiple
from tcsym.polyhedral.passes.contraction.copy_operand import depend_on_sizes
from tcsym.polyhedral.passes.contraction.dot_terms import DotTerm, dot_term
from tcsym.records import dataclass
from tcsym.types import DType


@dataclass(frozen=True, slots=True)
class PackedSteps:
    """`sums`: outermost loops of the nests that sum what is owed, not scheduled yet."""

    kernel: Kernel
    sums: tuple[str, ...]


def pack_steps(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> PackedSteps:
    """The nest with packed sums where they can be; the loops of its band keep their names."""
    have, sums = available(setting.target), list[str]()
    if not setting.options.vectorize or not have:
        return PackedSteps(kernel, ())
    for x, loops in walk(find_loop(kernel.body, nest)):
        term = _term(kernel, nest, x, loops, roles, have) if isinstance(x, Update) else None
        steps = None if term is None else _loop_to_pack(kernel, loops, term, roles)
        if term is None or steps is None or not isinstance(x, Update):
            continue
        owed: Node | None = None
        if term.owed is not None:
            kernel, owed, name = _owed(kernel, nest, loops, steps, x, term, setting.names)
            sums.append(name)
        packed = block(*_packed(steps, x, term, setting.names), owed)
        kernel = replace(kernel, body=_replaced(kernel.body, steps.variable, packed))
    return PackedSteps(kernel, tuple(sums))


def _term(
    kernel: Kernel,
    nest: str,
    x: Update,
    loops: tuple[Loop, ...],
    roles: Roles,
    have: frozenset[str],
) -> DotTerm | None:
    """As bytes where what they owe can be summed before the nest; else as pairs, which owe none."""
    term = dot_term(x, roles.rows, have)
    if term is None or term.owed is None or _can_sum(kernel, nest, loops, term.owed):
        return term
    return dot_term(x, roles.rows, have - {BYTES})


def _replaced(body: Node, variable: str, new: Node) -> Node:
    return replace_loop(body, variable, lambda _: new)


def _loop_to_pack(
    kernel: Kernel, loops: tuple[Loop, ...], term: DotTerm, roles: Roles
) -> Loop | None:
    """One along which the rows lie in memory, else the columns, else the innermost."""
    fitting = [x for x in reversed(loops) if _can_pack(kernel, x, term)]
    sides = (term.left, term.right)
    for side in sorted(sides, key=lambda v: roles.rows not in value_variables(v)):
        for x in fitting:
            steps = (stride(kernel.buffer(r.tensor), r.subscripts, x.variable) for r in loads(side))
            if all(step in (ONE, ZERO) for step in steps):
                return x
    return fitting[0] if fitting else None


def _can_pack(kernel: Kernel, x: Loop, term: DotTerm) -> bool:
    """A loop of the sum alone, of enough steps, that moves both factors."""
    alone = x.order == "reduction" and isinstance(chain_of(x)[-1].body, Update)
    moves = all(x.variable in value_variables(v) for v in (term.left, term.right))
    n = extent(x).as_int()
    return alone and moves and depend_on_sizes(kernel, (x,)) and (n is None or n >= term.steps)


def _packed(loop: Loop, update: Update, term: DotTerm, names: Names) -> tuple[Node, Node | None]:
    """The loop in packed steps, and what is left of it."""
    step, n = names.fresh(loop.variable), extent(loop)
    first = loop.lower + var(step) * term.steps

    def packed(v: Expr) -> Expr:
        moved = (substitute_value(v, {loop.variable: first + k}) for k in range(term.steps))
        return pack(tuple(moved))  # type: ignore[arg-type]

    value = dot(term.function, packed(term.left), packed(term.right))
    body = map_node(loop.body, lambda x: replace(x, value=value) if x is update else x)
    whole = replace(loop, variable=step, lower=ZERO, upper=floordiv(n, term.steps), body=body)
    if is_multiple(n, term.steps):
        return whole, None
    rest = replace(loop, lower=loop.lower + floordiv(n, term.steps) * term.steps)
    return whole, renamed_loops(rest, names)


# ---- what is owed


def _can_sum(kernel: Kernel, nest: str, loops: tuple[Loop, ...], owed: Expr) -> bool:
    if loops_around(kernel.body, nest):
        return False
    written = {a.buffer for a in accesses(find_loop(kernel.body, nest)) if a.written}
    return depend_on_sizes(kernel, loops) and not any(r.tensor in written for r in loads(owed))


def _owed(
    kernel: Kernel,
    nest: str,
    loops: tuple[Loop, ...],
    steps: Loop,
    update: Update,
    term: DotTerm,
    names: Names,
) -> tuple[Kernel, Node, str]:
    """Sums of what is owed along the packed loop, and along those inside of it, made before the
    nest; and how they are added."""
    assert term.owed is not None
    used, place = value_variables(term.owed), loops.index(steps)
    dimensions = [x for x in loops[:place] if x.variable in used]
    name = names.fresh(f"{loads(term.owed)[0].tensor}_owed")
    new = {x.variable: names.fresh(x.variable) for x in (*dimensions, *loops[place:])}
    moved = substitute_value(term.owed, {old: var(v) for old, v in new.items()})
    value = Binary("mul", moved, Const(term.factor, DType.INT32), DType.INT32)  # type: ignore[arg-type]
    own = tuple(var(new[x.variable]) - x.lower for x in dimensions)
    end = steps.lower + floordiv(extent(steps), term.steps) * term.steps
    total: Node = Update(name, own, "add", value, name)
    for x in reversed((replace(steps, upper=end), *loops[place + 1 :])):
        total = Loop(new[x.variable], x.lower, x.upper, total, "serial", "reduction")
    node = block(Store(name, own, Const(0, DType.INT32), name), total)
    for x in reversed(dimensions):
        node = Loop(new[x.variable], x.lower, x.upper, node, "serial", "parallel")
    shape = tuple(map(extent, dimensions))
    body = replace_loop(kernel.body, nest, lambda x: block(node, x))
    kernel = replace(kernel, body=body).with_buffer(Buffer(name, DType.INT32, shape, "arena"))
    at = tuple(var(x.variable) - x.lower for x in dimensions)
    added = replace(update, value=Read(name, at, DType.INT32))
    return kernel, added, new[dimensions[0].variable]
