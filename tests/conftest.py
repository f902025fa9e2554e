"""Options of the test suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# compiled code is kept between runs, but not among the user's
CACHE = Path(__file__).resolve().parent.parent / ".pytest_cache" / "tcsym"
os.environ.setdefault("TCSYM_CACHE_DIR", str(CACHE))

# how long an example takes depends on what else the machine does
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

pytest_plugins = ["tests.interpreted"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite golden files instead of comparing"
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
