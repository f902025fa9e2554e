"""Text of a def -> text of the def that runs it for each element of a batch, without a loop.

Each batched tensor has one more dimension in front, and each statement that writes one has one more
index, so what comes out is a def like any other: its loops fuse, tile and run on threads as usual.
A tensor is batched if anything that goes into it is. Example, for a batch of `X`:

    def f(float(N,K) X, float(K) w) -> (Y) { Y(n) +=! X(n,k) * w(k) }
    def f_batched(float(V,N,K) X, float(K) w) -> (Y) { Y(v,n) +=! X(v,n,k) * w(k) where v in 0:V }
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend import ast
from tcsym.frontend.builtins import ARITY
from tcsym.frontend.format import format_program
from tcsym.frontend.parser import parse

# A def, its batched parameters, and tensors that must be batched whatever goes into them.
_Key = tuple[str, frozenset[str], frozenset[str]]


class Batched(Struct, frozen=True):
    """`source` has def `name`; `outputs` of its results have the batch in front, others are whole.

    size: of the batch.
    """

    source: str
    name: str
    size: str
    outputs: frozenset[str]


def batched_source(source: str, name: str, inputs: Collection[str]) -> Batched:
    """Def `name` of a text, which was checked, for a batch of the parameters `inputs`."""
    module = parse(source)
    batch = _Batch({d.name: d for d in module.defs}, taken=set(identifiers(module)))
    key = name, frozenset(inputs), frozenset[str]()
    made = batch.name_of(key)
    results = {r.name for r in batch.defs[name].results}
    text = format_program(ast.Module(tuple(batch.made.values())))
    return Batched(text, made, batch.size, frozenset(batch.tensors(key) & results))


class _Batch(Struct):
    """`made`: by what they are batched in; `taken`: all names of the text."""

    defs: Mapping[str, ast.Def]
    taken: set[str]
    names: dict[_Key, str] = field(default_factory=dict)
    made: dict[str, ast.Def] = field(default_factory=dict)
    size: str = ""
    index: str = ""

    def __post_init__(self) -> None:
        self.size, self.index = self.fresh("V"), self.fresh("v")

    def fresh(self, name: str) -> str:
        candidates = (f"{name}{k or ''}" for k in range(len(self.taken) + 1))
        found = next(n for n in candidates if n not in self.taken)
        self.taken.add(found)
        return found

    def name_of(self, key: _Key) -> str:
        """The def of this key, which is made if it is not there."""
        name, inputs, more = key
        if key not in self.names:
            self.names[key] = self.fresh(f"{name}_batched") if inputs or more else name
            made = _made_def(self, key) if inputs or more else self.copied(name)
            self.made[self.names[key]] = made
        return self.names[key]

    def copied(self, name: str) -> ast.Def:
        """A def that has nothing to do with the batch, and all that it calls."""
        d = self.defs[name]
        for statement in ast.assignments(d.body):
            call = _as_call(statement, self.defs, _assigned(d))
            if call is not None:
                self.name_of((call.function.name, frozenset(), frozenset()))
        return d

    def tensors(self, key: _Key) -> frozenset[str]:
        """All batched tensors of a def: what batched ones go into, again and again."""
        name, inputs, more = key
        d = self.defs[name]
        found = set(inputs | more)
        known = -1
        while known != len(found):
            known = len(found)
            for statement in ast.assignments(d.body):
                found |= self._batched_targets(statement, d, found)
        return frozenset(found)

    def _batched_targets(
        self, statement: ast.Assign | ast.CallStatement, d: ast.Def, found: Collection[str]
    ) -> set[str]:
        call = _as_call(statement, self.defs, _assigned(d))
        if call is None:
            assert isinstance(statement, ast.Assign)
            is_batched = any(n in found for e in _expressions(statement) for n in _names(e))
            return {statement.target} if is_batched else set()
        key = self.key_of(call, found)
        callee = self.defs[key[0]]
        made = self.tensors(key)
        updated = [
            n
            for p, x in zip(callee.params, call.args)
            if isinstance(p, ast.Param) and p.inout and p.name in made
            for n in _names(x)
        ]
        return {t.name for t, r in zip(call.targets, callee.results) if r.name in made} | {*updated}

    def key_of(self, call: ast.CallStatement, batched: Collection[str]) -> _Key:
        """Which version of a def is called where these tensors of the caller are batched."""
        callee = self.defs[call.function.name]
        inputs = {
            p.name for p, x in zip(callee.params, call.args) if any(n in batched for n in _names(x))
        }
        more = {r.name for r, t in zip(callee.results, call.targets) if t.name in batched}
        return callee.name, frozenset(inputs), frozenset(more if inputs else ())


def _made_def(batch: _Batch, key: _Key) -> ast.Def:
    d = batch.defs[key[0]]
    batched = batch.tensors(key)
    front = ast.Dimension(batch.size)
    params = tuple(
        replace(p, dimensions=(front, *p.dimensions))
        if isinstance(p, ast.Param) and p.name in batched
        else p
        for p in d.params
    )
    results = tuple(
        replace(r, dimensions=(ast.Name(batch.size), *r.dimensions))
        if r.dtype is not None and r.name in batched
        else r
        for r in d.results
    )
    body = _Body(batch, d, batched).items(d.body)
    return replace(d, name=batch.names[key], params=params, results=results, body=body)


class _Body(Struct, frozen=True):
    """Statements of a def, with the batch's index where tensors are `batched`."""

    batch: _Batch
    d: ast.Def
    batched: frozenset[str]

    def items(self, items: tuple[ast.Item, ...]) -> tuple[ast.Item, ...]:
        return tuple(made for item in items for made in self.item(item))

    def item(self, item: ast.Item) -> Iterator[ast.Item]:
        match item:
            case ast.Assign() | ast.CallStatement():
                call = _as_call(item, self.batch.defs, _assigned(self.d))
                if call is not None:
                    yield from self.call(call)
                else:
                    assert isinstance(item, ast.Assign)
                    yield self.assign(item)
            case ast.For(_, _, _, body):
                yield replace(item, body=self.items(body))
            case ast.If(_, then, orelse):
                yield replace(item, then=self.items(then), orelse=self.items(orelse))
            case _:
                assert_never(item)

    def assign(self, s: ast.Assign) -> ast.Assign:
        if s.target not in self.batched:
            return s
        index = ast.Identifier(self.batch.index)
        whole = ast.RangeClause(index, ast.Number("0"), ast.Name(self.batch.size))
        subscripts = tuple(map(self.expression, s.subscripts or ()))
        return replace(
            s,
            subscripts=(ast.Name(self.batch.index), *subscripts),
            value=self.expression(s.value),
            equivalent=None,
            clauses=(whole, *map(self.clause, s.clauses)),
        )

    def clause(self, clause: ast.Clause) -> ast.Clause:
        match clause:
            case ast.RangeClause(_, lower, upper):
                ends = self.expression(lower), self.expression(upper)
                return replace(clause, lower=ends[0], upper=ends[1])
            case ast.Let(_, value) | ast.Exists(value):
                return replace(clause, value=self.expression(value))
            case _:
                assert_never(clause)

    def call(self, s: ast.CallStatement) -> Iterator[ast.Item]:
        """Of the batched version; what it converts for a 0-d parameter is computed before."""
        key = self.batch.key_of(s, self.batched)
        callee = self.batch.defs[key[0]]
        args: list[ast.Expr] = []
        for p, x in zip(callee.params, s.args):
            if isinstance(p, ast.SizeParam) or p.name not in key[1] or p.dimensions or p.inout:
                args.append(x)
                continue
            name = self.batch.fresh(f"{p.name}_{self.batch.index}")
            yield self.scalars(name, ast.CastTo(p.dtype, self.expression(x)))
            args.append(ast.Name(name))
        function = replace(s.function, name=self.batch.name_of(key))
        yield replace(s, function=function, args=tuple(args))

    def scalars(self, name: str, value: ast.Expr) -> ast.Assign:
        """One for each element of the batch."""
        index = ast.Identifier(self.batch.index)
        whole = ast.RangeClause(index, ast.Number("0"), ast.Name(self.batch.size))
        return ast.Assign(name, (ast.Name(self.batch.index),), "=", value, clauses=(whole,))

    def expression(self, e: ast.Expr) -> ast.Expr:
        match e:
            case ast.Number() | ast.Constant():
                return e
            case ast.Name(name):
                front = (ast.Name(self.batch.index),)
                return ast.Apply(name, front, span=e.span) if name in self.batched else e
            case ast.Apply(name, args):
                made = tuple(map(self.expression, args))
                front = (ast.Name(self.batch.index),)
                return replace(e, args=(*front, *made) if name in self.batched else made)
            case ast.Paren(x):
                return replace(e, inner=self.expression(x))
            case ast.CastTo(_, x) | ast.Prefix(_, x):
                return replace(e, operand=self.expression(x))
            case ast.Extremum(_, a, b) | ast.Infix(_, a, b):
                return replace(e, left=self.expression(a), right=self.expression(b))
            case ast.Ternary(c, a, b):
                made = tuple(map(self.expression, (c, a, b)))
                return replace(e, condition=made[0], then=made[1], orelse=made[2])
            case _:
                assert_never(e)


