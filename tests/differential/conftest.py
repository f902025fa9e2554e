# SPDX-License-Identifier: Apache-2.0
"""Everything here is compiled anew, with the loop IR verified after each pass."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_VERIFY", "1")
