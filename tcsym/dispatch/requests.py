# SPDX-License-Identifier: Apache-2.0
"""Work beside the calls: what one part of a kernel asks for, before it begins (`compile_queue`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tcsym.ir.compiled import Compiled
from tcsym.runtime.variants import Layouts, Variants

if TYPE_CHECKING:
    from tcsym.dispatch.compare_entries import Weighed
    from tcsym.dispatch.making import Making
    from tcsym.dispatch.refine import Refined
    from tcsym.dispatch.version import Values


class Work(NamedTuple):
    """A variant to compile. `done` is told its code, or why there is none, on another thread."""

    variants: Variants
    layouts: Layouts
    share: float
    done: Callable[[Compiled | str], None]


class Weighing(NamedTuple):
    """Ways to serve calls of these sizes, to be run in turns (`compare_entries`)."""

    making: Making
    sizes: Sequence[Values]
    bound: Mapping[str, int]
    threads: int
    share: float
    done: Callable[[tuple[Weighed, str] | str | None], None]


class Refining(NamedTuple):
    """Tuned options to be run in turns at these sizes (`refine`)."""

    making: Making
    sizes: Values
    threads: int
    share: float
    done: Callable[[Refined | str | None], None]


AnyWork = Work | Weighing | Refining
Asked = deque[AnyWork]  # the queue knows it weakly: what waits goes with the kernel that wants it
