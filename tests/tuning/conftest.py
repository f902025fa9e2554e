# SPDX-License-Identifier: Apache-2.0
"""Jobs of the tuner set the threads of the process they run in, which is that of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tcsym.process.threads


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = tcsym.process.threads._chosen.value
    yield
    tcsym.process.threads._chosen.value = before
