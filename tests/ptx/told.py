# SPDX-License-Identifier: Apache-2.0
"""A case by its name -> what came of it. For processes of their own, which import this module."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from tests.ptx import device
from tests.ptx.cases import cases


class Told(NamedTuple):
    """Of a case: what is wrong; names of instructions in its PTX, and of those that were run."""

    name: str
    why: str
    seconds: float
    texts: Mapping[str, int]
    run: frozenset[str]


def told(name: str) -> Told:
    os.environ["TCSYM_CACHE"] = "0"
    device.IN_TEXTS.clear()
    device.RUN.clear()
    began = time.perf_counter()
    try:
        why = cases()[name]()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:500]
    seconds = time.perf_counter() - began
    return Told(name, why, seconds, dict(device.IN_TEXTS), frozenset(device.RUN))
