# SPDX-License-Identifier: Apache-2.0
"""A loop whose iterations are different pieces of code, side by side: one arm of a branch each.

for s in 0:3 { if s == 0 { A } else { if s == 1 { B } else { C } } }

Such iterations have no subscript that tells them apart. What does is, for each buffer that two of
them touch and one writes, a dimension along which they touch different ranges.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tcsym.index.expr import ZERO, Index, Min, eq, factors_of, index, of_atom, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import bound_outside, is_nonnegative
from tcsym.ir.loops import Branch, Loop, Node, Store, Update, Verify
from tcsym.ir.traverse import loads, walk


def side_by_side(variable: str, arms: list[Node], work: Index) -> Loop:
    """A loop whose iterations are these, which are proved independent."""
    body: Node = arms[-1]
    for k in reversed(range(len(arms) - 1)):
        body = Branch(eq(var(variable), k), arms[k], body)
    return Loop(variable, ZERO, index(len(arms)), body, independent=True, work=work)


def sections(loop: Loop) -> tuple[Node, ...]:
    """The arms, if the loop has such."""
    found: list[Node] = []
    n: Node = loop.body
    while isinstance(n, Branch) and n.condition == eq(var(loop.variable), len(found)):
        found.append(n.then)
        if n.orelse is None:
            return ()
        n = n.orelse
    return (*found, n) if found and loop.upper == index(len(found) + 1) else ()


class _Touch(Struct, frozen=True):
    """An access, and the loops of its section around it."""

    buffer: str
    subscripts: tuple[object, ...]
    written: bool
    around: tuple[Loop, ...]

    def end(self, dimension: int, high: bool) -> Index | None:
        """The first or the last place along a dimension, over variables from outside."""
        s = self.subscripts[dimension]
        return bound_outside(s, self.around, high) if isinstance(s, Index) else None


def shared_by_sections(
    arms: tuple[Node, ...], private: frozenset[str], known: frozenset[str]
) -> str | None:
    """A buffer of which one section may write what another one touches; None if there is none.

    private: buffers that each section has for itself. known: variables around that are not
    negative, as sizes are.
    """
    touched = [[t for t in _touches(arm) if t.buffer not in private] for arm in arms]
    for k, mine in enumerate(touched):
        for yours in touched[k + 1 :]:
            for a in mine:
                for b in yours:
                    both = a.buffer == b.buffer and (a.written or b.written)
                    if both and not _are_apart(a, b, known):
                        return a.buffer
    return None


def _touches(arm: Node) -> Iterator[_Touch]:
    for x, around in walk(arm):
        if isinstance(x, Store | Update):
            yield _Touch(x.buffer, x.subscripts, True, around)
        if isinstance(x, Store | Update | Verify):
            for r in loads(x.value):
                yield _Touch(r.tensor, r.subscripts, False, around)


def _are_apart(a: _Touch, b: _Touch, known: frozenset[str]) -> bool:
    return any(
        _is_before(x, y, d, known) for d in range(len(a.subscripts)) for x, y in ((a, b), (b, a))
    )


def _is_before(a: _Touch, b: _Touch, dimension: int, known: frozenset[str]) -> bool:
    last, first = a.end(dimension, True), b.end(dimension, False)
    return last is not None and first is not None and _is_nonnegative(first - last - 1, known)


def _is_nonnegative(e: Index, known: frozenset[str]) -> bool:
    """As `is_nonnegative`, also by any part of a minimum that is subtracted."""
    if is_nonnegative(e, known):
        return True
    for atom, c in e.terms:
        factors = factors_of(atom)
        least = next((f for f in factors if isinstance(f, Min)), None)
        if c < 0 and isinstance(least, Min):
            others = product_of(of_atom(f) for f in factors if f is not least)
            rest = e - of_atom(atom) * c
            return is_nonnegative(others, known) and any(
                _is_nonnegative(rest + x * others * c, known) for x in least.args
            )
    return False
