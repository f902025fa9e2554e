# SPDX-License-Identifier: Apache-2.0
"""Libraries that call kernels, as tests take them, and the mark `host` of tests that need one.

A module that is all about one begins with `torch = host("torch")`; a single test takes the fixture
of that name. Both make it `host`; a test that is about one for some parameters says so itself.
`./dev test-hosts` runs these tests where all of the libraries are, others leave out what they lack.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

HOSTS = ("torch", "jax", "distributed", "xarray")


def host(name: str) -> Any:
    """The library. Where it is not installed, what asks for it is skipped."""
    return pytest.importorskip(name, reason=f"{name} is not installed")


def _needed(name: str, request: pytest.FixtureRequest) -> Any:
    assert request.node.get_closest_marker("host"), f"it needs {name}: mark it as `host`"
    return host(name)


@pytest.fixture
def torch(request: pytest.FixtureRequest) -> Any:
    return _needed("torch", request)


@pytest.fixture
def jax(request: pytest.FixtureRequest) -> Any:
    return _needed("jax", request)


@pytest.fixture
def distributed(request: pytest.FixtureRequest) -> Any:
    return _needed("distributed", request)


@pytest.fixture
def xarray(request: pytest.FixtureRequest) -> Any:
    return _needed("xarray", request)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is not marked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.get_closest_marker("host") and _is_of_host(item):
            item.add_marker(pytest.mark.host)


def _is_of_host(item: pytest.Item) -> bool:
    if not {*HOSTS}.isdisjoint(getattr(item, "fixturenames", ())):
        return True
    made = vars(getattr(item, "module", None) or object).values()
    return any(isinstance(x, ModuleType) and x.__name__ in HOSTS for x in made)
