# SPDX-License-Identifier: Apache-2.0
"""What a step reads of the one before -> a temporary of the point (scalar replacement of values
that a loop carries).

Only the first step, which has a loop of its own, reads it from memory: a store and a load of what
was just stored take longer than the operation between them.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import Index, minimum, var
from tcsym.index.values import substitute
from tcsym.ir.loops import Branch, Buffer, Loop, Node, Store, Update, Value, block
from tcsym.ir.traverse import loads, map_inner, map_node, substitute_node, walk
from tcsym.mapping.tree import accessed, unused
from tcsym.schedule.analysis.assume import assumed
from tcsym.schedule.analysis.loops import children

MOST_PATHS = 8  # ways through the conditions of a step, each a copy of it
Subscripts = tuple[Index, ...]


def with_carried(node: Node, buffers: dict[str, Buffer]) -> Node:
    """The steps that have no loop inside, wherever they are; `buffers` gets the temporaries."""
    if isinstance(node, Loop) and node.order == "sequential":
        inside = any(isinstance(x, Loop) for x, _ in walk(node.body))
        return node if inside else _carried(node, buffers)
    return map_inner(node, lambda x: with_carried(x, buffers))


def _carried(steps: Loop, buffers: dict[str, Buffer]) -> Node:
    written = dict.fromkeys(b for b, _, is_written, _ in accessed(steps) if is_written)
    found = [x for b in written if (x := _carrier(buffers[b], steps)) is not None]
    if not found:
        return steps
    v, name = steps.variable, f"{steps.variable}.first"
    first = replace(steps, variable=name, upper=minimum(steps.upper, steps.lower + 1))
    first = replace(first, body=substitute_node(steps.body, {v: var(name)}))
    rest = replace(steps, lower=steps.lower + 1)
    for x in found:
        b, last = buffers[x.buffer], unused(x.buffer, "last", buffers)
        buffers[last] = Buffer(last, b.dtype, (), "arena", padded=True)
        state = Read(last, (), b.dtype)
        early = tuple(substitute(i, {v: var(name)}) for i in x.subscripts)
        first = replace(first, body=_kept(first.body, b.name, state, None, early))
        before = _before(x.subscripts, v)
        rest = replace(rest, body=_kept(rest.body, b.name, state, before, x.subscripts))
    return assumed(block(first, rest), {})


def _carrier(b: Buffer, steps: Loop) -> Store | None:
    """The one store of the buffer in every step, if the next one reads it before it stores."""
    paths = _paths(steps.body)
    stores = [[x for x in p if isinstance(x, Store) and x.buffer == b.name] for p in paths]
    if not paths or any(len(s) != 1 for s in stores) or b.dtype.accumulator is not b.dtype:
        return None
    found = stores[0][0]
    last, is_read = _before(found.subscripts, steps.variable), False
    for path, (store,) in zip(paths, stores, strict=True):
        for x in path[: path.index(store) + 1]:
            is_read = is_read or any(_reads(r, b.name, last) for r in loads(x.value))
        if store.subscripts != found.subscripts or any(
            isinstance(x, Update) and x.buffer == b.name for x in path
        ):
            return None
    return found if is_read else None


def _paths(node: Node) -> tuple[tuple[Store | Update, ...], ...]:
    """The statements of a step, for each way through its conditions; none if it is more."""
    paths: tuple[tuple[Store | Update, ...], ...] = ((),)
    for x in children(node):
        if isinstance(x, Store | Update):
            ways: tuple[tuple[Store | Update, ...], ...] = ((x,),)
        elif isinstance(x, Branch) and x.orelse is not None:
            arms = _paths(x.then), _paths(x.orelse)
            ways = (*arms[0], *arms[1]) if all(arms) else ()
        else:
            return ()
        paths = tuple((*before, *way) for before in paths for way in ways)
        if len(paths) > MOST_PATHS:
            return ()
    return paths


def _before(subscripts: Subscripts, variable: str) -> Subscripts:
    return tuple(substitute(s, {variable: var(variable) - 1}) for s in subscripts)


def _reads(v: Value, buffer: str, subscripts: Subscripts) -> bool:
    plain = isinstance(v, Read) and v.unwritten is None and not any(v.checked)
    return plain and isinstance(v, Read) and (v.tensor, v.subscripts) == (buffer, subscripts)


def _kept(
    node: Node, buffer: str, state: Read, element: Subscripts | None, new: Subscripts
) -> Node:
    """`node` storing into `buffer` by way of `state`, from where it reads `element`, that of the
    last step, before the store, and `new`, its own, after it."""
    out: list[Node] = []

    def value(v: Value) -> Value:
        return state if element is not None and _reads(v, buffer, element) else v

    for x in children(node):
        if isinstance(x, Branch):
            stores = any(b == buffer and is_written for b, _, is_written, _ in accessed(x))
            then = _kept(x.then, buffer, state, element, new)
            orelse = x.orelse and _kept(x.orelse, buffer, state, element, new)
            out.append(Branch(x.condition, then, orelse))
            element = new if stores else element
            continue
        y = map_node(x, on_value=value)
        if isinstance(y, Store) and y.buffer == buffer:
            element = new
            out.append(replace(y, buffer=state.tensor, subscripts=()))
            y = replace(y, value=state)
        out.append(y)
    return block(*out)
