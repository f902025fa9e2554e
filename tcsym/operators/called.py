"""What operators know of a kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from tcsym.frontend.program import Program
from tcsym.runtime.plan import CallPlan


class Called(Protocol):
    """A kernel, which is made above."""

    name: str

    @property
    def program(self) -> Program: ...

    @property
    def settings(self) -> Any: ...

    @property
    def _plan(self) -> CallPlan: ...

    @property
    def _entry(self) -> Any: ...

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...

    def batched(self, inputs: Iterable[str] | None = None) -> Called: ...

    def grad(self, wrt: Collection[str] | None = None) -> Called: ...
