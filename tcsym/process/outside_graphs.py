# SPDX-License-Identifier: Apache-2.0
"""Functions that users call -> the same, which torch.compile leaves out of its graphs; and names of
objects that it is to take for constants.

torch.compile reads the Python code that runs under it, and compiles every function it comes to. In
ours it finds nothing for a graph. So a graph ends before such a call, the call runs as it does
without torch.compile, with all that it calls, and the next graph begins after it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

REASON = (
    "tcsym runs this outside of graphs; call the kernel itself, with its inputs and sizes only, "
    "for a graph without a break"
)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_numbers = count()
_named: WeakValueDictionary[str, Any] = WeakValueDictionary()


def graph_name(x: object) -> str:
    """A new text that stands for `x` in graphs, each of which has a guard that compares it.

    torch 2.10, for one, takes no objects for constants but those of Python's own types.
    """
    name = str(next(_numbers))
    _named[name] = x
    return name


def named_in_graphs(name: str) -> Any:
    """What the text stands for."""
    return _named[name]


def outside_graphs(run: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`run`, never compiled by torch. Costs nothing to speak of where torch.compile is not used."""

    @wraps(run)
    def inner(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        # torch.compile is not in force before its module is there. This frame it does compile,
        # into the same calls: what it finds here must be simple.
        if not hasattr(sys.modules.get("torch._dynamo"), "disable"):  # or still being imported
            return run(*args, **kwargs)
        torch: Any = sys.modules["torch"]
        return torch.compiler.disable(run)(*args, **kwargs)  # type: ignore[no-any-return]

    return ends_graphs(inner)


def ends_graphs(run: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`run`, at whose call a graph of torch ends; all that it calls is outside of graphs itself."""
    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    run._torchdynamo_disable_msg = REASON  # type: ignore[attr-defined]
    return run
