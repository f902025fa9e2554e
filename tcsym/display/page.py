# SPDX-License-Identifier: Apache-2.0
"""Rows and texts -> HTML of a cell: one look for all values, light and dark, without scripts.

A cell has no say in the page around it. So each output brings its style, within a class of its
own, and its own background: where a theme is known (JupyterLab, VS Code, MkDocs) by its mark, else
by the browser's preference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from tcsym.display.coloured import Piece, rows

_LIGHT = (
    "--ink:#1c2128;--dim:#57606a;--line:#d8d6cf;--back:#fff;--code:#f4f3ee;--k:#a0228a;--t:#00704f;"
    "--f:#0a50a8;--b:#00668c;--v:#8a5a00;--n:#0a50a8;--c:#66707a"
)
_DARK = (
    "--ink:#e4e6ea;--dim:#a3abb5;--line:#3d434b;--back:#15181c;--code:#1e2227;--k:#e58ad6;--t:#62c9a2;"
    "--f:#7fb4f5;--b:#6cc5e0;--v:#e0b25c;--n:#7fb4f5;--c:#929ba6"
)
_OF_LIGHT = ("[data-jp-theme-light=true]", ".vscode-light", "[data-md-color-scheme=default]")
_OF_DARK = ("[data-jp-theme-light=false]", ".vscode-dark", "[data-md-color-scheme=slate]")
# Eight hues that differ in lightness, too, and on both backgrounds: of statements, and of regions.
HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8a63d2", "#7a7a7a")

STYLE = (
    "<style>"
    f".tcsym{{{_LIGHT};color:var(--ink);background:var(--back);font:13px/1.5 system-ui,sans-serif;"
    "padding:6px 10px 10px;max-width:76em;border-radius:4px;overflow-x:auto}"
    f"@media(prefers-color-scheme:dark){{.tcsym{{{_DARK}}}}}"
    f"{','.join(f'{mark} .tcsym' for mark in _OF_LIGHT)}{{{_LIGHT}}}"
    f"{','.join(f'{mark} .tcsym' for mark in _OF_DARK)}{{{_DARK}}}"
    ".tcsym header{border-bottom:1px solid var(--line);padding-bottom:3px;margin-bottom:8px;"
    "color:var(--dim)}.tcsym header b{color:var(--ink);font:600 15px/1.4 ui-monospace,monospace;"
    "margin-right:.7em}"
    ".tcsym .side{display:flex;flex-wrap:wrap;gap:10px 28px;align-items:flex-start}"
    ".tcsym .side>div{max-width:100%}"
    ".tcsym .code{background:var(--code);border-radius:4px;padding:6px 10px 6px 22px;overflow:auto;"
    "max-height:34em;font:12px/1.55 ui-monospace,monospace;margin:0 0 8px;position:relative}"
    ".tcsym .code div,.tcsym .code summary{white-space:pre;min-height:1.55em;width:max-content}"
    ".tcsym summary{list-style:none;cursor:pointer;position:relative}"
    ".tcsym summary::-webkit-details-marker{display:none}"
    ".tcsym summary::before{content:'\\25b8';position:absolute;left:-14px;color:var(--dim)}"
    ".tcsym details[open]>summary::before{content:'\\25be'}"
    ".tcsym .more,.tcsym p{color:var(--dim)}.tcsym p{margin:6px 0}"
    ".tcsym .part{margin:4px 0 4px 14px}"
    ".tcsym table{border-collapse:collapse;color:var(--ink);font-size:12.5px;margin:0 0 6px}"
    ".tcsym th{font-weight:400;color:var(--dim)}"
    ".tcsym th,.tcsym td{text-align:left;padding:2px 14px 2px 0;border:0;background:none;"
    "border-bottom:1px solid var(--line);vertical-align:top}.tcsym .r{text-align:right}"
    ".tcsym tr{background:none!important}"
    ".tcsym svg{display:block;color:var(--ink);max-width:100%;height:auto}.tcsym svg text{fill:"
    "currentColor}.tcsym td code,.tcsym p code{font:12px ui-monospace,monospace;background:none;"
    "color:inherit;padding:0}"
    + "".join(f".tcsym .{kind}{{color:var(--{kind})}}" for kind in "ktfbvnc")
    + ".tcsym .t{font-weight:600}.tcsym .key{display:inline-block;width:1.1em;height:1.1em;"
    "border-radius:3px;margin-right:.5em;vertical-align:-.2em;color:#fff;text-align:center;"
    "font:600 11px/1.25 system-ui}"
    "</style>"
)

_CODE = re.compile("`([^`]+)`")


def framed(name: str, told: str, *parts: str) -> str:
    """A whole output: a name, a line beside it, and parts that are HTML."""
    head = f"<header><b>{escape(name)}</b>{escape(told)}</header>"
    return f'{STYLE}<div class="tcsym">{head}{"".join(parts)}</div>'


def side_by_side(*parts: str) -> str:
    """Parts beside each other where there is room."""
    return f'<div class="side">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'


def paragraph(text: str) -> str:
    """A line of words, with code between backticks; nothing of nothing."""
    inside = _CODE.sub(r"<code>\1</code>", escape(text))
    return f"<p>{inside}</p>" if text else ""


class Html(str):
    """A text that is HTML already."""


def table(
    columns: Sequence[str],
    lines: Iterable[Sequence[str]],
    right: Iterable[int] = (),
    code: int = -1,
) -> str:
    """Rows under headings. right: columns of figures. code: the column that is code."""
    ends = frozenset(right)

    def cell(tag: str, k: int, text: str) -> str:
        inside = text if isinstance(text, Html) else escape(text)
        inside = f"<code>{inside}</code>" if k == code and tag == "td" else inside
        place = ' class="r"' if k in ends else ""
        return f"<{tag}{place}>{inside}</{tag}>"

    head = "".join(cell("th", k, text) for k, text in enumerate(columns))
    body = "".join(
        f"<tr>{''.join(cell('td', k, text) for k, text in enumerate(line))}</tr>" for line in lines
    )
    return f"<table><tr>{head}</tr>{body}</table>" if body else ""


def key_of(colour: str, text: str) -> Html:
    """What stands for a colour of a picture."""
    return Html(f'<span class="key" style="background:{colour}">{escape(text)}</span>')


def closed_part(told: str, inside: str) -> str:
    """What opens when it is asked for; nothing of nothing."""
    summary = f'<summary class="more">{escape(told)}</summary>'
    return f'<details class="part">{summary}{inside}</details>' if inside else ""


def row_html(row: Sequence[Piece]) -> str:
    """A line of code."""
    return "".join(
        f'<span class="{kind}">{escape(piece)}</span>' if kind else escape(piece)
        for kind, piece in row
    )


def code(text: str, stage: str = "source") -> str:
    """A text in colours."""
    lines = "".join(f"<div>{row_html(row)}</div>" for row in rows(text, stage))
    return f'<div class="code">{lines}</div>'
