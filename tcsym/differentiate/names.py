# SPDX-License-Identifier: Apache-2.0
"""Names of what derivatives add."""

from __future__ import annotations

from msgspec import field
from msgspec.structs import replace

from tcsym.frontend import names
from tcsym.frontend.names import is_word, names_in
from tcsym.frontend.program import Expr, Program, Read
from tcsym.frontend.rename import Renaming, S


class Names(names.Names):
    """Index variables of our own, versions of tensors and gradients, too."""

    ours: list[str] = field(default_factory=list)

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


def names_of(program: Program) -> Names:
    return Names(set(names_in(program)))


def gradient_names(program: Program) -> dict[str, str]:
    """Of each floating input and output of a program: the name of its gradient or tangent."""
    names = names_of(program)
    arguments = (*program.inputs, *program.outputs)
    return {t.name: names.gradient(t.name) for t in arguments if t.dtype.is_float}


class Renamed(Renaming):
    """Without `exists`, and what inference found out about reads: only the text that is
    differentiated says what must be there."""

    def changed(self, e: Expr, before: Expr) -> Expr:
        made = super().changed(e, before)
        return replace(made, checked=(), unwritten=None) if isinstance(made, Read) else made

    def statement(self, s: S) -> S:
        return replace(super().statement(s), exists=())
