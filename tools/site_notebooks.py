# SPDX-License-Identifier: Apache-2.0
"""A notebook -> Markdown of a page of the site, with its pictures as files."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_LINK = '<a href="{}.ipynb" download>This page is a notebook</a>, which runs as it stands.'


def page_of(text: str, name: str) -> tuple[str, dict[str, bytes]]:
    """The page's text, and files beside it. name: of the notebook's file, without the suffix."""
    parts: list[str] = []
    files: dict[str, bytes] = {}
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(_fenced("python", source))
        for output in cell["outputs"]:
            parts += _shown(output, name, cell["metadata"].get("alt", ""), files)
    title, _, rest = parts[0].partition("\n")
    head = [title, _LINK.format(name), rest.strip()]
    return "\n\n".join([*filter(None, head), *parts[1:]]) + "\n", files


def _shown(
    output: Mapping[str, Any], name: str, alt: str, files: dict[str, bytes]
) -> Iterator[str]:
    """The richest of its forms. Adds pictures to `files`."""
    data = {kind: "".join(x) for kind, x in output.get("data", {}).items()}
    picture = f"{name}-{len(files) + 1}"
    if "text/html" in data:
        inside = re.sub(r"\n\s*\n", "\n", data["text/html"])  # an empty line would end it
        yield f'<div class="shown">\n{inside}\n</div>'
    elif "image/svg+xml" in data:
        files[f"{picture}.svg"] = data["image/svg+xml"].encode()
        yield f"![{alt}]({picture}.svg)"
    elif "image/png" in data:
        files[f"{picture}.png"] = base64.b64decode(data["image/png"])
        yield f"![{alt}]({picture}.png)"
    else:
        yield _fenced("output", data.get("text/plain") or "".join(output["text"]))


def _fenced(language: str, text: str) -> str:
    """A block, which may hold fences itself."""
    longest = max([2, *map(len, re.findall(r"`{3,}", text))])
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
