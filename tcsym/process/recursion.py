# SPDX-License-Identifier: Apache-2.0
"""Walks over programs recurse as deep as these are nested: what is too deep is an error of ours.

Python's limit belongs to all threads of the process, so it stays as it is. Three or four frames for
each level are within its default for whatever nests 200 levels, the most that a text may.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

OWN_LIMIT = 20_000  # in processes that only work for others

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def depth_checked(run: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`run`, whose RecursionError is TCSyntaxError."""

    @wraps(run)
    def inner(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return run(*args, **kwargs)
        except RecursionError:
            raise _too_deep() from None

    return inner


def _too_deep() -> Exception:
    from tcsym.errors import TCSyntaxError

    limit = sys.getrecursionlimit()
    return TCSyntaxError(
        f"an expression is too deep for Python's recursion limit, which is {limit} here",
        hint="compute parts of it in statements before, or call `sys.setrecursionlimit`",
    )
