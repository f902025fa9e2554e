"""Statements and their tensors -> a def: parameters that bind all sizes, ranges where needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.differentiate.algebra import rebuilt, with_bounds
from tcsym.differentiate.names import Names
from tcsym.differentiate.text import item_lines, type_name
from tcsym.errors import DerivativeError, TCError, TCSyntaxError
from tcsym.frontend.program import (
    Expr,
    For,
    Given,
    If,
    Item,
    Program,
    Statement,
    Tensor,
    statements,
    variables_of,
)
from tcsym.index.expr import (
    Choose,
    FloorDiv,
    Index,
    Mod,
    atom_parts,
    condition_variables,
    var,
)
from tcsym.index.values import map_condition

_ROUNDS = 12
_WIDTH = 100


class Header(Struct, frozen=True):
    """What a def takes, in this order, and gives."""

    name: str
    program: Program
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]  # of the program, as arguments
    gradients: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    sizes: tuple[str, ...] = ()  # size parameters of its own, behind all tensors


def written(
    header: Header, items: tuple[Item, ...], names: Names, analyse: Callable[[str], Program]
) -> str:
    """The text of the def."""
    extents = _named_extents(header, names)
    items = tuple(_with_extents(items, extents))
    header = _bound(header, items, extents)
    head = _header_lines(header, extents)
    found = list(statements(items))
    needed: dict[int, set[str]] = {}
    for _ in range(_ROUNDS):
        text = _text(head, items, needed)
        more = _missing_ranges(text, len(head), found, items, needed, analyse)
        if not more:
            return text
        for key, variables in more.items():
            needed.setdefault(key, set()).update(variables)
    needed = {id(s): {r.variable for r in s.walked} for s in found}
    return _text(head, items, needed)


def _text(head: list[str], items: Collection[Item], needed: Mapping[int, Collection[str]]) -> str:
    return "\n".join([*head, *item_lines(items, needed, "  "), "}", ""])


def _missing_ranges(
    text: str,
    first_line: int,
    found: list[Statement],
    items: tuple[Item, ...],
    needed: Mapping[int, Collection[str]],
    analyse: Callable[[str], Program],
) -> dict[int, set[str]]:
    """Variables by statement whose ranges inference does not find as they are."""
    try:
        program = analyse(text)
    except TCSyntaxError as error:  # only limits of the text can be
        message = f"the derivative is too large: {error.message}"
        raise DerivativeError(
            message, hint="name parts of long values in statements of their own"
        ) from None
    except TCError as error:
        lines = [e.line for e in (error, *error.others)]
        at = _statement_at(lines[0], first_line, items, needed)
        wrong = {id(s): {r.variable for r in s.walked} for s in ([found[at]] if at >= 0 else [])}
        fresh = {k: v for k, v in wrong.items() if v - set(needed.get(k, ()))}
        if fresh:
            return fresh
        rest = {id(s): {r.variable for r in s.walked} for s in found}
        rest = {k: v for k, v in rest.items() if v - set(needed.get(k, ()))}
        if not rest:
            raise
        return rest
    more: dict[int, set[str]] = {}
    for s, inferred in zip(found, statements(program.body), strict=True):
        ranges = {r.variable: (r.lower, r.upper) for r in inferred.walked}
        differ = {
            r.variable for r in s.walked if ranges.get(r.variable) != (r.lower, r.upper)
        } - set(needed.get(id(s), ()))
        if differ:
            more[id(s)] = differ
    return more


def _statement_at(
    line: int, first_line: int, items: tuple[Item, ...], needed: Mapping[int, Collection[str]]
) -> int:
    """The number of the statement that a line of the text is part of."""
    at, number = first_line, -1
    for n, last in _last_lines(items, needed, at):
        number, at = n, last
        if line <= at:
            return number
    return number


def _last_lines(
    items: Collection[Item], needed: Mapping[int, Collection[str]], at: int
) -> Iterator[tuple[int, int]]:
    n = 0

    def inner(block: Collection[Item], at: int) -> Iterator[tuple[int, int]]:
        nonlocal n
        for item in block:
            lines = len(item_lines([item], needed, "  "))
            match item:
                case Statement():
                    yield n, at + lines
                    n += 1
                case For(_, _, _, body):
                    yield from inner(body, at + 1)
                case If(_, then, orelse):
                    yield from inner(then, at + 1)
                    yield from inner(orelse, at + lines - 1 - len(item_lines(orelse, needed, "")))
            at += lines

    yield from inner(items, at)


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


def _with_extents(items: Collection[Item], extents: Mapping[Index, str]) -> Iterator[Item]:
    """Items in which what has a name is called by it."""

    def of_index(e: Index) -> Index:
        return shorter(e, extents)

    def of_expression(e: Expr) -> Expr:
        return rebuilt(e, of_expression, of_index)

    for item in items:
        match item:
            case Statement():
                domain = [with_bounds(r, of_index) for r in item.domain]
                yield replace(
                    item,
                    subscripts=tuple(map(of_index, item.subscripts)),
                    domain=tuple(domain),
                    value=of_expression(item.value),
                    given=tuple(Given(g.name, of_expression(g.value)) for g in item.given),
                )
            case For(_, lower, upper, body):
                inner = tuple(_with_extents(body, extents))
                yield replace(item, lower=of_index(lower), upper=of_index(upper), body=inner)
            case If(condition, then, orelse):
                yield If(
                    map_condition(condition, of_index),
                    tuple(_with_extents(then, extents)),
                    tuple(_with_extents(orelse, extents)),
                )


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


# ---- the first lines


def has_dimensions(t: Tensor, program: Program, more: Collection[str] = ()) -> bool:
    """Whether a def can say what size a result has: it divides by constants and products of size
    parameters, its own and `more`. That of others is found from what writes them."""
    parameters = frozenset((*more, *(p.name for p in program.size_parameters)))
    return all(_is_dimension(e, parameters) for e in t.shape)


def _is_dimension(e: Index, parameters: frozenset[str]) -> bool:
    for atom, _ in e.terms:
        match atom:
            case FloorDiv(_, d) | Mod(_, d) if d.terms:
                if len(d.terms) > 1 or d.constant or not d.variables() <= parameters:
                    return False
            case Choose():
                return False
        if not all(_is_dimension(x, parameters) for x in atom_parts(atom)):
            return False
    return True


def _header_lines(header: Header, extents: Mapping[Index, str]) -> list[str]:
    def parameter(t: Tensor) -> str:
        sizes = ",".join(extents.get(e, str(e)) for e in t.shape)
        return f"{type_name(t.dtype)}{f'({sizes})' if t.shape else ''} {t.name}"

    params = [parameter(t) for t in (*header.inputs, *header.outputs, *header.gradients)]
    params += [f"size {name}" for name in header.sizes]
    results = [
        parameter(t) if has_dimensions(t, header.program, header.sizes) else t.name
        for t in header.results
    ]
    start, end = f"def {header.name}(", f"-> ({', '.join(results)}) {{"
    lines = [start]
    for k, p in enumerate(params):
        part = p + (", " if k + 1 < len(params) else ") ")
        if len(lines[-1]) + len(part.rstrip()) > _WIDTH:
            lines[-1] = lines[-1].rstrip()
            lines.append("    ")
        lines[-1] += part
    if len(lines[-1]) + len(end) <= _WIDTH:
        lines[-1] += end
        return lines
    return [*lines[:-1], lines[-1].rstrip(), f"    {end}"]
