# SPDX-License-Identifier: Apache-2.0
"""What counts as a size."""

from __future__ import annotations

import numbers


def size_value(value: object) -> int | None:
    """`value` if it is an integer (numpy's too, bool not), else None."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    return None
