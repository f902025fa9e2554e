# SPDX-License-Identifier: Apache-2.0
"""Statements and headers of typed programs -> lines of text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import assert_never

from msgspec import Struct

from tcsym.frontend.check_statements import ordered
from tcsym.frontend.positions import position_parts
from tcsym.frontend.program import (
    Cast,
    Const,
    For,
    If,
    Item,
    Program,
    Statement,
    Tensor,
    dtype_of,
)
from tcsym.frontend.program_text import INFIX
from tcsym.frontend.unparse_expressions import (
    PLAIN,
    Place,
    expression_text,
    in_pairs,
    index_text,
    subscript_text,
    type_name,
)
from tcsym.index.expr import ZERO, Index, var
from tcsym.index.text import condition_text
from tcsym.types import DType

_WIDTH = 100
_WORD = re.compile(r"[A-Za-z_]\w*")


class StatementText(Struct, frozen=True):
    """ranges: of its variables, in order. uses: the variables in the ends of each."""

    left: str
    op: str
    value: str
    ranges: dict[str, str]
    uses: dict[str, frozenset[str]]
    exists: tuple[str, ...]

    def order(self, written: Collection[str]) -> list[str]:
        """The index variables as the front end meets them, if the ranges `written` are."""
        clauses = [v for v in self.ranges if v in written]
        found = dict.fromkeys((*self.on_left, *clauses))
        for text in (*self.exists, self.value):
            found |= dict.fromkeys(self._names(text))
        return ordered(found, {v: self.uses[v] for v in clauses})

    @property
    def on_left(self) -> list[str]:
        return list(self._names(self.left))

    def _names(self, text: str) -> Iterator[str]:
        return (x for x in _WORD.findall(text) if x in self.ranges)

    def line(self, written: Collection[str]) -> tuple[str, str, str]:
        """The parts of what is written: head, value, clauses."""
        clauses = [text for v, text in self.ranges.items() if v in written]
        clauses += [f"exists {text}" for text in self.exists]
        return f"{self.left} {self.op} ", self.value, ", ".join(clauses)


def statement_text(s: Statement, known: DType | None, declared: DType | None) -> StatementText:
    """known: the type of the target, if it has one by now; declared: if the header says so."""
    at = {r.variable: position_parts(r.at)[1] for r in s.scattered if r.at is not None}
    subscripts = [at.get(str(e)) or e for e in s.subscripts]
    left = f"{s.target}({', '.join(map(subscript_text, subscripts))})" if subscripts else s.target
    ends = {var(g.name): subscript_text(g.value) for g in s.given}

    def end(e: Index) -> str:
        return ends.get(e) or index_text(e)

    return StatementText(
        left,
        s.op + ("!" if s.initialise else ""),
        _value_text(s, known, declared),
        {r.variable: f"{r.variable} in {end(r.lower)}:{end(r.upper)}" for r in s.walked},
        {r.variable: r.lower.variables() | r.upper.variables() for r in s.walked},
        tuple(expression_text(e, PLAIN)[0] for e in s.exists),
    )


def _value_text(s: Statement, known: DType | None, declared: DType | None) -> str:
    value, dtype = s.value, dtype_of(s.value)
    kept = known or dtype
    is_half = kept.accumulator is not kept and s.op != "="
    if known and isinstance(value, Const) and dtype is (known.accumulator if is_half else known):
        return expression_text(value, Place(wide=dtype))[0]  # a literal takes its target's type
    text = expression_text(value, Place(wide=declared, half=is_half))[0]
    accumulates = s.op in ("+=", "*=") and declared is None
    if accumulates and kept.is_short_integer and not isinstance(value, Cast):
        text = f"{type_name(dtype)}({text})"  # what the program says wraps is no news
    return text


def item_lines(
    items: Collection[Item], statements: Iterator[tuple[str, str, str]], indent: str
) -> Iterator[str]:
    """statements: the parts of all statements, in order."""
    for item in items:
        match item:
            case Statement():
                yield from _statement_lines(*next(statements), indent)
            case For(variable, lower, upper, body):
                start = "" if lower == ZERO else f"{index_text(lower)}:"
                yield f"{indent}for {variable} in {start}{index_text(upper)} {{"
                yield from item_lines(body, statements, indent + "  ")
                yield indent + "}"
            case If(condition, then, orelse):
                yield f"{indent}if {in_pairs(condition_text(condition))} {{"
                yield from item_lines(then, statements, indent + "  ")
                if orelse:
                    yield indent + "} else {"
                    yield from item_lines(orelse, statements, indent + "  ")
                yield indent + "}"
            case _:
                assert_never(item)


def _statement_lines(head: str, value: str, where: str, indent: str) -> list[str]:
    line = indent + head + value + (f" where {where}" if where else "")
    if len(line) <= _WIDTH:
        return [line]
    lines = _broken(indent + head, value, indent + "    ")
    if where and len(lines[-1]) + len(where) + 7 <= _WIDTH:
        lines[-1] += f" where {where}"
    elif where:
        lines.append(f"{indent}    where {where}")
    return lines


def _broken(head: str, value: str, indent: str) -> list[str]:
    """`head value` over several lines, cut in front of operators outside of subscripts."""
    lines, line = [], head
    for part in _parts(value):
        if len(line) + len(part.rstrip()) > _WIDTH and line != head:
            lines.append(line.rstrip())
            line = indent
        line += part
    return [*lines, line]


def _parts(value: str) -> list[str]:
    """Pieces that begin with an operator and are not cut inside of subscripts and arguments."""
    operators = {symbol for symbol, _ in INFIX.values()} | {"?", ":"}
    pieces = [""]
    within: list[bool] = []  # of each open parenthesis: whether a name stands in front of it
    words = value.split(" ")
    for k, word in enumerate(words):
        if word in operators and not any(within):
            pieces.append("")
        pieces[-1] += word + (" " if k + 1 < len(words) else "")
        for n, c in enumerate(word):
            if c == "(":
                within.append(n > 0 and (word[n - 1].isalnum() or word[n - 1] == "_"))
            elif c == ")":
                within.pop()
    return pieces


def header_lines(program: Program, declared: Collection[str]) -> list[str]:
    """declared: the results of which type and shape are said."""

    def parameter(t: Tensor) -> str:
        sizes = f"({','.join(map(index_text, t.shape))})" if t.shape else ""
        return f"{'inout ' * (t.role == 'inout')}{type_name(t.dtype)}{sizes} {t.name}"

    params = [
        parameter(p) if isinstance(p, Tensor) else f"size {p.name}" for p in program.parameters
    ]
    results = [parameter(t) if t.name in declared else t.name for t in program.outputs]
    start, end = f"def {program.name}(", f"-> ({', '.join(results)}) {{"
    lines = [start]
    for k, p in enumerate(params):
        part = p + (", " if k + 1 < len(params) else ") ")
        if len(lines[-1]) + len(part.rstrip()) > _WIDTH:
            lines[-1] = lines[-1].rstrip()
            lines.append("    ")
        lines[-1] += part
    if not params:
        lines[-1] += ") "
    if len(lines[-1]) + len(end) <= _WIDTH:
        lines[-1] += end
        return lines
    return [*lines[:-1], lines[-1].rstrip(), f"    {end}"]