def _as_call(
    s: ast.Assign | ast.CallStatement, defs: Collection[str], assigned: Collection[str]
) -> ast.CallStatement | None:
    """A call, also where it looks like an assignment (LANGUAGE C6)."""
    if isinstance(s, ast.CallStatement):
        return s
    plain = s.subscripts is None and s.op == "=" and not s.clauses and s.equivalent is None
    if not plain or not isinstance(s.value, ast.Apply):
        return None
    name = s.value.name
    if name not in defs or name in assigned or name in ARITY:
        return None
    return ast.CallStatement((ast.Identifier(s.target),), ast.Identifier(name), s.value.args)


def _assigned(d: ast.Def) -> frozenset[str]:
    """All tensors of a def."""
    names = {p.name for p in d.params} | {r.name for r in d.results}
    for s in ast.assignments(d.body):
        names |= {t.name for t in s.targets} if isinstance(s, ast.CallStatement) else {s.target}
    return frozenset(names)


def _expressions(s: ast.Assign) -> Iterator[ast.Expr]:
    """All that a statement reads."""
    yield from s.subscripts or ()
    yield s.value
    for clause in s.clauses:
        match clause:
            case ast.RangeClause(_, lower, upper):
                yield from (lower, upper)
            case ast.Let(_, value) | ast.Exists(value):
                yield value
            case _:
                assert_never(clause)


