# SPDX-License-Identifier: Apache-2.0
"""Plan -> tree: one function for each directive. None asks whether something pays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from msgspec.structs import replace

from tcsym.frontend.program import IndexValue, Read
from tcsym.index.expr import ONE, ZERO, Index, ceildiv, floordiv, index, maximum, minimum, mod, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Holds, Loop, Node, Store, Update, Value
from tcsym.ir.traverse import map_node, map_value, substitute_node, substitute_value, walk
from tcsym.mapping.combine import combine
from tcsym.mapping.ends import ends
from tcsym.mapping.nest import Statement, in_lanes, places, runs_on, sinks
from tcsym.mapping.pack import packed
from tcsym.mapping.plan import POINTS, Combine, Merge, Order, Plan, Refused, Split, Stage, is_ahead
from tcsym.mapping.stage import stage
from tcsym.mapping.tree import Mapping_, found, moved, replaced, sunk, variables_of

LARGEST_PART = 64  # of registers, lanes, packs and repeated bodies: each of its points is code
KINDS = {"reg": "unrolled", "lane": "vector"}


def apply(m: Mapping_, plan: Plan) -> Mapping_:
    """Raises `Refused` where a directive is not legal, with the reason."""
    for k, d in enumerate(plan):
        try:
            m = m if is_ahead(d) else _RULES[type(d)](m, d)
        except Refused as reason:
            reason.step = k
            raise
    for x, around in walk(m.node):
        lanes = [y.variable for y in around if y.kind == "vector"]
        if isinstance(x, Store | Update) and not variables_of(x.subscripts).issuperset(lanes):
            raise Refused(f"all of {', '.join(lanes)} write one {x.buffer}: combine them")
        if isinstance(x, Branch) and lanes:
            raise Refused(f"a guard inside of {', '.join(lanes)}")
    return ends(replace(m, node=map_node(m.node, _without_single)))


def _without_single(x: Node) -> Node:
    """What a split of a sum of known length has around its copies."""
    if isinstance(x, Loop) and x.kind == "serial" and x.order == "reduction":
        return substitute_node(x.body, {x.variable: x.lower}) if extent(x) == ONE else x
    return x


# ---- split


def split(m: Mapping_, d: Split) -> Mapping_:
    last, terms = d.parts[-1]
    if last == "pack":
        m = packed(m, d.axis, _number(terms, last))
        d = replace(d, parts=d.parts[:-1])
    loop = found(m.node, d.axis)
    names = [p for p, _ in d.parts]
    if loop.kind != "serial" or loop.order not in ("parallel", "reduction"):
        raise Refused(f"{d.axis} runs in order, or is no loop any more")
    if names == ["unroll"]:
        times = _number(d.parts[0][1], "unroll")
        return replace(m, node=replaced(m.node, d.axis, lambda x: replace(x, unroll=times)))
    points = [(p, _number(n, p)) for p, n in d.parts if p in POINTS]
    outer = [(p, n) for p, n in d.parts if p not in POINTS]
    has_size = [n is not None for _, n in outer]
    if not outer or has_size != [k > 0 for k in range(len(outer))]:
        raise Refused(f"split {d.axis}: the first loop has no size, the others have one")
    if d.end == "overlap" and loop.order != "parallel":
        raise Refused(f"sums along {d.axis} would have terms twice")
    if d.end == "peel" and "lane" not in names:
        raise Refused(f"split {d.axis}: only vectors are peeled, as in lane:8")
    if names != [p for p, _ in (*outer, *points)] or len({*names}) < len(names):
        raise Refused(f"split {d.axis}: loops, then reg and lane, each name once")
    unit, n = prod(size for _, size in points), extent(loop)
    units = ceildiv(n, unit)
    at = var(_name(d.axis, outer[-1][0])) * unit
    whole = n.is_multiple(unit)
    value, node = loop.lower + at, loop.body
    left, inside = n - at, unit
    made: list[Loop] = []
    for p, size in points:
        inside //= size
        v = _name(d.axis, p)
        value, left = value + var(v) * inside, left - (var(v) * inside if inside > 1 else 0)
        mask = None if whole or inside > 1 else left
        made.append(Loop(v, ZERO, index(size), node, KINDS[p], loop.order, mask))  # type: ignore[arg-type]
    node = substitute_node(loop.body, {d.axis: value})
    for x in reversed(made):
        node = replace(x, body=node)
    loops, most = _counted(d.axis, outer, units, loop, ceildiv(m.most.get(d.axis, n), unit))
    for x in reversed(loops):
        node = replace(x, body=node)
    ends_ = m.ends if d.end == "mask" else {**m.ends, loops[-1].variable: d.end}
    if any(p == "lane" for p, _ in points):
        _check_lanes(m, loop)
    new = replaced(m.node, d.axis, lambda _: node)
    return replace(m, node=new, most={**m.most, **most}, ends=ends_)


def _counted(
    axis: str, outer: list[tuple[str, Index | None]], units: Index, loop: Loop, most_units: Index
) -> tuple[list[Loop], dict[str, Index]]:
    """Loops that count units, from outside in: the innermost counts them from the first on, the
    others those that the next one counts: so many, or, of a formula, no more, all alike, so that
    threads get as much each. And at most how many, by sizes alone."""
    loops: list[Loop] = []
    most: dict[str, Index] = {}
    total, bound, inside = units, most_units, None
    for p, size in reversed(outer):
        v = _name(axis, p)
        if inside is not None:  # what is inside counts a part of its own
            each, inner = maximum(1, inside[0]), inside[1]
            total = ceildiv(inner.upper, each)
            even = each if each.is_constant else ceildiv(inner.upper, maximum(1, total))
            lower, upper = var(v) * even, minimum(var(v) * even + even, inner.upper)
            loops[0] = replace(inner, lower=lower, upper=upper)
            most[inner.variable] = minimum(each, bound)
            bound = ceildiv(bound, each)
        loops.insert(0, Loop(v, ZERO, total, loop.body, "serial", loop.order))
        most[v] = bound
        inside = None if size is None else (size, loops[0])
    return loops, most


def _check_lanes(m: Mapping_, loop: Loop) -> None:
    for x, around in walk(loop.body):
        if isinstance(x, Store | Update):
            reason = in_lanes(Statement(x, around), m.buffers, loop.variable)
            if reason:
                raise Refused(reason)


def _name(axis: str, part: str) -> str:
    return f"{axis}.{part}"


def _number(n: Index | None, part: str) -> int:
    known = None if n is None else n.as_int()
    if known is None or not 1 <= known <= LARGEST_PART:
        raise Refused(f"{part} needs a number from 1 to {LARGEST_PART}")
    if part == "lane" and (known == 1 or known & (known - 1)):
        raise Refused(f"a vector has 2, 4, 8 or more lanes, no {known}")
    return known


# ---- order, merge


def order(m: Mapping_, d: Order) -> Mapping_:
    top, band, node = _band(m.node, d)
    points = {v: x for v, x in band.items() if x.kind != "serial"}
    loops = {v: x for v, x in band.items() if x.kind == "serial"}
    known = set(m.sizes)
    for v in d.axes:
        if loops[v].end_variables & set(band) - known:
            raise Refused(f"the range of {v} moves with a loop that would be inside of it")
        known.add(v)
    reason = sinks(node, frozenset(v for v, x in points.items() if x.kind == "vector"))
    if reason:
        raise Refused(reason)
    buffers = dict(m.buffers)
    ordered = sorted(points.values(), key=lambda x: x.kind == "vector")
    node = sunk(tuple(ordered), node, buffers) if ordered else node
    for v in reversed(d.axes):
        node = replace(loops[v], body=node)
    return replace(m, node=replaced(m.node, top, lambda _: node), buffers=buffers)


def _band(node: Node, d: Order) -> tuple[str, Mapping[str, Loop], Node]:
    """The loops that nest perfectly and are those of the order, with points; what is inside."""
    seen = list[str]()
    for top, _ in walk(node):
        band: dict[str, Loop] = {}
        inside = top
        while isinstance(top, Loop) and isinstance(inside, Loop) and inside.order == top.order:
            band[inside.variable], inside = inside, inside.body
        loops = [v for v, x in band.items() if x.kind == "serial"]
        if loops and sorted(loops) == sorted(d.axes):
            _check_sums(top, band, inside)
            return next(iter(band)), band, inside
        seen = seen or loops
    raise Refused("an order names all loops of a band", f"loops are {', '.join(seen)}")


def _check_sums(top: Node, band: Mapping[str, Loop], inside: Node) -> None:
    """If the loops are of sums, whose terms may be added in any order."""
    if not isinstance(top, Loop) or top.order == "parallel":
        return
    alone = isinstance(inside, Update) and all(x.kind == "serial" for x in band.values())
    if top.order != "reduction" or not alone:
        raise Refused(f"{top.variable} is around more than terms of one sum")


def merge(m: Mapping_, d: Merge) -> Mapping_:
    """One loop over all iterations of two or more. What is written has to run on from one to the
    next; what is read may be found by division, as a copy of it does that once (`Stage`)."""
    for inner in d.axes[1:]:
        x = found(m.node, d.axes[0])
        y = x.body
        if not isinstance(y, Loop) or y.variable != inner:
            raise Refused(f"{inner} is not right inside of {x.variable}")
        if y.lower != ZERO or x.variable in y.upper.variables():
            raise Refused(f"the range of {inner} moves with {x.variable}, or starts late")
        if x.order != y.order:
            raise Refused(f"{x.variable} and {inner} run in other orders")
        n = y.upper
        new = replace(x, lower=x.lower * n, upper=x.upper * n, body=_run_on(m, x, y))
        m = replace(m, node=replaced(m.node, x.variable, lambda _, new=new: new))  # type: ignore[misc]
        if x.variable in m.most:
            m = replace(m, most={**m.most, x.variable: m.most[x.variable] * n})
    return m


def _run_on(m: Mapping_, x: Loop, y: Loop) -> Node:
    """What is inside of `y`, where `x` counts iterations of both. A row of memory that follows the
    one before goes on as that one: [0, x]."""
    whole = {x.variable: x.lower, y.variable: var(x.variable) - x.lower * y.upper}
    parts = {
        x.variable: floordiv(var(x.variable), y.upper),
        y.variable: mod(var(x.variable), y.upper),
    }

    def goes_on(buffer: str, at: tuple[Index, ...]) -> bool:
        return runs_on(m.buffers[buffer], at, x.variable, y.variable, y.upper)

    def value(v: Value) -> Value:
        if isinstance(v, Read):
            return moved(v, whole if goes_on(v.tensor, places(v)) else parts)
        return substitute_value(v, parts) if isinstance(v, IndexValue | Holds) else v

    def statement(s: Node) -> Node:
        if not isinstance(s, Store | Update):
            return s
        if not goes_on(s.buffer, s.subscripts):
            raise Refused(f"{s.buffer} does not run on from {y.variable} to {x.variable}")
        at = tuple(substitute(i, whole) for i in s.subscripts)
        return replace(s, subscripts=at, value=map_value(s.value, value, lambda i: i))

    if sinks(y.body, frozenset((x.variable, y.variable))):
        raise Refused(f"ranges inside of {y.variable} move")
    return map_node(y.body, statement)


_RULES: dict[type, Callable[..., Mapping_]] = {
    Split: split,
    Order: order,
    Merge: merge,
    Combine: combine,
    Stage: stage,
}
