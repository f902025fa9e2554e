# SPDX-License-Identifier: Apache-2.0
"""How much LLVM does for a program: mostly as little as it can.

Its passes are a third of the time that a program takes, and none of the code that is tested here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from tcsym.target import llvm

_LEVEL, _RUN = llvm._LEVEL, llvm.Module.run
USUAL = 0.25  # of the programs are compiled as they are for users


@contextmanager
def drawn_effort(rng: random.Random) -> Iterator[None]:
    """Within, LLVM does all that it does for users, or nothing that it need not."""
    if rng.random() < USUAL:
        yield
        return
    with (
        patch("tcsym.target.llvm._LEVEL", 0),
        patch("tcsym.target.llvm.Module.run", lambda module, passes, machine: None),
    ):
        yield


@contextmanager
def usual_effort() -> Iterator[None]:
    """Within, it is as for users, whatever was drawn: else PTX has stacks and calls."""
    with patch("tcsym.target.llvm._LEVEL", _LEVEL), patch("tcsym.target.llvm.Module.run", _RUN):
        yield