def _names(e: ast.Expr) -> Iterator[str]:
    for x in ast.subexpressions(e):
        match x:
            case ast.Name(name) | ast.Apply(name, _):
                yield name


def identifiers(module: ast.Module) -> Iterator[str]:
    """Every name of a text, whatever it names."""
    yield from ARITY
    for d in module.defs:
        yield d.name
        for p in d.params:
            yield p.name
            if isinstance(p, ast.Param):
                yield from (str(x.size) for x in p.dimensions)
        for r in d.results:
            yield from (r.name, *(n for e in r.dimensions for n in _names(e)))
        yield from _item_names(d.body)


def _item_names(items: tuple[ast.Item, ...]) -> Iterator[str]:
    for item in items:
        match item:
            case ast.Assign():
                yield item.target
                yield from (n for e in _expressions(item) for n in _names(e))
                for c in item.clauses:
                    if isinstance(c, ast.RangeClause):
                        yield c.variable.name
                    elif isinstance(c, ast.Let):
                        yield c.name.name
            case ast.CallStatement(targets, _, args):
                yield from (t.name for t in targets)
                yield from (n for e in args for n in _names(e))
            case ast.For(variable, lower, upper, body):
                yield variable.name
                yield from (n for e in (lower, upper) if e is not None for n in _names(e))
                yield from _item_names(body)
            case ast.If(condition, then, orelse):
                yield from _names(condition)
                yield from _item_names((*then, *orelse))
            case _:
                assert_never(item)
