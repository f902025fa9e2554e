# SPDX-License-Identifier: Apache-2.0
"""What takes part in a comparison: a call on prepared inputs, and its result as numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from benchmarks.case import Case, Sizes


class Problem(Struct, frozen=True):
    """One case at one size: arrays as our text and as libraries see them, and what is right."""

    case: Case
    sizes: Sizes
    arrays: tuple[Any, ...]
    library_arrays: tuple[Any, ...]
    expected: tuple[Any, ...]
    threads: int
    target: str | None


class Contestant(Struct, frozen=True):
    """`to_numpy`: of what `call` returns. `ready`: waits for work a first call left running.

    A contestant that writes into given arrays is named with ` out=` at the end.
    """

    call: Callable[[], Any]
    to_numpy: Callable[[Any], tuple[Any, ...]]
    ready: Callable[[], None] = lambda: None


Maker = Callable[[], Contestant]
Peer = Callable[[Problem], Iterator[tuple[str, Maker]]]


def writes_to_given(name: str) -> bool:
    return name.endswith(" out=")
