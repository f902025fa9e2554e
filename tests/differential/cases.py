# SPDX-License-Identifier: Apache-2.0
"""A program to compare with the reference, and the sizes it is tried at."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

Sizes = dict[str, int]


class Case(Struct, frozen=True):
    """`gen`: input name -> how its values are made (normal, index SIZE, bit, small, special)."""

    source: str
    sizes: tuple[Sizes, ...]
    gen: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


def grid(**choices: tuple[int, ...]) -> tuple[Sizes, ...]:
    """Size sets that take the k-th choice of each (the last one repeats)."""
    longest = max(map(len, choices.values()))
    return tuple({n: c[min(k, len(c) - 1)] for n, c in choices.items()} for k in range(longest))
