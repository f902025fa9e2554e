# SPDX-License-Identifier: Apache-2.0
"""Windows of one point -> no loop; windows that a call may find so -> other sizes for that call.

A convolution whose window has one point walks each plane as one long row: its loops, its panels and
its vectors then have one ragged end instead of one a row. If that is known, `merge_loops` sees it.
If only the call knows, the kernel needs no other code: as the planes lie in memory, sizes H, W are
as good as 1, H*W. Proof: with windows of one point the kernel merges into one that knows of H and W
only H*W, and so is the same for all sizes with that product.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import ONE, ZERO, Index, Max, all_of, eq, factors_of, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent, is_nonnegative
from tcsym.ir.loops import Branch, Kernel, Loop, Node, Update, View
from tcsym.ir.traverse import loads, map_node, substitute_node
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.loops import find_loop, loops_in, replace_loop, statements_in
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.schedule.order.merge_loops import merge_loops
from tcsym.schedule.version.versioning import duplicate


def without_unit_loops(kernel: Kernel) -> Kernel:
    """Reduction loops of one iteration replaced by it."""

    def change(x: Node) -> Node:
        if isinstance(x, Loop) and x.order == "reduction" and extent(x) == ONE:
            return substitute_node(x.body, {x.variable: x.lower})
        return x

    gone = {
        x.variable for x in loops_in(kernel.body) if x.order == "reduction" and extent(x) == ONE
    }
    if not gone:
        return kernel
    kernel = replace(kernel, body=map_node(kernel.body, change))
    return replace_private(kernel, dict.fromkeys(gone, ()))


def unit_view(kernel: Kernel) -> View | None:
    """The sizes by which the kernel may be called if its windows have one point; None if no others.

    Contract: full-size buffers, as before any schedule.
    """
    units = _window_sizes(kernel)
    if not units:
        return None
    merged = without_unit_loops(_with_sizes(kernel, dict.fromkeys(units, ONE)))
    merged = merge_loops(merged, Names.of(merged))
    bounded = {k.name for k in kernel.context if k.low > 1 or k.high is not None or k.step > 1}
    groups: list[tuple[str, ...]] = []
    for x in loops_in(merged.body):
        group = _factors(extent(x), kernel.sizes)
        if bounded & set(group):
            continue  # the body may rely on the range, in which the other sizes need not be
        apart = all(not set(group) & set(g) for g in groups)
        if len(group) > 1 and apart and _depends_on_product(merged, group):
            groups.append(group)
    return View(units, tuple(groups)) if groups else None


def _window_sizes(kernel: Kernel) -> tuple[str, ...]:
    """Sizes that are the lengths of reductions which slide over an operand."""
    found: dict[str, None] = {}
    for x, around in statements_in(kernel.body):
        if isinstance(x, Update):
            for loop in around:
                size = _factors(extent(loop), kernel.sizes)
                if loop.order == "reduction" and len(size) == 1 and _slides(x, loop):
                    found[size[0]] = None
    return tuple(found)


def _slides(x: Update, loop: Loop) -> bool:
    return any(
        isinstance(s, Index) and loop.variable in s.variables() and len(s.terms) > 1
        for r in loads(x.value)
        for s in r.subscripts
    )


def _factors(e: Index, sizes: tuple[str, ...]) -> tuple[str, ...]:
    """The sizes whose product `e` is, each once, in calling order; () if it is none."""
    if e.constant or len(e.terms) != 1 or e.terms[0][1] != 1:
        return ()
    (atom, _), *_ = e.terms
    factors = factors_of(atom)
    names = tuple(s for s in sizes if s in factors)
    return names if len(names) == len(factors) else ()


def _with_sizes(kernel: Kernel, values: dict[str, Index]) -> Kernel:
    sizes = frozenset(kernel.sizes)

    def changed(parts: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(_plain(substitute(e, values), sizes) for e in parts)

    buffers = tuple(
        replace(
            b, shape=changed(b.shape), strides=None if b.strides is None else changed(b.strides)
        )
        for b in kernel.buffers
    )
    return replace(kernel, body=substitute_node(kernel.body, values), buffers=buffers)


def _plain(e: Index, sizes: frozenset[str]) -> Index:
    """The one part of a maximum that is not below zero; `e` if it is no such maximum."""
    match e:
        case Index(((Max((a, b)), 1),), 0):
            plain = [y for x, y in ((a, b), (b, a)) if x == ZERO and is_nonnegative(y, sizes)]
            return plain[0] if plain else e
        case _:
            return e


def _depends_on_product(kernel: Kernel, group: tuple[str, ...]) -> bool:
    """The kernel is the same text for sizes 1, ..., 1, product of the group."""
    *ones, last = group
    product = ONE
    for name in group:
        product = product * var(name)
    values: dict[str, Index] = {**dict.fromkeys(ones, ONE), last: product}
    used = {a.buffer for a in accesses(kernel.body)}
    extents = [e for b in kernel.buffers if b.name in used for e in (*b.shape, *(b.strides or ()))]
    checked = any(
        any(r.checked) or r.unwritten is not None
        for x, _ in statements_in(kernel.body)
        for r in loads(x.value)
    )
    moved = substitute_node(kernel.body, values)
    return not checked and moved == kernel.body and all(substitute(e, values) == e for e in extents)


def skip_unit_windows(kernel: Kernel, names: Names) -> Kernel:
    """Where windows of one point have a view, no loops over them around a few vectors.

    Such a loop, of one iteration, costs as much as what is in it. The others keep their loops.
    """
    if kernel.view is None:
        return kernel
    units = tuple(map(var, kernel.view.units))
    single = all_of(eq(u, 1) for u in units)
    for top in [x for x in loops_in(kernel.body) if _holds_windows(x, units)]:
        kernel, copy, _ = duplicate(kernel, find_loop(kernel.body, top.variable), names)
        single_copy = map_node(copy, lambda x: _once(x, units))
        body = replace_loop(
            kernel.body,
            top.variable,
            lambda x, copy=single_copy: Branch(single, copy, x),  # type: ignore[misc]
        )
        kernel = replace(kernel, body=body)
    return kernel


def _holds_windows(loop: Loop, units: tuple[Index, ...]) -> bool:
    """A loop just around loops over windows, in which there are whole vectors only."""
    inside, n = loop.body, 0
    while isinstance(inside, Loop) and _is_window(inside, units):
        inside, n = inside.body, n + 1
    kinds = [x.kind for x in loops_in(inside)]
    straight = "vector" in kinds and not {"serial", "parallel"} & set(kinds)
    return n > 0 and straight and loop.kind == "serial" and not _is_window(loop, units)


def _is_window(loop: Loop, units: tuple[Index, ...]) -> bool:
    return loop.kind == "serial" and loop.lower == ZERO and loop.upper in units


def _once(x: Node, units: tuple[Index, ...]) -> Node:
    if isinstance(x, Loop) and _is_window(x, units):
        return substitute_node(x.body, {x.variable: ZERO})
    return x
