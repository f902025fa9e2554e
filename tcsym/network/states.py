# SPDX-License-Identifier: Apache-2.0
"""States of a session: which outputs become inputs, and what they may be set to."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from tcsym.errors import OptionError
from tcsym.network.plan import Plan
from tcsym.runtime.arrays import Array
from tcsym.runtime.plan import Parameter
from tcsym.runtime.view import View
from tcsym.types import DType

_UNREADABLE = (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)


def checked_feeds(plan: Plan, state: Mapping[str, str]) -> dict[str, str]:
    """Inputs with the outputs that they get of the call before. Errors: OptionError."""
    fixed = plan.program.constants
    inputs = {t.name: t for t in plan.program.inputs if t.name not in fixed}
    outputs = {t.name: t for t in plan.program.outputs}
    for name, source in state.items():
        if name not in inputs or source not in outputs:
            what, known = (name, inputs) if name not in inputs else (source, outputs)
            kind = "input" if name not in inputs else "output"
            hint = f"{kind}s are {', '.join(known)}"
            raise OptionError(f"`state` has `{what}`, which is no {kind}", hint=hint)
        a, b = inputs[name], outputs[source]
        if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
            raise OptionError(f"`{source}` cannot become `{name}`: they differ in type or rank")
    return dict(state)


def require_state(p: Parameter, view: View, known: dict[str, int]) -> None:
    """known: sizes so far, which those of this state join. Errors: OptionError if it is none."""
    what = f"state `{p.name}`"
    if view.dtype is not p.dtype or len(view.shape) != p.rank:
        given = f"{view.type_name} of {len(view.shape)} dimensions"
        raise OptionError(f"{what} is {given}, expected {p.type_text}")
    for dimension, extent in zip(p.dimensions, view.shape):
        expected = known.setdefault(dimension, extent) if isinstance(dimension, str) else dimension
        if extent != expected:
            message = f"{what} has shape {view.shape}, but `{dimension}` of {p.type_text}"
            raise OptionError(f"{message} is {expected}")


def read_states(path: str | PathLike[str], types: Mapping[str, DType]) -> dict[str, Array]:
    """What `save` wrote. types: of the states; numpy forgets those that it does not know. Errors:
    OptionError for a file that cannot be read, or is none of arrays."""

    def typed(name: str, x: Any) -> Array:
        dtype = types[name].numpy if name in types else x.dtype
        is_forgotten = x.dtype.kind == "V" and x.dtype.itemsize == dtype.itemsize
        found: Array = x.view(dtype) if is_forgotten else x
        return found

    try:
        with np.load(Path(path), allow_pickle=False) as found:
            return {name: typed(name, found[name]) for name in found.files}
    except _UNREADABLE as error:
        why = getattr(error, "strerror", None) or f"it has no state that was saved ({error})"
        raise OptionError(f"cannot read `{fspath(path)}`: {why}") from None
