"""Program -> the same with names that can be written; and names that are not taken yet."""

from __future__ import annotations

import keyword
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.differentiate.algebra import rebuilt
from tcsym.frontend.builtins import ARITY
from tcsym.frontend.infer_messages import plain
from tcsym.frontend.program import (
    Expr,
    For,
    Given,
    If,
    Item,
    Program,
    Range,
    Read,
    Statement,
    Tensor,
    statements,
)
from tcsym.index.expr import Index, var
from tcsym.index.values import condition_substitute, substitute
from tcsym.types import NAMES

_WORDS = "def where exists in min max for if else true false INFINITY NAN inout size"
RESERVED = frozenset(_WORDS.split(" "))


class Names(Struct):
    """Every name of a def, so that new ones are none of them."""

    taken: set[str] = field(default_factory=set)
    ours: list[str] = field(default_factory=list)

    def fresh(self, wanted: str) -> str:
        name, n = wanted, 1
        while name in self.taken or is_word(name):
            n += 1
            name = f"{wanted}{n}"
        self.taken.add(name)
        return name

    def version(self, name: str) -> str:
        """`name_1`, or the first number that is free."""
        n = 1
        while f"{name}_{n}" in self.taken:
            n += 1
        return self.fresh(f"{name}_{n}")

    def variables(self, n: int) -> list[str]:
        """Index variables for statements of our own; the same every time."""
        while len(self.ours) < n:
            self.ours.append(self.fresh(f"i{len(self.ours)}"))
        return self.ours[:n]

    def gradient(self, tensor: str) -> str:
        name = f"d{tensor}"
        while name in self.taken or is_word(name):
            name += "_"
        self.taken.add(name)
        return name


def is_word(name: str) -> bool:
    """Words of the language, and of Python: names of results are attributes there."""
    return name in RESERVED or name in NAMES or name in ARITY or keyword.iskeyword(name)


def names_of(program: Program) -> Names:
    return Names(set(_all_names(program)))


def gradient_names(program: Program) -> dict[str, str]:
    """Of each floating input and output of a program: the name of its gradient or tangent."""
    names = names_of(program)
    arguments = (*program.inputs, *program.outputs)
    return {t.name: names.gradient(t.name) for t in arguments if t.dtype.is_float}


def _all_names(program: Program) -> dict[str, None]:
    found = dict.fromkeys((*program.sizes, *(t.name for t in program.tensors)))
    found |= dict.fromkeys(_loop_variables(program.body))
    for s in statements(program.body):
        found |= dict.fromkeys(r.variable for r in s.domain)
    return found


def _loop_variables(items: tuple[Item, ...]) -> list[str]:
    found: list[str] = []
    for item in items:
        match item:
            case For(variable, _, _, body):
                found += [variable, *_loop_variables(body)]
            case If(_, then, orelse):
                found += _loop_variables(then) + _loop_variables(orelse)
    return found


def written_plainly(program: Program) -> Program:
    """Names that inlining made (`fc1.Y`) get plain ones that are free."""
    all_names = _all_names(program)
    names = Names({n for n in all_names if "." not in n})
    found = {
        n: names.fresh(plain(n) if plain(n)[:1].isalpha() else "x") for n in all_names if "." in n
    }
    return renamed(program, found) if found else program


def renamed(program: Program, names: Mapping[str, str]) -> Program:
    renaming = Renaming(names)
    return replace(
        program,
        sizes=tuple(names.get(n, n) for n in program.sizes),
        size_parameters=tuple(
            replace(p, name=names.get(p.name, p.name)) for p in program.size_parameters
        ),
        tensors=tuple(map(renaming.tensor, program.tensors)),
        body=renaming.items(program.body),
    )


class Renaming:
    """Old name -> new name, for tensors, sizes, index and loop variables alike."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.values = {old: var(new) for old, new in names.items()}

    def name(self, old: str) -> str:
        return self.names.get(old, old)

    def index(self, e: Index) -> Index:
        return substitute(e, self.values)

    def tensor(self, t: Tensor) -> Tensor:
        return replace(t, name=self.name(t.name), shape=tuple(map(self.index, t.shape)))

    def expression(self, e: Expr) -> Expr:
        made = rebuilt(e, self.expression, self.index)
        return replace(made, tensor=self.name(made.tensor)) if isinstance(made, Read) else made

    def range(self, r: Range) -> Range:
        at = r.at
        if at is not None:
            at = self.index(at) if isinstance(at, Index) else self.expression(at)
        lower, upper = self.index(r.lower), self.index(r.upper)
        return Range(self.name(r.variable), lower, upper, r.reduced, at)

    def items(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(map(self.item, items))

    def item(self, item: Item) -> Item:
        match item:
            case Statement():
                ranges = [self.range(r) for r in item.domain]
                return replace(
                    item,
                    target=self.name(item.target),
                    subscripts=tuple(map(self.index, item.subscripts)),
                    domain=tuple(ranges),
                    value=self.expression(item.value),
                    exists=(),
                    given=tuple(Given(g.name, self.expression(g.value)) for g in item.given),
                )
            case For():
                return replace(
                    item,
                    variable=self.name(item.variable),
                    lower=self.index(item.lower),
                    upper=self.index(item.upper),
                    body=self.items(item.body),
                )
            case If():
                return replace(
                    item,
                    condition=condition_substitute(item.condition, self.values),
                    then=self.items(item.then),
                    orelse=self.items(item.orelse),
                )
