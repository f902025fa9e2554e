# SPDX-License-Identifier: Apache-2.0
"""A Python file -> the texts that it gives to `tcsym.define`, found without running it.

Texts are string literals, in the call or under a name that the file assigns once. A `TextMap` says
where in the file each character of a text stands.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct

from tcsym.errors import Span

_CALLEE = "define"
_PACKAGE = "tcsym"
_ESCAPE = re.compile(
    r"\\(?:\r\n|N\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.S
)
_OPENING = re.compile(r"""([a-zA-Z]*)(\"{3}|'{3}|\"|')""")


class TextMap(Struct, frozen=True):
    """A text, and the line and column in the file of each of its characters."""

    text: str
    places: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]  # of the text's lines

    def span_in_file(self, span: Span) -> Span:
        at = min(
            self.starts[min(span.line, len(self.starts)) - 1] + span.column - 1, len(self.text)
        )
        end = min(at + span.length - 1, len(self.text))
        (line, column), (last, end_column) = self.places[at], self.places[end]
        return Span(line, column, end_column - column + 1 if line == last else 1)


def texts_of(source: str) -> list[TextMap]:
    """In the order of the calls. SyntaxError: the file is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the file's own
        tree = ast.parse(source)
    literals = _literals(source)
    callees, modules = _imported(tree)
    named = _named(tree)
    found: dict[tuple[int, int], TextMap] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_define(node.func, callees, modules):
            given = _first(node)
            if isinstance(given, ast.Name):
                given = named.get(given.id)
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                found[given.lineno, given.col_offset] = _mapped(given, source, literals)
    return [found[place] for place in sorted(found)]


def _imported(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Names that mean `tcsym.define`, and names that mean `tcsym`."""
    callees, modules = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                if a.name == _PACKAGE or (a.asname is None and a.name.startswith(f"{_PACKAGE}.")):
                    modules.add(a.asname or _PACKAGE)
        elif isinstance(node, ast.ImportFrom) and node.module == _PACKAGE and not node.level:
            callees |= {a.asname or a.name for a in node.names if a.name == _CALLEE}
    return callees, modules


def _is_define(func: ast.expr, callees: set[str], modules: set[str]) -> bool:
    match func:
        case ast.Name(id=name):
            return name in callees
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return name == _CALLEE and module in modules
    return False


def _first(call: ast.Call) -> ast.expr | None:
    if call.args:
        return call.args[0]
    return next((k.value for k in call.keywords if k.arg == "source"), None)


def _named(tree: ast.Module) -> dict[str, ast.expr]:
    """What names stand for that the file binds once, to an expression."""
    values: dict[str, ast.expr] = {}
    n_bound: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values[name] = value
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                n_bound[name] += 1
    return {name: value for name, value in values.items() if n_bound[name] == 1}


def _literals(source: str) -> Mapping[tuple[int, int], tuple[str, tuple[int, int]]]:
    """String tokens by where they begin (the column in code points), with where they end."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {t.start: (t.string, t.end) for t in tokens if t.type == tokenize.STRING}


def _mapped(
    node: ast.Constant,
    source: str,
    literals: Mapping[tuple[int, int], tuple[str, tuple[int, int]]],
) -> TextMap:
    """The text of a literal, which may have several parts."""
    lines = source.split("\n")

    def place(line: int, offset: int) -> tuple[int, int]:
        return line, len(lines[line - 1].encode()[:offset].decode())

    assert node.end_lineno is not None and node.end_col_offset is not None
    first = place(node.lineno, node.col_offset)
    last = place(node.end_lineno, node.end_col_offset)
    parts = sorted(
        (at, token) for at, (token, end) in literals.items() if first <= at and end <= last
    )
    found: list[tuple[str, tuple[int, int]]] = []
    for at, token in parts:
        found += _characters(token, at)
    text = "".join(c for c, _ in found)
    places = [(line, column + 1) for _, (line, column) in found]
    places.append((node.end_lineno, max(1, last[1])))
    starts = (0, *(k + 1 for k, c in enumerate(text) if c == "\n"))
    return TextMap(text, tuple(places), starts)


def _characters(token: str, at: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Characters that a string token stands for, with where each begins in the file."""
    opening = _OPENING.match(token)
    assert opening is not None
    is_raw, quote = "r" in opening[1].lower(), opening[2]
    body = token[opening.end() : -len(quote)]
    breaks = [k + 1 for k, c in enumerate(body) if c == "\n"]

    def place(k: int) -> tuple[int, int]:
        n = bisect_right(breaks, k)
        column = k - breaks[n - 1] if n else at[1] + opening.end() + k
        return at[0] + n, column

    k = 0
    while k < len(body):
        escape = None if is_raw else _ESCAPE.match(body, k)
        piece = escape[0] if escape else body[k]
        meant = _unescaped(piece) if escape else piece
        yield from ((c, place(k)) for c in meant)
        k += len(piece)


def _unescaped(escape: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of `\\d`, which is no escape
        return str(ast.literal_eval(f'"{escape}"' if "\n" not in escape else '""'))
