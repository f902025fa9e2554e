# SPDX-License-Identifier: Apache-2.0
"""A notebook with its outputs -> a page in Markdown, and its pictures as files."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def notebook_pages(name: str, text: str) -> Iterator[tuple[str, bytes]]:
    """The notebook itself, to be downloaded; the page; pictures that its cells drew."""
    yield name, text.encode()
    stem = name.removesuffix(".ipynb")
    parts: list[str] = []
    for number, cell in enumerate(json.loads(text)["cells"], 1):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace(".ipynb)", ".md)"))
            continue
        parts.append(_fence("python", source))
        for order, output in enumerate(cell["outputs"], 1):
            made = _output(output, f"{stem}-{number}-{order}")
            parts.append(made[0])
            if made[1]:
                yield made[1]
    own = PurePosixPath(name).name
    parts.append(f"[This page as a notebook]({own}){{ download }}")
    yield f"{stem}.md", ("\n\n".join(part for part in parts if part) + "\n").encode()


def _output(output: dict[str, Any], picture: str) -> tuple[str, tuple[str, bytes] | None]:
    """Markdown of one output, and the file it shows."""
    kind = output["output_type"]
    if kind == "stream":
        return _fence("output", "".join(output["text"])), None
    if kind == "error":
        return _fence("output", _COLOUR.sub("", "\n".join(output["traceback"]))), None
    data = {kind: "".join(value) for kind, value in output["data"].items()}
    own = PurePosixPath(picture).name
    if "image/svg+xml" in data:
        return f"![]({own}.svg)", (f"{picture}.svg", data["image/svg+xml"].encode())
    if "image/png" in data:
        content = base64.b64decode(data["image/png"])
        return f"![]({own}.png)", (f"{picture}.png", content)
    if "text/html" in data:
        lines = [line for line in data["text/html"].splitlines() if line.strip()]
        return "\n".join(['<div class="cell-output">', *lines, "</div>"]), None
    return _fence("output", data.get("text/plain", "")), None


def _fence(language: str, text: str) -> str:
    text = text.rstrip("\n")
    return f"```{language}\n{text}\n```" if text.strip() else ""
