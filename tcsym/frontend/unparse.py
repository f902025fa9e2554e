# SPDX-License-Identifier: Apache-2.0
"""Typed program -> the text of a def that means it: the inverse of parse, check and infer.

No more ranges are written than inference needs to find the same, and no more conversions than the
rules of types need. What was written is read back: no text is given away that means another
program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never, cast

from msgspec import Struct
from msgspec.structs import replace

from tcsym.errors import Span, TCError
from tcsym.frontend.affine import as_index
from tcsym.frontend.canonical import canonical_hash
from tcsym.frontend.check import resolve
from tcsym.frontend.check_index import note_divisors
from tcsym.frontend.half import is_half
from tcsym.frontend.infer import infer
from tcsym.frontend.infer_extents import Extents
from tcsym.frontend.infer_facts import Facts
from tcsym.frontend.infer_walk import place, placed_statements
from tcsym.frontend.interpret_values import identity
from tcsym.frontend.literals import round_to
from tcsym.frontend.names import Names, names_in, written_plainly
from tcsym.frontend.parser import parse
from tcsym.frontend.positions import position_parts
from tcsym.frontend.program import (
    Binary,
    Cast,
    Const,
    Expr,
    For,
    Given,
    If,
    IndexValue,
    Item,
    Program,
    Read,
    Select,
    SizeParameter,
    Statement,
    Tensor,
    Unary,
    children,
    dtype_of,
    rewritten,
    statements,
)
from tcsym.frontend.rename import Kind, Rewriting, S
from tcsym.frontend.resolved import (
    ResolvedFor,
    ResolvedIf,
    ResolvedItem,
    ResolvedProgram,
    ResolvedStatement,
    ResolvedTensor,
    Variable,
)
from tcsym.frontend.scope import Scope
from tcsym.frontend.unparse_expressions import is_half_value
from tcsym.frontend.unparse_text import StatementText, header_lines, item_lines, statement_text
from tcsym.index.expr import Choose, FloorDiv, Index, Mod, atom_parts, var
from tcsym.trees import preorder
from tcsym.types import DType

_Needed = list[set[str]]  # of each statement, the variables whose ranges are written


class Unparsed(Exception):
    """The text that was written means another program: a fault of ours."""


def source_of(program: Program, *, free_order: bool = False) -> Program:
    """`program` as its text is read back, with this text as its source.

    Names that inlining made become plain ones. free_order: reduced variables may be met in any
    order; else ranges say it where the text alone would not. A half type accumulates what is
    computed in float through a temporary: no text says it otherwise. Errors: those of inference;
    TCSyntaxError beyond the limits of a text.
    """
    return _Unparse.of(program).run(free_order, program.filename)


def is_same(a: Program, b: Program) -> bool:
    """Whether two programs differ in names only, and in how index expressions are spelled."""
    return _ranged(a) == _ranged(b)


def _ranged(program: Program) -> str:
    whole = _Unparse.of(program)
    return _meaning(whole.resolved([{*x.ranges} for x in whole.written]))


class _Unparse(Struct, frozen=True):
    program: Program
    written: list[StatementText]
    found: list[Statement]

    @staticmethod
    def of(program: Program) -> _Unparse:
        program = _through_floats(written_plainly(program))
        items = _Plain().items(program.body)
        program = replace(program, body=items, size_parameters=_dividing(program))
        found = list(statements(items))
        declared = {t.name: t.dtype for t in program.outputs if is_declarable(t, program)}
        known = {t.name: t.dtype for t in program.inputs} | declared
        written = []
        for s in found:
            written.append(statement_text(s, known.get(s.target), declared.get(s.target)))
            known.setdefault(s.target, program.tensor(s.target).dtype)
        return _Unparse(program, written, found)

    def run(self, free_order: bool, filename: str) -> Program:
        needed = self._least(free_order)
        meant = self.resolved(needed)
        text = self.text(needed)
        (read,) = resolve(parse(text, filename)).values()
        if _meaning(read) != _meaning(meant):
            raise Unparsed(f"the text means another program:\n{text}")
        return replace(infer(read), canonical=canonical_hash(read))

    def text(self, needed: _Needed) -> str:
        p = self.program
        declared = [t.name for t in p.outputs if is_declarable(t, p)]
        chosen = [w.line(names) for w, names in zip(self.written, needed)]
        lines = [*header_lines(p, declared), *item_lines(p.body, iter(chosen), "  "), "}", ""]
        return "\n".join(lines)

    # ---- ranges

    def _least(self, free_order: bool) -> _Needed:
        """The ranges that inference would not find as they are."""
        needed: _Needed = []
        for s, text in zip(self.found, self.written):
            given = {g.name for g in s.given}
            names = {v for v, used in text.uses.items() if used & given}
            needed.append(names | (text.ranges.keys() - {*text.order(())}))
        while True:
            whole = zip(self.found, self.written, needed)
            needed = [self._closed(*x, free_order) for x in whole]
            more = self._missing(needed)
            if not any(more):
                return needed
            needed = list(map(set.union, needed, more))

    def _closed(
        self, s: Statement, text: StatementText, names: set[str], free_order: bool
    ) -> set[str]:
        """With reduced variables that are met in their order then, and those that the ends of their
        ranges use: those stand before."""
        own = [r.variable for r in s.walked if r.reduced and r.variable not in text.on_left]
        if not free_order and [v for v in text.order(names) if v in own] != own:
            names = names | {*own}
        for r in reversed(s.walked):
            if r.variable in names:
                used = r.lower.variables() | r.upper.variables()
                names = names | {x.variable for x in s.walked if x.reduced and x.variable in used}
        return names

    def _missing(self, needed: _Needed) -> _Needed:
        program = self.resolved(needed)
        facts = Facts(program.sizes)
        for p in program.size_parameters:
            if p.divides:
                facts.assume_positive(var(p.name))
        whole = [{r.variable for r in s.walked} for s in self.found]
        rest = [a - b for a, b in zip(whole, needed)]
        try:
            nodes, _ = place(program, Extents.of_program(program, facts), facts)
        except TCError as error:
            k = error.line - 1
            if 0 <= k < len(rest) and rest[k]:
                return [x if n == k else set[str]() for n, x in enumerate(rest)]
            if not any(rest):
                raise
            return rest
        more: _Needed = []
        for s, placed in zip(self.found, placed_statements(nodes), strict=True):
            ends = {r.variable: (r.lower, r.upper) for r in placed.domain}
            more.append({r.variable for r in s.walked if ends[r.variable] != (r.lower, r.upper)})
        return [a & b for a, b in zip(more, rest)]

    # ---- the program before inference

    def resolved(self, needed: _Needed) -> ResolvedProgram:
        p = self.program
        declared = {t.name for t in p.outputs if is_declarable(t, p)}
        first = dict.fromkeys(s.target for s in self.found)
        own = {t.name: t for t in p.tensors}
        temporaries = [own[n] for n in first if own[n].role == "temporary"]
        tensors = [
            ResolvedTensor(
                t.name,
                t.dtype,
                len(t.shape),
                t.shape if t.role in ("input", "inout") or t.name in declared else None,
                t.role,
            )
            for t in (*p.inputs, *p.outputs, *temporaries)
        ]
        return ResolvedProgram(
            p.name,
            p.sizes,
            p.free_sizes,
            tuple(tensors),
            self._items(p.body, iter(range(len(self.found))), needed),
            size_parameters=p.size_parameters,
        )

    def _items(
        self, items: tuple[Item, ...], numbers: Iterator[int], needed: _Needed
    ) -> tuple[ResolvedItem, ...]:
        found: list[ResolvedItem] = []
        for item in items:
            match item:
                case Statement():
                    found.append(self._statement(item, next(numbers), needed))
                case For(variable, lower, upper, body):
                    inner = self._items(body, numbers, needed)
                    found.append(ResolvedFor(variable, lower, upper, inner))
                case If(condition, then, orelse):
                    yes = self._items(then, numbers, needed)
                    found.append(ResolvedIf(condition, yes, self._items(orelse, numbers, needed)))
                case _:
                    assert_never(item)
        return tuple(found)

    def _statement(self, s: Statement, k: int, needed: _Needed) -> ResolvedStatement:
        span = Span(k + 1, 1)
        ranges = {r.variable: r for r in s.walked}
        values = {g.name: g.value for g in s.given}
        given: list[Given] = []
        where: dict[str, tuple[Index, Index]] = {}
        for r in (r for r in s.walked if r.variable in needed[k]):
            ends = []
            for e, end in ((r.lower, "lower"), (r.upper, "upper")):
                value = next((values[n] for n in values if e == var(n)), None)
                if value is not None:
                    given.append(Given(f"{r.variable}.{end}", value))
                    e = var(f"{r.variable}.{end}")
                ends.append(e)
            where[r.variable] = ends[0], ends[1]
        variables = [
            Variable(v, ranges[v].reduced, where.get(v), span, span)
            for v in self.written[k].order(needed[k])
        ]
        positions = [
            Variable(r.variable, False, span=span, at=position_parts(r.at)[1])
            for r in s.scattered
            if r.at is not None
        ]
        return ResolvedStatement(
            s.target,
            s.subscripts,
            s.op,
            s.initialise,
            (*variables, *positions),
            s.value,
            s.exists,
            span,
            tuple(span for _ in s.subscripts),
            tuple(given),
        )


# ---- what can be declared


def is_declarable(t: Tensor, program: Program) -> bool:
    """Whether a def can say what size a result has: it divides by constants and products of size
    parameters. That of others is found from what writes them."""
    parameters = frozenset(p.name for p in program.size_parameters)
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


def _dividing(program: Program) -> tuple[SizeParameter, ...]:
    """Size parameters, with whether the end of a range, a loop or a dimension divides by them."""
    scope = Scope(size_parameters={p.name: p for p in program.size_parameters})
    declared = [e for t in program.outputs if is_declarable(t, program) for e in t.shape]
    for e in (*declared, *_bounds(program.body)):
        note_divisors(e, scope)
    return tuple(scope.size_parameters.values())


def _bounds(items: Iterable[Item]) -> Iterator[Index]:
    for item in items:
        match item:
            case Statement():
                yield from (e for r in item.walked for e in (r.lower, r.upper))
            case For(_, lower, upper, body):
                yield from (lower, upper)
                yield from _bounds(body)
            case If(_, then, orelse):
                yield from _bounds((*then, *orelse))


# ---- halves


def _through_floats(program: Program) -> Program:
    short = {t.name: t for t in program.tensors if is_half(t.dtype)}
    found = [s for s in statements(program.body) if s.target in short and _sums_floats(s)]
    if not found:
        return program
    names = Names({*names_in(program)})
    sums = {}
    for n in dict.fromkeys(s.target for s in found):
        sums[n] = replace(
            short[n], name=names.fresh(f"{n}_sum"), dtype=DType.FLOAT32, role="temporary"
        )
    body = _ThroughFloats(sums, short).items(program.body)
    return replace(program, tensors=(*program.tensors, *sums.values()), body=body)


def _sums_floats(s: Statement) -> bool:
    return s.op != "=" and not _has_halves_only(s.value)


def _has_halves_only(e: Expr) -> bool:
    """Whether what is computed in float32 is of a half type in the text."""
    ends = (x for x in preorder(e, _computed_of) if not _computed_of(x))
    return all(isinstance(x, Const) or is_half_value(x) for x in ends)


def _computed_of(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Select(_, a, b):
            return a, b
        case Read() | Cast() | IndexValue():
            return ()
    return children(e)


class _ThroughFloats(Rewriting):
    """sums: for tensors of half types."""

    def __init__(self, sums: Mapping[str, Tensor], short: Mapping[str, Tensor]) -> None:
        self.sums, self.short = sums, short

    def items(self, items: tuple[Kind, ...]) -> tuple[Kind, ...]:
        found = (made for item in super().items(items) for made in self._in_parts(item))
        return cast("tuple[Kind, ...]", tuple(found))

    def _in_parts(self, s: ResolvedItem | Item) -> Iterator[ResolvedItem | Item]:
        if not isinstance(s, Statement) or s.target not in self.sums or not _sums_floats(s):
            yield s
            return
        whole, long, dtype = s.image, self.sums[s.target], self.short[s.target].dtype
        before: Expr = Cast(Read(s.target, s.subscripts, dtype), long.dtype)
        part = replace(s, domain=whole, op="=", initialise=False, exists=(), given=())
        if s.initialise and s.scattered:  # an extent is known before positions in it are
            before = Const(float(identity(s.op, long.dtype)), long.dtype)
        if s.scattered or not s.initialise:
            yield replace(part, target=long.name, value=before)
        yield replace(s, target=long.name, initialise=s.initialise and not s.scattered)
        yield replace(part, value=Cast(Read(long.name, s.subscripts, long.dtype), dtype))


# ---- as the front end has it before inference


class _Plain(Rewriting):
    """Without what inference found out about reads, which get the number of their statement as
    their line; integers are exact in subscripts alone."""

    def __init__(self) -> None:
        self.span = Span(0, 1)

    def statement(self, s: S) -> S:
        self.span = Span(self.span.line + 1, 1)
        made = super().statement(s)
        if made.op == "+=" and made.initialise and not _moves(s):  # a sum of one term
            made = replace(made, op="=", initialise=False)
        return replace(made, given=tuple(Given(g.name, self._exact(g.value)) for g in s.given))

    def position(self, at: Index | Expr | None) -> Index | Expr | None:
        return at if at is None or isinstance(at, Index) else self._exact(at)

    def expression(self, e: Expr) -> Expr:
        return rewritten(e, self.changed, below=_outside_subscripts)

    def changed(self, e: Expr, before: Expr) -> Expr:
        if isinstance(e, Read):
            found = [i if isinstance(i, Index) else self._exact(i) for i in e.subscripts]
            return self._read(replace(e, subscripts=tuple(found)), before)
        made = folded(e)
        return replace(made, exact=False) if isinstance(made, Binary | Cast) else made

    def _exact(self, e: Expr) -> Expr:
        return rewritten(e, self._read)

    def _read(self, e: Expr, _: Expr) -> Expr:
        if not isinstance(e, Read):
            return e
        return replace(e, checked=(), unwritten=None, span=self.span)


def _outside_subscripts(e: Expr) -> tuple[Expr, ...]:
    return () if isinstance(e, Read) else children(e)


def _moves(s: Statement | ResolvedStatement) -> bool:
    ranges = s.domain if isinstance(s, Statement) else s.variables
    return any(r.reduced or r.at is not None for r in ranges)


# ---- meanings


def _meaning(program: ResolvedProgram) -> str:
    """The same for texts that mean the same: without names, conversions of a type to itself and
    other spellings of index expressions."""
    sizes = tuple(replace(p, divides=False) for p in program.size_parameters)
    items = _Normal().items(program.body)
    return canonical_hash(replace(program, body=items, size_parameters=sizes))


class _Normal(Rewriting):
    def expression(self, e: Expr) -> Expr:
        return normal(e)


def normal(e: Expr) -> Expr:
    return rewritten(e, _normal)


def _normal(e: Expr, _: Expr) -> Expr:
    made = folded(e)
    match made:
        case Cast(x, dtype) if dtype_of(x) is dtype:
            return x
        case Cast(IndexValue(i), DType.INT64) if i == var(str(i)):
            return IndexValue(i, DType.INT64)
        case Binary() | Unary() | Select() if dtype_of(made) in (DType.INT32, DType.INT64):
            parts = children(made)[-2:]
            if all(isinstance(x, IndexValue | Const) for x in parts):
                whole = as_index(made)
                return made if whole is None else _index_value(whole, dtype_of(made))
    return made


def folded(e: Expr) -> Expr:
    """Numbers as literals are."""
    match e:
        case IndexValue(i, dtype):
            return _index_value(i, dtype)
        case Cast(Const(value, given), dtype) if given.is_integer and dtype.is_float:
            return Const(round_to(value, dtype.accumulator), dtype)
    return e


def _index_value(i: Index, dtype: DType) -> Expr:
    known = i.as_int()
    return IndexValue(i, dtype) if known is None else Const(known, dtype)
