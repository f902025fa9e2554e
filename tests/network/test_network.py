# SPDX-License-Identifier: Apache-2.0
"""The network of examples/: one plan and one compilation for all its sizes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "network.py"


def test_one_arena_serves_all_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    first, *calls = capsys.readouterr().out.splitlines()
    assert first == "5 kernels, 2 storages, 1039360 bytes" and len(calls) == 5
