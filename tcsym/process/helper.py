"""Other processes of Python that work for this one: how every one of them is started.

They import what this one does, from where it does, but nothing from the current folder, which may
be anybody's: a file `json.py` there is not to run because a kernel was called there.
"""

from __future__ import annotations

import os
import subprocess
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def start_python(
    module: str, *arguments: str, new_session: bool = False
) -> subprocess.Popen[bytes]:
    """A process that runs `main(*arguments)` of a module of ours, spoken to by pipes."""
    code = f"from {module} import main; main(*{arguments!r})"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,  # a child of a fork closes its ends of the pipes, and sends nothing with that
        env={**os.environ, "PYTHONPATH": os.pathsep.join(_folders())},
        start_new_session=new_session,
    )


def send(process: subprocess.Popen[bytes], message: bytes) -> None:
    """All of a message. Errors: OSError if the process has ended."""
    assert process.stdin is not None
    left = memoryview(message)
    while left:
        left = left[process.stdin.write(left) :]


def _folders() -> list[str]:
    """Where this process imports from, but for the current folder; if that is ours, it is last."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it exists no more
        here = ""
    found = [os.path.abspath(p) for p in sys.path if os.path.isabs(p) or (p and here)]
    found = [p for p in found if os.path.realpath(p) != here]
    return found if _ROOT in found else [*found, _ROOT]
