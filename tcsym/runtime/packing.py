# SPDX-License-Identifier: Apache-2.0
"""Results of one call -> what the caller gets: None, the single one, or a named tuple."""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import Any


def packed(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """The single result, or a named tuple of all; None if there is none."""
    if not values:
        return None
    return values[0] if len(values) == 1 else results_type(names)(*values)


@lru_cache(None)
def results_type(names: tuple[str, ...]) -> Any:
    """Named tuple with these fields; one that is no Python field name is reached by position."""
    made = namedtuple("Results", names, rename=True)  # type: ignore[misc]

    def reduce(self: tuple[Any, ...]) -> tuple[Any, ...]:
        return packed, (names, tuple(self))

    made.__reduce__ = reduce  # type: ignore[assignment, method-assign]
    return made
