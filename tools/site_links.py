# SPDX-License-Identifier: Apache-2.0
"""Links of the built site: those that lead nowhere, and what would be loaded from another host."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}


class _Page(HTMLParser):
    """`anchors`, `links` (of <a>), `loaded` (scripts, styles, pictures)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.anchors |= {given[name] or "" for name in ("id", "name") if name in given}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if given.get(_LOADED.get(tag, "")) and given.get("rel") != "canonical":
            self.loaded.append(given[_LOADED[tag]] or "")


def broken_links(site: Path) -> list[str]:
    """What is wrong, a line each."""
    pages = {path: _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    faults = []
    for path, page in pages.items():
        name = path.relative_to(site)
        if str(name) == "404.html":  # it is shown at any address
            continue
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                if link in page.loaded:
                    faults.append(f"{name} loads {link} from another host")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file():
                faults.append(f"{name} links to {link}, which is no file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                faults.append(f"{name} links to {link}: that page has no such anchor")
    return list(dict.fromkeys(faults))
