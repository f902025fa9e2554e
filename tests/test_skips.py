# SPDX-License-Identifier: Apache-2.0
"""The suite says what it skips, and why."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_what_is_skipped_is_told_with_its_reason(tmp_path: Path) -> None:
    test = tmp_path / "test_some.py"
    test.write_text("import pytest\n\ndef test_some(): pytest.skip('no such processor')\n")
    given = ["-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", str(test)]
    command = [sys.executable, "-m", "pytest", *given]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_some.py:3: no such processor" in done.stdout
