# SPDX-License-Identifier: Apache-2.0
"""Docstrings of this project -> Markdown.

A line `name: text` is an item of a list, as are its indented lines; other indented lines are code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_FIELD = re.compile(r"^(?P<name>[a-z_][a-z_0-9]*(?:, [a-z_][a-z_0-9]*)*): (?P<text>.*)$")
_PAGE = re.compile(r"\bdocs/(?P<name>[\w/-]+)\.md")


def markdown(docstring: str) -> str:
    """A docstring, whose margin is gone, as Markdown."""
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(_lines(docstring.strip())).strip())
    return _PAGE.sub(r"[\g<name>](\g<name>.md)", text)


def _lines(docstring: str) -> Iterator[str]:
    state = "text"
    for line in docstring.splitlines():
        field, is_indented = _FIELD.match(line), line.startswith("    ")
        if state == "code" and line and not is_indented:
            yield from ("```", "")
            state = "text"
        if field:
            if state != "items":
                yield ""
            yield f"- `{field['name']}`: {field['text']}"
            state = "items"
        elif is_indented and state == "items":
            yield f"  {line.strip()}"
        elif is_indented:
            if state != "code":
                yield from ("", "```python")
                state = "code"
            yield line[4:]
        else:
            if state == "items" and line:
                yield ""
                state = "text"
            yield line
    if state == "code":
        yield "```"
