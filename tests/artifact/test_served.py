# SPDX-License-Identifier: Apache-2.0
"""The served example: an artifact in a process of its own, asked over HTTP."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "serve.py"

pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("objcopy")), reason="linking an artifact needs both"
)


def test_answers_of_changing_sizes_are_right() -> None:
    command = [sys.executable, str(EXAMPLE), "--requests", "50"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert out[0].startswith("50 requests of 1 to 64 rows: p50 ")
    assert out[2].startswith("a wrong request: classify: `X` has shape (2, 65), expected (2, 64)")
