# SPDX-License-Identifier: Apache-2.0
"""How much a proof may take, counted: operations of isl, and steps of ours between its calls.

A count cuts the same proofs short on every machine, however busy it is, so that what comes of it
may be kept. isl counts its own operations and fails once there were too many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl
from msgspec import Struct

STEP_OPERATIONS = 64  # a step of ours takes as long as that many operations of isl, or so


class Exhausted(Exception):
    """A proof took more operations than it may."""


class Effort(Struct):
    """The bound of one proof after the other, on objects of one context.

    most: operations of each. Outside of `bounded` all is allowed.
    """

    context: isl.Context
    most: int
    _steps_left: int | None = None

    def step(self) -> None:
        """One of our own steps, which may repeat without calling isl. Raises Exhausted."""
        if self._steps_left is None:
            return
        if self._steps_left == 0:
            raise Exhausted
        self._steps_left -= 1

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """The body is one proof: Exhausted once it takes too much."""
        self.context.reset_operations()
        self.context.set_max_operations(self.most)
        self._steps_left = self.most // STEP_OPERATIONS
        try:
            yield
        except Exception:  # isl's own, or Python's over a null object: islpy reads texts as None
            if self._is_exhausted():
                raise Exhausted from None
            raise
        else:
            if self._is_exhausted():  # what the body has found may come of a null object
                raise Exhausted
        finally:
            self.context.set_max_operations(0)
            self._steps_left = None

    def _is_exhausted(self) -> bool:
        """isl has no operation left; it does not tell how many there were."""
        try:
            isl.Val.int_from_si(self.context, 1)
        except isl.Error:
            return True
        return False
