# SPDX-License-Identifier: Apache-2.0
"""Does a call run Python code of ours?"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import tcsym
from tcsym.runtime.background import settle

_OURS = os.path.dirname(tcsym.__file__)


def python_frames(call: Callable[[], Any]) -> list[str]:
    """Names of the Python functions of tcsym that a call runs, but those that hand it over."""
    seen: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        handed_over = frame.f_code.co_name == "__call__"
        if event == "call" and not handed_over and frame.f_code.co_filename.startswith(_OURS):
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def entered(call: Callable[[], Any]) -> Any:
    """The result of a call that runs no Python code of ours the second time."""
    call()
    settle()
    assert python_frames(call) == []
    return call()
