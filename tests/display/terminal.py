# SPDX-License-Identifier: Apache-2.0
"""What a program writes on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator


def on_terminal(code: str, stream: str = "stdout", **env: str) -> str:
    """That of one of its streams; neither NO_COLOR nor FORCE_COLOR is set."""
    ours, its = pty.openpty()
    unset = ("NO_COLOR", "FORCE_COLOR", "TCSYM_PROGRESS")
    known = {k: v for k, v in os.environ.items() if k not in unset}
    known |= {"TERM": "xterm-256color"} | env
    ran = [sys.executable, "-c", code]
    with subprocess.Popen(ran, env=known, **{stream: its}) as child:  # type: ignore[call-overload]
        os.close(its)
        written = b"".join(_until_closed(ours))
        assert child.wait() == 0
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


def _until_closed(fd: int) -> Iterator[bytes]:
    while True:
        try:
            if not (part := os.read(fd, 65536)):
                return
        except OSError:  # the other end is closed
            return
        yield part
