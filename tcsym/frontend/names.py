# SPDX-License-Identifier: Apache-2.0
"""Program -> the same with names that can be written; and names that are not taken yet."""

from __future__ import annotations

import keyword
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.builtins import ARITY
from tcsym.frontend.program import For, If, Item, Program, statements
from tcsym.frontend.rename import Renaming
from tcsym.types import NAMES

_WORDS = "def where exists in min max for if else true false INFINITY NAN inout size"
RESERVED = frozenset(_WORDS.split(" "))


class Names(Struct):
    """Every name of a def, so that new ones are none of them."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wanted: str) -> str:
        name, n = wanted, 1
        while name in self.taken or is_word(name):
            n += 1
            name = f"{wanted}{n}"
        self.taken.add(name)
        return name


def is_word(name: str) -> bool:
    """Words of the language, and of Python: names of results are attributes there."""
    return name in RESERVED or name in NAMES or name in ARITY or keyword.iskeyword(name)


def names_in(program: Program) -> dict[str, None]:
    """Of sizes, tensors, loop and index variables."""
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
    all_names = names_in(program)
    names = Names({n for n in all_names if "." not in n})
    found = {n: names.fresh(_plain(n)) for n in all_names if "." in n}
    return renamed(program, found) if found else program


def _plain(name: str) -> str:
    return next((x for x in reversed(name.split(".")) if x.isidentifier()), "x")


def renamed(program: Program, names: Mapping[str, str]) -> Program:
    renaming = Renaming(names)
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
