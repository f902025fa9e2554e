# SPDX-License-Identifier: Apache-2.0
"""Program + which dimensions are chunked -> parts that run one after the other on blocks.

A part is a run of statements, a program of its own. It ends where the whole of a sum over blocks is
needed, or where what comes next can be cut along other axes. A tensor that an earlier part wrote
comes in under another name and is copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct
from msgspec.structs import replace

from tcsym.dask.axes import Axis, Place, all_reads, axes_of
from tcsym.frontend.program import (
    AssignOp,
    Binary,
    BinaryOp,
    Cast,
    Expr,
    Item,
    Program,
    Range,
    Read,
    Statement,
    Tensor,
    statements,
)
from tcsym.index.expr import ZERO, Index, var
from tcsym.network.steps import sizes_in, with_hash

_OPERATORS: dict[AssignOp, BinaryOp] = {"+=": "add", "*=": "mul", "min=": "min", "max=": "max"}


class Part(Struct, frozen=True):
    """`sources`: of each input of `program`, the tensor of the whole that it is."""

    program: Program
    axes: tuple[Axis, ...]
    sources: tuple[str, ...]
    end: int


def next_part(program: Program, start: int, is_chunked: Callable[[Place], bool]) -> Part:
    """The longest run of statements from `start` on that is cut along all that each of them can.

    is_chunked: of a dimension of a tensor that is there.
    """
    known = {t.name for t in program.inputs} | _written(program.body[:start])

    def part(first: int, last: int) -> Part:
        made, sources = _program_of(program, first, last)
        tensors = [(t, s) for t, s in zip(made.inputs, sources) if s in known]
        places = {(t.name, d): (s, d) for t, s in tensors for d in range(len(t.shape))}
        chunked = [p for p, source in places.items() if is_chunked(source)]
        return Part(made, tuple(axes_of(made, chunked)), sources, last)

    def cut(found: Part) -> set[Place]:
        source = dict(zip((t.name for t in found.program.inputs), found.sources))
        return {(source[t], d) for a in found.axes for t, d in a.windows if t in source}

    alone = [cut(part(k, k + 1)) for k in range(start, len(program.body))]
    for end in range(len(program.body), start + 1, -1):
        found = part(start, end)
        wanted = {p for c in alone[: end - start] for p in c if p[0] in known and is_chunked(p)}
        if wanted <= cut(found):
            return found
    return part(start, start + 1)


def with_sums_apart(program: Program, is_chunked: Callable[[Place], bool]) -> Program:
    """Sums over chunked dimensions that go on from what is there start from nothing instead, in a
    tensor of their own, which is added. That can be done by blocks."""
    taken = {t.name for t in program.tensors} | {s.name for s in statements(program.body)}
    tensors, body = list(program.tensors), list[Item]()
    for item in program.body:
        if isinstance(item, Statement) and _goes_on(item, is_chunked):
            t = program.tensor(item.target)
            part = replace(t, name=fresh(t.name, taken), dtype=t.dtype.accumulator)
            tensors.append(replace(part, role="temporary"))
            body.append(replace(item, target=part.name, initialise=True))
            body.append(_added(item, t, part, fresh("S", taken)))
        else:
            body.append(item)
    if len(body) == len(program.body):
        return program
    return with_sizes(replace(program, tensors=tuple(tensors), body=tuple(body)), program.sizes)


def _goes_on(s: Statement, is_chunked: Callable[[Place], bool]) -> bool:
    """It adds to what is there, over a dimension that is chunked, at each left point."""
    reduced = {r.variable for r in s.domain if r.reduced}
    if s.op == "=" or s.initialise or s.scattered or not reduced:
        return False
    return any(
        isinstance(e, Index) and e.variables() & reduced and is_chunked((read.tensor, d))
        and not any(e.variables() & {r.variable} for r in s.domain if not r.reduced)
        for read in all_reads(s)
        for d, e in enumerate(read.subscripts)
    )  # fmt: skip


def _added(s: Statement, t: Tensor, part: Tensor, name: str) -> Statement:
    """`t(…) = t(…) op part(…)`, wherever the sum has a value."""
    checked = (False,) * len(t.shape)
    old: Expr = Read(t.name, s.subscripts, t.dtype, checked)
    if t.dtype is not part.dtype:
        old = Cast(old, part.dtype)
    value: Expr = Binary(
        _OPERATORS[s.op], old, Read(part.name, s.subscripts, part.dtype, checked), part.dtype
    )
    if t.dtype is not part.dtype:
        value = Cast(value, t.dtype)
    domain = tuple(r for r in s.domain if not r.reduced)
    return replace(s, name=name, op="=", domain=domain, value=value, exists=(), given=())


def _written(items: Collection[Item]) -> set[str]:
    return {s.target for s in statements(tuple(items))}


def _read(items: Collection[Item]) -> set[str]:
    return {r.tensor for s in statements(tuple(items)) for r in all_reads(s)}


def _program_of(program: Program, start: int, end: int) -> tuple[Program, tuple[str, ...]]:
    """The program of some statements, and what its inputs are in the whole."""
    if (start, end) == (0, len(program.body)):
        return program, tuple(t.name for t in program.inputs)
    items = program.body[start:end]
    own, before = _written(items), _written(program.body[:start])
    later = _read(program.body[end:]) | _written(program.body[end:])
    later |= {t.name for t in program.outputs}
    inputs: list[tuple[Tensor, str]] = []
    copies: list[Item] = []
    taken = {t.name for t in program.tensors} | {s.name for s in statements(program.body)}
    for t in program.tensors:
        if t.name in own & before:
            old = replace(t, name=fresh(f"{t.name}_old", taken), role="input")
            inputs.append((old, t.name))
            copies.append(_copy(t, old, fresh("S", taken)))
        elif t.name in _read(items) - own:
            inputs.append((replace(t, role="input"), t.name))
    outputs = [replace(t, role="output") for t in program.tensors if t.name in own & later]
    left = [replace(t, role="temporary") for t in program.tensors if t.name in own - later]
    tensors = *(t for t, _ in inputs), *outputs, *left
    body = *copies, *items
    made = with_sizes(replace(program, tensors=tensors, body=body, checks=()), program.sizes)
    return made, tuple(source for _, source in inputs)


def _copy(t: Tensor, old: Tensor, name: str) -> Statement:
    names = [f"i{d}" for d in range(len(t.shape))]
    domain = [Range(n, ZERO, extent, False) for n, extent in zip(names, t.shape)]
    subscripts = tuple(map(var, names))
    value = Read(old.name, subscripts, t.dtype, (False,) * len(names))
    return Statement(name, t.name, subscripts, "=", False, tuple(domain), value)


def with_sizes(program: Program, order: Collection[str]) -> Program:
    """The program with the sizes that occur in it, in this order, and its hash."""
    used = sizes_in((program.tensors, program.body))
    sizes = tuple(n for n in order if n in used)
    bound = {str(e) for t in program.inputs for e in t.shape}
    free = tuple(n for n in sizes if n not in bound)
    made = replace(program, sizes=sizes, free_sizes=free, canonical="")
    return with_hash(made)


def fresh(name: str, taken: set[str]) -> str:
    """A name like this one that is not taken; it is from now on."""
    made = next(n for k in range(len(taken) + 1) if (n := f"{name}{k or ''}") not in taken)
    taken.add(made)
    return made
