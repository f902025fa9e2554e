# SPDX-License-Identifier: Apache-2.0
"""Names of temporaries that a rewriting adds."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count


def fresh_name(stem: str, taken: Collection[str]) -> str:
    """`stem` with the first number that makes a new name of it."""
    return next(x for k in count() if (x := f"{stem}{k}") not in taken)
