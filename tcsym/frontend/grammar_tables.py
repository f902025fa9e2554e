"""grammar.json -> lexer and parser tables; grammar.lark -> grammar.json, by lark.

Lark takes 150 ms to load and to analyse the grammar, so that is done here, once:
`python -m tcsym.frontend.grammar_tables` after each change of grammar.lark (a test compares).
"""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tcsym.frontend.lalr import END, REPEAT, SAME, ParserTables, Rule
from tcsym.frontend.tokens import LexerTables

if TYPE_CHECKING:
    from lark import Lark

GRAMMAR, TABLES = (
    os.path.join(os.path.dirname(__file__), f"grammar.{x}") for x in ("lark", "json")
)


def text_of(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # pathlib takes 4 ms to load
        return file.read()


@lru_cache(1)
def tables() -> tuple[LexerTables, ParserTables]:
    data = json.loads(text_of(TABLES))
    lexer = LexerTables(re.compile(data["pattern"]), data["keywords"], frozenset(data["ignored"]))
    rules = tuple(
        Rule(origin, length, action, tuple(parts))
        for origin, length, action, parts in data["rules"]
    )
    rows = tuple(data["rows"][k] for k in data["states"])
    return lexer, ParserTables(rules, rows, data["end"])


# ---- making grammar.json


def made_tables() -> str:
    """The text of grammar.json, from grammar.lark. Needs lark."""
    from lark import Lark

    lark = Lark(text_of(GRAMMAR), parser="lalr", lexer="basic")
    data = {**_lexer_data(lark), **_parser_data(lark)}
    lines = [f" {json.dumps(k)}: {_wrapped(v)}" for k, v in data.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _wrapped(value: Any) -> str:
    """JSON, lists with one item a line: changes of the grammar are small changes of the file."""
    if not isinstance(value, list) or not isinstance(value[0], list | dict):
        return json.dumps(value, separators=(",", ":"))
    return "[\n" + ",\n".join(json.dumps(v, separators=(",", ":")) for v in value) + "\n]"


def _lexer_data(lark: Lark) -> dict[str, Any]:
    """Terminals by priority, then length; fixed words that a pattern covers are its keywords."""
    by_trial = sorted(
        lark.terminals,
        key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name),
    )
    fixed = [t for t in by_trial if t.pattern.type == "str"]
    keywords: dict[str, dict[str, str]] = {}
    for terminal in by_trial:
        if terminal.pattern.type == "re":
            pattern = re.compile(terminal.pattern.to_regexp())
            covered = [t for t in fixed if t.priority == terminal.priority]
            words = {t.pattern.value: t.name for t in covered if pattern.fullmatch(t.pattern.value)}
            keywords |= {terminal.name: words} if words else {}
    reserved = {name for words in keywords.values() for name in words.values()}
    tried = [f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in by_trial if t.name not in reserved]
    return {"pattern": "|".join(tried), "keywords": keywords, "ignored": lark.ignore_tokens}


def _parser_data(lark: Lark) -> dict[str, Any]:
    """States numbered in order of discovery: lark's own numbers depend on hashes."""
    parser: Any = lark.parser
    table = parser.parser._parse_table
    (start,), (end,) = table.start_states.values(), table.end_states.values()
    rule_number = {rule: k for k, rule in enumerate(lark.rules)}
    number, order = {start: 0}, [start]
    states: list[dict[str, int]] = []
    for state in order:
        row: dict[str, int] = {}
        for symbol, (action, argument) in sorted(table.states[state].items()):
            if str(action) == "Reduce":
                row[symbol] = ~rule_number[argument]
            elif symbol != END:  # lark shifts the end; here the text is complete before
                if argument not in number:
                    number[argument] = len(order)
                    order.append(argument)
                row[symbol] = number[argument]
        states.append(row)
    rows = list({json.dumps(row): row for row in states}.values())
    return {
        "rules": [_rule_data(rule) for rule in lark.rules],
        "rows": rows,
        "states": [rows.index(row) for row in states],
        "end": number[end],
    }


def _rule_data(rule: Any) -> list[Any]:
    origin, options = str(rule.origin.name), rule.options
    parts: list[int | None] = []
    absent = options.empty_indices or (False,) * len(rule.expansion)
    symbols = iter(enumerate(rule.expansion))
    for is_absent in absent:
        if is_absent:
            parts.append(None)
            continue
        k, symbol = next(symbols)
        if not symbol.is_term and symbol.name.startswith("_"):
            parts.append(~k)
        elif options.keep_all_tokens or not (symbol.is_term and symbol.filter_out):
            parts.append(k)
    action = rule.alias or (REPEAT if origin.startswith("_") else origin)
    if options.expand1 and not rule.alias:
        assert len(parts) == 1, f"{rule}: give it an alias, it has several parts"
        action = SAME
    return [origin, len(rule.expansion), action, parts]


if __name__ == "__main__":
    with open(TABLES, "w", encoding="utf-8") as file:
        file.write(made_tables())
