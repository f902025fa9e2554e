# SPDX-License-Identifier: Apache-2.0
"""What the user gives as `executor=` -> an executor as in `concurrent.futures`.

A Dask client is taken as it is. Its tasks are not pure (a measurement that is asked for again is
made again), and a task whose worker died is not tried on the next one: its candidate may be why.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar, cast

from tcsym.errors import OptionError

P = ParamSpec("P")
T = TypeVar("T")


class Here(Executor):
    """Runs what it is given at once, in this process and thread."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def as_executor(given: Any) -> Executor | None:
    """None for None. OptionError for what is no executor."""
    if given is None or isinstance(given, Executor):
        return given
    if hasattr(given, "get_executor"):  # distributed.Client
        return cast(Executor, given.get_executor(pure=False, retries=0))
    hint = "a concurrent.futures executor, or a Dask client"
    raise OptionError(f"`executor` is {given!r}, expected an executor", hint=hint)
