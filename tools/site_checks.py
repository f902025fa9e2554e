# SPDX-License-Identifier: Apache-2.0
"""Every page of the built site in a browser: light and dark, wide and narrow.

A page fails if it writes to the console, asks another host for something, lacks a picture, is wider
than the window, or stays light where dark is asked for; the site, if a search finds nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tools.browser import Browser, browser, programs

SCHEMES = ("light", "dark")
WINDOWS = ((1280, 900), (390, 844))
_STATE = """
const root = document.documentElement, narrow = root.clientWidth;
const background = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
const wide = [...document.querySelectorAll('.md-content *')].filter(e =>
    e.getBoundingClientRect().right > narrow + 1 && !inScroller(e)).slice(0, 3)
    .map(e => e.tagName.toLowerCase() + ': ' + e.textContent.trim().slice(0, 60));
function inScroller(e) {
    for (; e; e = e.parentElement)
        if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(e).overflowX)) return true;
    return false;
}
return {
    excess: root.scrollWidth - narrow, wide,
    brightness: background.slice(0, 3).reduce((a, b) => a + b) / 3,
    missing: [...document.images].filter(i => !i.naturalWidth).map(i => i.src),
};
"""
_OPEN_SEARCH = """
document.querySelector('.md-search__button').click();
return new Promise(done => setTimeout(done, 1000));
"""
_FOUND = """
const roots = [...document.querySelectorAll('*')].map(e => e.shadowRoot).filter(r => r);
return roots.flatMap(r => [...r.querySelectorAll('a[href*="?h="]')]).map(a => a.href);
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder's address on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def check(site: Path, pictures: Path | None) -> int:
    """Exit status."""
    if not programs():
        say("neither chromium nor chromedriver here: no page was looked at")
        return 0
    started = time.perf_counter()
    names = [p.relative_to(site).as_posix() for p in sorted(site.rglob("*.html"))]
    faults = []
    with served(site) as host:
        for scheme in SCHEMES:
            with browser() as window:  # another one, as pages remember the colours first seen
                for name in names:
                    faults += [f"{name} {f}" for f in _page(window, host, name, scheme, pictures)]
                if not any("/language.html" in link for link in _found(window, host, "softmax")):
                    faults.append("a search for softmax does not find the language's page")
    for fault in faults:
        say(fault)
    seconds = time.perf_counter() - started
    say(f"{len(names)} pages, light and dark, wide and narrow: {seconds:.0f} s")
    return int(bool(faults))


def _page(
    window: Browser, host: str, name: str, scheme: str, pictures: Path | None
) -> Iterator[str]:
    """What is wrong with it."""
    for width, height in WINDOWS:
        window.view(width, height, scheme)
        if (width, height) == WINDOWS[0]:
            window.open(f"{host}/{name}")
        state = window.run(_STATE)
        view = f"at {width}, {scheme},"
        if state["excess"] > 0:
            yield f"{view} is {state['excess']} pixels too wide: {'; '.join(state['wide'])}"
        if (state["brightness"] > 128) != (scheme == "light"):
            yield f"{view} is not {scheme}"
        if state["missing"]:
            yield f"{view} lacks {', '.join(state['missing'])}"
        if pictures:
            path = pictures / f"{name.removesuffix('.html').replace('/', '-')}-{width}-{scheme}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(window.picture())
    for message in window.messages():
        yield f"writes {message}"
    own = (f"{host}/", "data:", "blob:", "chrome:")  # the last: of the empty window
    for url in window.requested():
        if not url.startswith(own):
            yield f"asks for {url}"


def _found(window: Browser, host: str, word: str) -> list[str]:
    """Addresses that a search for it shows."""
    window.open(f"{host}/index.html")
    window.run(_OPEN_SEARCH)
    window.type(word)
    for _ in range(50):
        found: list[str] = window.run(_FOUND)
        if found:
            return found
        time.sleep(0.2)
    return []


def say(text: str) -> None:
    print(f"site: {text}", file=sys.stderr, flush=True)
