# SPDX-License-Identifier: Apache-2.0
"""How a tune gets on: a bar on a terminal, a line now and then elsewhere; on standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from msgspec import Struct

_LINE_SECONDS = 5.0


class Snapshot(Struct, frozen=True):
    """share: of the budget that is used. gain: how many times faster than the default now."""

    share: float
    n_trials: int
    n_failed: int
    gain: float
    seconds: float
    options: str


class Progress:
    """`shown`: None means only on a terminal."""

    def __init__(self, title: str, shown: bool | None) -> None:
        self._title = title
        self._is_terminal = sys.stderr.isatty()
        self._shown = self._is_terminal if shown is None else shown
        self._bar: Any = None
        self._task: Any = None
        self._last = 0.0

    def __enter__(self) -> Progress:
        if self._shown and self._is_terminal:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[state]}"),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(f"tune {self._title}", total=1.0, state="")
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, now: Snapshot) -> None:
        if not self._shown:
            return
        rate = now.n_trials / max(now.seconds, 1e-9)
        state = f"{now.n_trials} trials ({rate:.1f}/s), {now.n_failed} failed, {now.gain:.2f}x"
        if self._bar is not None:
            self._bar.update(self._task, completed=now.share, state=f"{state}: {now.options}")
        elif time.monotonic() - self._last > _LINE_SECONDS:
            self._last = time.monotonic()
            print(
                f"tune {self._title}: {100 * now.share:.0f} %, {state}, best {now.options}",
                file=sys.stderr,
                flush=True,
            )
