# SPDX-License-Identifier: Apache-2.0
"""What is tested here is the stage that plans of directives (`tcsym.mapping`) replace."""

from __future__ import annotations

import pytest

from tcsym.mapping import serve


@pytest.fixture(autouse=True)
def unswitched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contractions are not mapped by directives, but where texts of all plans are tested."""
    if request.path.name != "test_plan_text.py":
        monkeypatch.setattr(serve, "SWITCHED", serve.SWITCHED - {"contractions"})
