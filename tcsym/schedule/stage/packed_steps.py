# SPDX-License-Identifier: Apache-2.0
"""Sums of products of short numbers -> dot products of two or four steps at once.

    C(m,n) += float(A(m,k)) * float(B(k,n))         k < K
->  C(m,n) += dot(pack(A(m,2q), A(m,2q+1)), pack(B(2q,n), B(2q+1,n)))   q < K/2, and what is left

Where the target has instructions for them (`dot_terms`). Panels then hold packed elements, and rows
whose elements lie side by side are read as they are. What is left of a sum stays as it was, in a
loop of its own; what a term owes is summed in front of the nest and added once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import mul

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Cast, Const, Expr, IndexValue, Read, dtype_of
from tcsym.index.expr import ONE, ZERO, Index, floordiv, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, block
from tcsym.ir.packed import BYTES, available, dot, pack
from tcsym.ir.traverse import loads, map_node, substitute_value, walk
from tcsym.mapping.dot_terms import DotTerm, Owed, dot_term
from tcsym.schedule.analysis.access import accesses, stride, value_variables
from tcsym.schedule.analysis.band import Roles
from tcsym.schedule.analysis.loops import chain_of, find_loop, loops_around, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.stage.copy_operand import depend_on_sizes
from tcsym.schedule.tile.tile_loop import is_multiple
from tcsym.schedule.version.versioning import duplicate
from tcsym.types import DType


class PackedSteps(Struct, frozen=True):
    """`sums`: outermost loops of the nests that sum what is owed, not scheduled yet."""

    kernel: Kernel
    sums: tuple[str, ...]


def pack_steps(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> PackedSteps:
    """The nest with packed sums where they can be; the loops of its band keep their names."""
    have, sums = available(setting.machine), list[str]()
    if not setting.options.vectorize or not have:
        return PackedSteps(kernel, ())
    for x, loops in walk(find_loop(kernel.body, nest)):
        term = _term(kernel, nest, x, loops, roles, have) if isinstance(x, Update) else None
        steps = None if term is None else _loop_to_pack(kernel, loops, term, roles)
        if term is None or steps is None or not isinstance(x, Update):
            continue
        kernel, owed = _added(kernel, nest, loops, steps, x, term, setting.names, sums)
        if owed is None:
            continue
        kernel, sum_ = _packed(kernel, steps, x, term, setting.names)
        packed = block(sum_, *owed)
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
    """As bytes where what they owe can be summed before the nest; else as pairs, which owe less."""
    for functions in (have, have - {BYTES}):
        term = dot_term(x, roles.rows, reduced(loops), functions)
        if term is None or all(_can_sum(kernel, nest, loops, y) for y in term.owed):
            return term
    return None


def reduced(loops: tuple[Loop, ...]) -> frozenset[str]:
    return frozenset(x.variable for x in loops if x.order == "reduction")


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


def _packed(
    kernel: Kernel, loop: Loop, update: Update, term: DotTerm, names: Names
) -> tuple[Kernel, Node]:
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
        return kernel, whole
    rest = replace(loop, lower=loop.lower + floordiv(n, term.steps) * term.steps)
    kernel, rest, _ = duplicate(kernel, rest, names)
    return kernel, block(whole, rest)


# ---- what is owed


def _can_sum(kernel: Kernel, nest: str, loops: tuple[Loop, ...], owed: Owed) -> bool:
    if owed.value is None:
        return depend_on_sizes(kernel, loops)
    if loops_around(kernel.body, nest):
        return False
    written = {a.buffer for a in accesses(find_loop(kernel.body, nest)) if a.written}
    return depend_on_sizes(kernel, loops) and not any(
        r.tensor in written for r in loads(owed.value)
    )


def _added(
    kernel: Kernel,
    nest: str,
    loops: tuple[Loop, ...],
    steps: Loop,
    update: Update,
    term: DotTerm,
    names: Names,
    nests: list[str],
) -> tuple[Kernel, tuple[Node, ...] | None]:
    """What adds all that is owed behind the packed loop; None if some of it cannot be there.

    Inside of other loops of the sum it has to be one element: a product would look like a term.
    nests: gets those that make the sums, before the nest.
    """
    found = list[Node]()
    within = bool(reduced(loops[: loops.index(steps)]))
    if within and not all(_at_once(y, loops, steps) for y in term.owed):
        return kernel, None
    for y in term.owed:
        if y.value is None and not (within and loads(y.factor)):
            value: Expr = Binary("mul", y.factor, _count(loops, steps, term), DType.INT32)
        else:
            at_once = _at_once(y, loops, steps)
            total = _total(loops, steps, y, at_once, term)
            dimensions = _dimensions(y, loops, steps)
            kernel, read, top = _sum_before(kernel, nest, dimensions, total, names)
            nests += top
            value = read if at_once else Binary("mul", y.factor, read, DType.INT32)
        found.append(replace(update, value=value))
    return kernel, tuple(found)


def _dimensions(owed: Owed, loops: tuple[Loop, ...], steps: Loop) -> list[Loop]:
    """The loops around the packed one that move the sum of what is owed."""
    used = value_variables(owed.factor if owed.value is None else owed.value)
    return [x for x in loops[: loops.index(steps)] if x.variable in used]


def _at_once(owed: Owed, loops: tuple[Loop, ...], steps: Loop) -> bool:
    """The factor moves with no loop that does not move the sum."""
    moving = {x.variable for x in loops} & value_variables(owed.factor)
    return moving <= {x.variable for x in _dimensions(owed, loops, steps)}


def _count(loops: tuple[Loop, ...], steps: Loop, term: DotTerm) -> Expr:
    """Terms of the packed loop and of those inside."""
    inside = map(extent, loops[loops.index(steps) + 1 :])
    whole = floordiv(extent(steps), term.steps) * term.steps
    return IndexValue(reduce(mul, inside, whole), DType.INT32)


Total = Callable[[str, tuple[Index, ...]], Node]


def _total(
    loops: tuple[Loop, ...], steps: Loop, owed: Owed, times_factor: bool, term: DotTerm
) -> Total:
    """What makes the sum, in an element of a buffer."""

    def make(name: str, at: tuple[Index, ...]) -> Node:
        if owed.value is None:
            all_of_it = Binary("mul", owed.factor, _count(loops, steps, term), DType.INT32)
            return Store(name, at, all_of_it, name)
        value = _as_int32(owed.value)
        if times_factor:
            value = Binary("mul", value, owed.factor, DType.INT32)
        node: Node = Update(name, at, "add", value, name)
        end = steps.lower + floordiv(extent(steps), term.steps) * term.steps
        for x in reversed((replace(steps, upper=end), *loops[loops.index(steps) + 1 :])):
            node = Loop(x.variable, x.lower, x.upper, node, "serial", "reduction")
        return block(Store(name, at, Const(0, DType.INT32), name), node)

    return make


def _sum_before(
    kernel: Kernel, nest: str, dimensions: list[Loop], total: Total, names: Names
) -> tuple[Kernel, Expr, tuple[str, ...]]:
    """An element for each point of `dimensions`, made before the nest; its top, if a loop."""
    name = names.fresh("owed")
    at = tuple(var(x.variable) - x.lower for x in dimensions)
    node = total(name, at)
    for x in reversed(dimensions):
        node = Loop(x.variable, x.lower, x.upper, node, "serial", "parallel")
    kernel, node, _ = duplicate(kernel, node, names)
    body = replace_loop(kernel.body, nest, lambda x: block(node, x))
    buffer = Buffer(name, DType.INT32, tuple(map(extent, dimensions)), "arena")
    kernel = replace(kernel, body=body).with_buffer(buffer)
    tops = (node.variable,) if isinstance(node, Loop) else ()
    return kernel, Read(name, at, DType.INT32), tops


def _as_int32(v: Expr) -> Expr:
    return v if dtype_of(v) is DType.INT32 else Cast(v, DType.INT32)
