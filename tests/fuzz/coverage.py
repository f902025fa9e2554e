# SPDX-License-Identifier: Apache-2.0
"""Which passes changed a program: a pass that generated programs never reach is not tested."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, get_args, get_type_hints
from unittest.mock import patch

import tcsym.mapping
import tcsym.schedule
from tcsym.ir.loops import Kernel

STAGES = (tcsym.schedule, tcsym.mapping)
PASSES = tuple(f"{stage.__name__}." for stage in STAGES)


@contextmanager
def counted_passes(applied: Counter[str]) -> Iterator[set[str]]:
    """Within, passes that change a kernel note their names in the set, which the caller empties.

    Contract: the caller adds the set to `applied` after each program. All passes get an entry.
    """
    changed: set[str] = set()
    with ExitStack() as stack:
        for module in map(importlib.import_module, _modules()):
            for name, f in vars(module).copy().items():
                if _is_pass(f) and f.__module__ != module.__name__:
                    key = f"{f.__module__.removeprefix(PASSES[0])}.{f.__name__}"
                    applied[key] += 0
                    stack.enter_context(patch.object(module, name, _noting(f, key, changed)))
        yield changed


def report(applied: Counter[str], programs: int) -> str:
    """A line a pass, the rarest first."""
    lines = (f"{n:6} of {programs}  {name}" for name, n in reversed(applied.most_common()))
    return "\n".join(lines)


def _modules() -> Iterator[str]:
    for stage, prefix in zip(STAGES, PASSES, strict=True):
        found = pkgutil.walk_packages(stage.__path__, prefix)
        yield from (x.name for x in found if not x.ispkg)


def _is_pass(f: object) -> bool:
    """A function of the passes from a kernel to a kernel, perhaps with something beside it."""
    if not inspect.isfunction(f) or not f.__module__.startswith(PASSES):
        return False
    if ".analysis." in f.__module__ or next(iter(inspect.signature(f).parameters), "") != "kernel":
        return False
    made = get_type_hints(f)["return"]
    return any(x is Kernel or "kernel" in _fields(x) for x in (made, *get_args(made)))


def _fields(x: object) -> dict[str, Any]:
    return inspect.get_annotations(x) if inspect.isclass(x) else {}


def _noting(f: Callable[..., Any], key: str, changed: set[str]) -> Callable[..., Any]:
    @functools.wraps(f)
    def inner(kernel: Kernel, *args: Any, **given: Any) -> Any:
        result = f(kernel, *args, **given)
        made = result[0] if isinstance(result, tuple) and result else result
        made = getattr(made, "kernel", made)
        if isinstance(made, Kernel) and made is not kernel and made != kernel:
            changed.add(key)
        return result

    return inner
