# SPDX-License-Identifier: Apache-2.0
"""What a run of the interpreter decides: comparisons, whole parts, signs, winners.

A program is smooth between two points at which it decides alike, so far as its functions are. Where
it decides otherwise there may be a kink or a jump, and differences say nothing of a derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from tcsym.frontend import interpret, interpret_expressions, interpret_functions, interpret_values
from tcsym.types import DType

Array = NDArray[Any]


def _order(x: Array, y: Array) -> Array:
    return np.sign(x - y)


# Of functions that are not smooth within their domain: what is the same in a smooth piece.
_PIECES: dict[str, Callable[..., Array]] = {
    "atan2": lambda y, x: np.where(x < 0, np.sign(y), 0),
    "cbrt": np.sign,
    "ceil": np.ceil,
    "copysign": lambda x, y: np.sign(x) + 3 * np.sign(y),
    "fabs": np.sign,
    "fdim": _order,
    "fdivide": lambda x, y: np.sign(y),
    "floor": np.floor,
    "fmax": _order,
    "fmin": _order,
    "fmod": lambda x, y: np.trunc(x / y),
    "lgamma": lambda x: np.where(x <= 0, np.floor(x), 0),
    "logb": lambda x: np.frexp(x)[1],
    "nextafter": _order,
    "pow": lambda x, y: np.sign(x),
    "rcbrt": np.sign,
    "remainder": lambda x, y: np.rint(x / y),
    "round": lambda x: np.floor(x + 0.5) + np.sign(x),
    "tan": lambda x: np.floor(x / np.pi + 0.5),
    "tgamma": lambda x: np.where(x <= 0, np.floor(x), 0),
    "trunc": np.trunc,
}


class _Noted:
    """Stand-ins for the functions of the interpreter that decide."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self.largest = 0.0  # of what was computed

    def computed(self, values: Array) -> Array:
        if values.size and values.dtype.kind != "b":
            self.largest = max(self.largest, float(np.abs(values.astype(np.float64)).max()))
        return values

    def note(self, decided: Array) -> None:
        self.found.append(np.asarray(decided, dtype=np.float64).tobytes())

    def compare(self, op: str, a: Array, b: Array) -> Array:
        result = interpret_values.compare(op, a, b)
        self.note(result)
        return result

    def arithmetic(self, op: str, a: Array, b: Array) -> Array:
        if a.dtype.kind == "f":
            if op in ("min", "max"):
                self.note(_order(a, b))
            elif op == "mod":
                self.note(np.floor_divide(a, b))
            elif op == "div":
                self.note(np.sign(b))
        return self.computed(interpret_values.arithmetic(op, a, b))

    def cast(self, values: Array, target: DType) -> Array:
        result = interpret_values.cast(values, target)
        if values.dtype.kind == "f" and not target.is_float:
            self.note(result)
        return result

    def call(self, function: str, args: list[Array], dtype: DType) -> Array:
        if function in _PIECES:
            self.note(_PIECES[function](*args))
        return self.computed(interpret_functions.call(function, args, dtype))

    def stored(self, values: Array, dtype: DType) -> Array:
        return self.computed(interpret_values.stored(values, dtype))

    def accumulate(self, op: Any, into: Array, positions: Array, terms: Array) -> None:
        before = into[positions] if op in ("min=", "max=") else None
        interpret_values.accumulate(op, into, positions, terms)
        if before is not None:
            self.note(terms == into[positions])
            self.note(before == into[positions])


@contextmanager
def _noting() -> Iterator[_Noted]:
    noted = _Noted()
    with (
        patch.object(interpret_expressions, "compare", noted.compare),
        patch.object(interpret_expressions, "arithmetic", noted.arithmetic),
        patch.object(interpret_expressions, "cast", noted.cast),
        patch.object(interpret_expressions, "call", noted.call),
        patch.object(interpret, "cast", noted.cast),
        patch.object(interpret, "accumulate", noted.accumulate),
        patch.object(interpret, "stored", noted.stored),
        np.errstate(all="ignore"),
    ):
        yield noted


def decisions(run: Callable[[], object]) -> tuple[bytes, float]:
    """All that `run` decides, in order, and the largest number that it computes."""
    with _noting() as noted:
        run()
    return b"|".join(noted.found), noted.largest
