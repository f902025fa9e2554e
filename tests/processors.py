# SPDX-License-Identifier: Apache-2.0
"""What tests need of the processor that they run on."""

from __future__ import annotations

import pytest

from tcsym.target.host import runs_here
from tcsym.target.names import resolve_target


def require(target: str) -> None:
    """Skips a test that runs code for `target` where that cannot be."""
    if not runs_here(resolve_target(target)):
        pytest.skip(f"this processor cannot run code for {target}")
