"""Tokens -> what a builder makes of them: the LALR(1) automaton of grammar.json.

Reducing by a rule calls the builder's method of the rule's name with the values of the parts that
the grammar keeps. No recursion: nesting costs no stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from tcsym.frontend.tokens import Token, token
from tcsym.records import dataclass

END = "$END"
REPEAT, SAME = "", "="


@dataclass(frozen=True, slots=True)
class Rule:
    """`origin` -> `length` symbols.

    `action`: a method of the builder; REPEAT, whose value is a list; or SAME, the value of the only
    kept part. `parts`: k is the value of symbol k, ~k are the items of the repetition that symbol k
    is, None stands for an optional part that is absent.
    """

    origin: str
    length: int
    action: str
    parts: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class ParserTables:
    """State 0 is the start. A step in a state: k >= 0 shifts to state k, ~k reduces by rule k; for
    the name of a rule it is the state after that rule. The text is complete in state `end`."""

    rules: tuple[Rule, ...]
    states: tuple[Mapping[str, int], ...]
    end: int


class UnexpectedToken(Exception):
    """`states`: the stack when `token` could not be shifted."""

    def __init__(self, token: Token, states: tuple[int, ...]) -> None:
        super().__init__(token)
        self.token = token
        self.states = states


def run(tables: ParserTables, tokens: Iterable[Token], builder: object) -> Any:
    """The value of the whole text; UnexpectedToken at the first token that does not fit."""
    states, values = [0], list[Any]()
    for t in chain(tokens, (token(END, ""),)):
        while (step := tables.states[states[-1]].get(t.kind, None)) is not None and step < 0:
            rule = tables.rules[~step]
            first = len(values) - rule.length
            values[first:] = [_reduced(rule, values[first:], builder)]
            _follow(tables, states, rule)
            if states[-1] == tables.end:
                return values[-1]
        if step is None:
            raise UnexpectedToken(t, tuple(states))
        states.append(step)
        values.append(t)
    raise AssertionError("unreachable: the end of the text is shifted nowhere")


def _follow(tables: ParserTables, states: list[int], rule: Rule) -> None:
    del states[len(states) - rule.length :]
    states.append(tables.states[states[-1]][rule.origin])


def _reduced(rule: Rule, given: list[Any], builder: object) -> Any:
    if rule.action == SAME:
        return given[rule.parts[0] or 0]
    values: list[Any] = []
    for part in rule.parts:
        if part is None:
            values.append(None)
        elif part >= 0:
            values.append(given[part])
        elif values:
            values += given[~part]
        else:  # a repetition that goes on: its list grows in place, so that long ones stay linear
            values = given[~part]
    return values if rule.action == REPEAT else getattr(builder, rule.action)(*values)


def accepted(tables: ParserTables, states: Sequence[int]) -> set[str]:
    """Terminals that could be shifted after `states`: LALR rows also hold some that could not."""
    row = tables.states[states[-1]]
    return {kind for kind in row if kind.isupper() and _accepts(tables, [*states], kind)}


def _accepts(tables: ParserTables, states: list[int], kind: str) -> bool:
    while (step := tables.states[states[-1]].get(kind)) is not None and step < 0:
        _follow(tables, states, tables.rules[~step])
        if states[-1] == tables.end:
            return True
    return step is not None
