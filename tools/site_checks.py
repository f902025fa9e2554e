# SPDX-License-Identifier: Apache-2.0
"""Every page of the built site in a browser: light and dark, wide and narrow.

A page fails if it writes to the console, asks another host for something, lacks a picture, is wider
than the window, or stays light where dark is asked for; the site, if a search finds nothing.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_DRIVERS = ("chromedriver", "chromium.chromedriver")
_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars"),
)
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


def _programs() -> tuple[str, str] | None:
    """Chromium and its driver, if both are here."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    driver = next(filter(None, map(shutil.which, _DRIVERS)), None)
    return (program, driver) if program and driver else None


def _browser(program: str, driver: str) -> webdriver.Chrome:
    """With an empty profile."""
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "WARNING", "performance": "ALL"})
    return webdriver.Chrome(options, webdriver.ChromeService(driver))


def check(site: Path, pictures: Path | None) -> int:
    """Exit status."""
    found = _programs()
    if found is None:
        say("chromium or chromedriver is not here: no page was looked at")
        return 0
    started = time.perf_counter()
    names = [p.relative_to(site).as_posix() for p in sorted(site.rglob("*.html"))]
    faults = []
    with served(site) as host:
        for scheme in SCHEMES:
            with _browser(*found) as window:  # another one: pages remember the colours first seen
                for name in names:
                    faults += [f"{name} {f}" for f in _page(window, host, name, scheme, pictures)]
                _view(window, *WINDOWS[0], scheme)  # the narrow one has no such field
                if not _is_found(window, host, "softmax", "language.html"):
                    faults.append("a search for softmax does not find the language's page")
    for fault in faults:
        say(fault)
    seconds = time.perf_counter() - started
    say(f"{len(names)} pages, light and dark, wide and narrow: {seconds:.0f} s")
    return int(bool(faults))


def _page(
    window: webdriver.Chrome, host: str, name: str, scheme: str, pictures: Path | None
) -> Iterator[str]:
    """What is wrong with it."""
    for width, height in WINDOWS:
        _view(window, width, height, scheme)
        if (width, height) == WINDOWS[0]:
            window.get(f"{host}/{name}")
        state = window.execute_script(_STATE)
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
            path.write_bytes(window.get_screenshot_as_png())
    for entry in window.get_log("browser"):
        yield f"writes {entry['message']}"
    own = (f"{host}/", "data:", "blob:", "chrome:")  # the last: of the empty window
    for entry in window.get_log("performance"):
        event = json.loads(entry["message"])["message"]
        if event["method"] == "Network.requestWillBeSent":
            url = event["params"]["request"]["url"]
            if not url.startswith(own):
                yield f"asks for {url}"


def _view(window: webdriver.Chrome, width: int, height: int, scheme: str) -> None:
    """Sizes in pixels; scheme: `light` or `dark`."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def _is_found(window: webdriver.Chrome, host: str, word: str, page: str) -> bool:
    """A search for the word shows the page; results of its first letters may come before."""
    window.get(f"{host}/index.html")
    window.find_element(By.CSS_SELECTOR, ".md-search__button").click()
    time.sleep(1)  # it opens slowly, and takes keys then
    ActionChains(window).send_keys(word).perform()
    try:
        wait = WebDriverWait(window, 20)
        return bool(wait.until(lambda w: any(f"/{page}" in x for x in w.execute_script(_FOUND))))
    except TimeoutException:
        return False


def say(text: str) -> None:
    print(f"site: {text}", file=sys.stderr, flush=True)
