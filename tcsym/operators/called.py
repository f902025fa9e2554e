# SPDX-License-Identifier: Apache-2.0
"""What operators know of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from tcsym.frontend.program import Program
from tcsym.runtime.digest import hexdigest
from tcsym.runtime.plan import CallPlan


class Called(Protocol):
    """A kernel, which is made above."""

    name: str
    _graph_name: str
    # what records calls of tensors alone, by which of them need a gradient
    _recorded: Mapping[tuple[bool | None, ...], Callable[..., Any]]

    @property
    def program(self) -> Program: ...

    @property
    def settings(self) -> Any: ...

    @property
    def _plan(self) -> CallPlan: ...

    @property
    def _entry(self) -> Any: ...

    def __hash__(self) -> int: ...

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...

    def batched(self, inputs: Iterable[str] | None = None) -> Called: ...

    def functional(self) -> Called: ...

    def grad(self, wrt: Collection[str] | None = None, *, recompute: str = "auto") -> Called: ...

    def jvp(self, wrt: Collection[str] | None = None, *, recompute: str = "all") -> Called: ...

    def saving(self, wrt: Collection[str] | None = None, *, recompute: str = "cheap") -> Called: ...

    def export(self, path: str | PathLike[str]) -> Path: ...


def operator_name(kernel: Called) -> str:
    """Of everything that a call's results depend on, and its speed."""
    own, plan = kernel.settings, kernel._plan
    whole = (
        *(own.source, kernel.name, plan.initial, own.strategy),
        *(str(own.target), str(own.options), own.recompute),
    )
    return f"{kernel.name}_{hexdigest(repr(whole).encode('utf-8', 'surrogatepass'))[:12]}"
