# SPDX-License-Identifier: Apache-2.0
"""A region of sizes and the options that serve it: what tuning learns and a dispatcher follows."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tcsym.index.expr import TRUE, Condition
from tcsym.index.text import condition_text
from tcsym.options import Options

Origin = Literal["analytic", "shipped", "user", "measured", "given"]


class Region(Struct, frozen=True):
    """Sizes that satisfy `context` (over size parameters) are served with `options`.

    The regions of a kernel cover its declared sizes; the first that has a size is meant. `origin`:
    who chose the options: the analytic default, the shipped store, the user's store, what was
    measured at just these sizes, or the caller. `meant`: `context` in words where it is long.
    """

    options: Options
    context: Condition = TRUE
    origin: Origin = "analytic"
    meant: str = ""

    @property
    def where(self) -> str:
        """Its sizes as text."""
        return self.meant or ("all sizes" if self.context == TRUE else condition_text(self.context))

    def __str__(self) -> str:
        return f"{self.where}: {self.options.to_json()} ({self.origin})"
