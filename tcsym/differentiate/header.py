# SPDX-License-Identifier: Apache-2.0
"""Statements and their tensors -> a def: parameters that bind all sizes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.differentiate.halves import in_float
from tcsym.differentiate.names import Names
from tcsym.errors import DerivativeError
from tcsym.frontend.program import (
    For,
    If,
    Item,
    Program,
    Role,
    SizeParameter,
    Statement,
    Tensor,
    in_order,
    statements,
    variables_of,
)
from tcsym.frontend.rename import Rewriting
from tcsym.frontend.unparse import is_declarable, source_of
from tcsym.index.expr import Index, condition_variables, var


class Header(Struct, frozen=True):
    """What a def takes, in this order, and gives."""

    name: str
    program: Program
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]  # of the program, as arguments
    gradients: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    sizes: tuple[str, ...] = ()  # size parameters of its own, behind all tensors


def program_of(
    header: Header, items: tuple[Item, ...], tensors: Mapping[str, Tensor], names: Names
) -> Program:
    """The def, as its text is read back. tensors: temporaries. Errors: those of inference."""
    extents = _named_extents(header, names)
    items = _Shortening(extents).items(items)
    header = _bound(header, items, extents)

    def called(t: Tensor, role: Role) -> Tensor:
        shape = tuple(var(extents[e]) if e in extents else e for e in t.shape)
        return Tensor(t.name, t.dtype, shape, role)

    taken = [called(t, "input") for t in (*header.inputs, *header.outputs, *header.gradients)]
    results = [replace(t, role="output") for t in header.results]
    arguments = {t.name for t in (*taken, *results)}
    made = dict.fromkeys(s.target for s in statements(items))
    own = {n: replace(tensors[n], role="temporary") for n in made if n not in arguments}
    short = {t.name: t for t in (*taken, *results)}
    items = in_float(items, found := own | short, arguments)
    temporaries = [found[n] for n in own]
    is_alike = taken == list(header.program.inputs)
    places = {p.name: p.place for p in header.program.size_parameters} if is_alike else {}
    parameters = [
        SizeParameter(n, places.get(n, len(taken) + k)) for k, n in enumerate(header.sizes)
    ]
    program = Program(
        header.name,
        (),
        (),
        (*taken, *results, *temporaries),
        items,
        (),
        size_parameters=tuple(parameters),
    )
    sizes = dict.fromkeys(
        v
        for p in in_order(taken, parameters)
        for e in (p.shape if isinstance(p, Tensor) else (var(p.name),))
        for v in e.variables()
    )
    free = dict.fromkeys(header.sizes)
    said = (e for t in results if is_declarable(t, program) for e in t.shape)
    free |= dict.fromkeys(str(e) for e in said if _is_plain(e) and e.terms and str(e) not in sizes)
    program = replace(program, sizes=tuple(sizes | free), free_sizes=tuple(free))
    return source_of(program, free_order=True)


# ---- sizes


def _named_extents(header: Header, names: Names) -> dict[Index, str]:
    """Names for extents of arguments that are neither sizes nor numbers; nor may they be sizes that
    are divided by, which have to be size parameters."""
    divisors = {var(p.name) for p in header.program.size_parameters if p.divides}
    found: dict[Index, str] = {}
    for t in (*header.outputs, *header.gradients):
        for e in t.shape:
            if e not in found and (not _is_plain(e) or e in divisors):
                found[e] = names.fresh("PQRSUV"[len(found) % 6])
    return found


def _is_plain(e: Index) -> bool:
    return e.is_constant or (len(e.terms) == 1 and e == var(str(e)))


def _bound(header: Header, items: tuple[Item, ...], extents: Mapping[Index, str]) -> Header:
    """With more inputs if sizes need them."""
    program = header.program
    used = _variables(items) & {*program.sizes}
    for t in header.results:
        used |= {v for e in t.shape for v in e.variables()}

    def known(tensors: Sequence[Tensor]) -> set[str]:
        plain = (e for t in tensors for e in t.shape if _is_plain(e) and e not in extents)
        return {v for e in plain for v in e.variables()}

    inputs = list(header.inputs)
    missing = used - known((*inputs, *header.outputs, *header.gradients)) - {*header.sizes}
    sizes = [p.name for p in program.size_parameters if p.name in missing]
    missing -= known(header.results) & {*program.free_sizes} | {*sizes}
    for t in program.inputs:
        if missing & known((t,)):
            inputs.append(t)
            missing -= known((t,))
    outputs = list(header.outputs)
    for t in program.outputs:
        is_made = any(s.target == t.name for s in statements(items))
        if missing & known((t,)) and not is_made:
            outputs.append(t)
            missing -= known((t,))
    if missing:
        message = f"size `{min(missing)}` of `{program.name}` is that of no argument"
        raise DerivativeError(message)
    order = {t.name: k for k, t in enumerate(program.tensors)}
    inputs.sort(key=lambda t: order[t.name])
    outputs.sort(key=lambda t: order.get(t.name, len(order)))  # others have been saved
    found = tuple(inputs), tuple(outputs)
    return replace(header, inputs=found[0], outputs=found[1], sizes=(*sizes, *header.sizes))


def _variables(items: Collection[Item]) -> set[str]:
    found: set[str] = set()
    for item in items:
        match item:
            case Statement():
                found |= variables_of(item.value)
                found = found.union(*(variables_of(g.value) for g in item.given))
                for e in item.subscripts:
                    found |= e.variables()
                for r in item.domain:
                    found |= r.lower.variables() | r.upper.variables()
                    found |= frozenset() if r.at is None else variables_of(r.at)
            case For(_, lower, upper, body):
                found |= lower.variables() | upper.variables() | _variables(body)
            case If(condition, then, orelse):
                found |= condition_variables(condition) | _variables(then) | _variables(orelse)
    return found


class _Shortening(Rewriting):
    """With what has a name called by it."""

    def __init__(self, extents: Mapping[Index, str]) -> None:
        self.extents = extents

    def index(self, e: Index) -> Index:
        return shorter(e, self.extents)


def shorter(e: Index, extents: Mapping[Index, str]) -> Index:
    """`e` by names of extents: T - K + 1 - p is P - p."""
    for extent, name in extents.items():
        atom, factor = extent.terms[0]
        times, rest = divmod(e.coefficient(atom), factor)
        if rest or not times:
            continue
        made = e - extent * times + var(name) * times
        if len(made.terms) < len(e.terms) or made == var(name):
            e = made
    return e
