"""Program -> the same with names that can be written; and names that are not taken yet."""

from __future__ import annotations

import keyword
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.builtins import ARITY
from tcsym.frontend.infer_messages import plain
from tcsym.frontend.program import (
    For,
    If,
    Item,
    Program,
    statements,
)
from tcsym.frontend.rename import Renaming, S
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
    renaming = Renamed(names)
    return replace(
        program,
        sizes=tuple(names.get(n, n) for n in program.sizes),
        size_parameters=tuple(
            replace(p, name=names.get(p.name, p.name)) for p in program.size_parameters
        ),
        tensors=tuple(
            replace(t, name=renaming.name(t.name), shape=tuple(map(renaming.index, t.shape)))
            for t in program.tensors
        ),
        body=renaming.items(program.body),
    )


class Renamed(Renaming):
    """Without `exists`: only the text that is differentiated says what must be there."""

    def _statement(self, s: S) -> S:
        return replace(super()._statement(s), exists=())
