# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, through chromedriver's WebDriver: pages, scripts, logs, pictures."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver", "chromium.chromedriver")
_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars"),
)


def programs() -> tuple[str, str] | None:
    """Chromium and its driver, if both are here."""
    browser = next(filter(None, map(shutil.which, PROGRAMS)), None)
    driver = next(filter(None, map(shutil.which, DRIVERS)), None)
    return (browser, driver) if browser and driver else None


class Browser:
    """One window."""

    def __init__(self, session: str) -> None:
        self._session = session

    def _post(self, command: str, **given: Any) -> Any:
        return _request(f"{self._session}/{command}", given)

    def open(self, url: str) -> None:
        """Returns when the page and what it names are loaded."""
        self._post("url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What the function of this body returns; a promise is waited for."""
        return self._post("execute/sync", script=script, args=list(arguments))

    def type(self, text: str) -> None:
        """Keys, to what has the focus."""
        keys = [{"type": kind, "value": c} for c in text for kind in ("keyDown", "keyUp")]
        self._post("actions", actions=[{"type": "key", "id": "keys", "actions": keys}])

    def view(self, width: int, height: int, scheme: str) -> None:
        """Sizes in pixels; scheme: `light` or `dark`."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", **metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._devtools("Emulation.setEmulatedMedia", features=features)

    def picture(self, whole: bool = False) -> bytes:
        """PNG of what is seen, or of the whole page."""
        found = self._devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])

    def messages(self) -> list[str]:
        """Console messages since the last time, from warnings on."""
        return [entry["message"] for entry in self._post("se/log", type="browser")]

    def requested(self) -> list[str]:
        """Addresses that were asked for since the last time."""
        events = [json.loads(e["message"]) for e in self._post("se/log", type="performance")]
        sent = (e["message"] for e in events)
        return [
            e["params"]["request"]["url"]
            for e in sent
            if e["method"] == "Network.requestWillBeSent"
        ]

    def _devtools(self, command: str, **params: Any) -> Any:
        return self._post("goog/cdp/execute", cmd=command, params=params)


@contextmanager
def browser() -> Iterator[Browser]:
    """A new one, with an empty profile; it ends with the block. Needs `programs()`."""
    found = programs()
    assert found, "no Chromium here"
    program, driver = found
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        session = ""
        try:
            root = f"http://127.0.0.1:{_port_of(process)}/session"
            options = {"binary": program, "args": [*_ARGUMENTS, f"--user-data-dir={profile}"]}
            logs = {"browser": "WARNING", "performance": "ALL"}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": logs}
            made = _request(root, {"capabilities": {"alwaysMatch": wanted}})
            session = f"{root}/{made['sessionId']}"
            yield Browser(session)
        finally:
            if session:
                _request(session, None, "DELETE")
            process.terminate()
            process.wait()


def _port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    deadline = time.monotonic() + 30
    for line in process.stdout:
        if "started successfully on port" in line:
            return int(line.rstrip(". \n").rpartition(" ")[2])
        if time.monotonic() > deadline:
            break
    raise RuntimeError("chromedriver did not start")


def _request(url: str, body: Any, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["value"]
