# SPDX-License-Identifier: Apache-2.0
"""The kinds of instructions that are counted, and what one of each takes.

A kind is counted in what the processor does at a time: plain instructions in parts of 256 bits, so
that one of 512 is two; what goes lane by lane in lanes. Prices are nanoseconds of a Zen 4 at 3.7
GHz, fitted to times of all plans of 150 programs by non-negative least squares above `LEAST`, which
is about what a processor cannot do better: what those programs hardly have would come out free.
They rank codes of one program; of memory only what is waited for is in them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tcsym.target.machine import Machine

Counts = NDArray[np.float64]  # of one thing, by `TERMS`; of many choices of sizes, in rows

TERMS = (
    "fma",  # a product and a sum, or either as a term of a reduction
    "other",  # operations on what is loaded or computed
    "func",  # cycles of functions that are no single instruction
    "load",
    "store",
    "splat",  # a scalar, or one for all lanes
    "near",  # a load of lanes two to four elements apart
    "gather",  # a lane loaded by itself
    "scatter",  # a lane stored by itself
    "across",  # a reduction of the lanes of a vector
    "stall",  # one of these that vectors wait for, of all rows of a tile at once
    "trans",  # an element of a transposed block
    "masked",  # a vector of which some lanes are loaded or stored, without registers for masks
    "spilled",  # a register more than there are, in an iteration of an innermost loop
    "core",  # cycles of an innermost loop: of its busiest unit, or of its chain of sums
    "wait",  # by how many of these a chain is longer than the units
    "entry",  # a loop begun
    "step",  # an iteration
    "awaited",  # a line that no cache of one core has, and that does not follow others
    "again",  # a line that such a cache had, and that is brought to it again
    "branch",  # a version or a guard asked for
    "launch",  # a loop begun that threads may share
    "call",
)
_PLACE = {name: k for k, name in enumerate(TERMS)}

LEAST = {
    "fma": 0.04,
    "other": 0.04,
    "func": 0.08,
    "load": 0.04,
    "store": 0.08,
    "splat": 0.04,
    "near": 0.12,
    "gather": 0.1,
    "scatter": 0.2,
    "across": 0.5,
    "stall": 0.5,
    "trans": 0.03,
    "masked": 0.3,
    "spilled": 0.1,
    "core": 0.05,
    "wait": 0.02,
    "entry": 0.3,
    "step": 0.1,
    "awaited": 0.5,
    "again": 0.8,
    "branch": 0.15,
    "launch": 20.0,
    "call": 100.0,
}
_WIDE = {  # vectors of 512 bits
    "fma": 0.0868,
    "other": 0.04,
    "func": 0.117,
    "load": 0.0856,
    "store": 0.32,
    "splat": 0.04,
    "near": 0.12,
    "gather": 0.341,
    "scatter": 0.35,
    "across": 0.65,
    "stall": 1.6,
    "trans": 0.05,
    "masked": 0.3,
    "spilled": 0.1,
    "core": 0.05,
    "wait": 0.02,
    "entry": 0.3,
    "step": 0.1,
    "awaited": 0.5,
    "again": 0.8,
    "branch": 0.15,
    "launch": 89.1,
    "call": 322.0,
}
_NARROW = {
    "fma": 0.0611,
    "other": 0.04,
    "func": 0.207,
    "load": 0.111,
    "store": 0.2,
    "splat": 0.0927,
    "near": 0.12,
    "gather": 0.35,
    "scatter": 0.35,
    "across": 0.5,
    "stall": 2.0,
    "trans": 0.12,
    "masked": 0.6,
    "spilled": 0.2,
    "core": 0.05,
    "wait": 0.02,
    "entry": 0.439,
    "step": 0.199,
    "awaited": 0.5,
    "again": 0.8,
    "branch": 0.597,
    "launch": 40.2,
    "call": 392.0,
}
WIDE_BITS = 512


def counts(**given: float) -> Counts:
    """So many of each kind, none of any other."""
    found = np.zeros(len(TERMS))
    for name, n in given.items():
        found[_PLACE[name]] = n
    return found


def of(found: Counts, name: str) -> Counts:
    """How many of one kind."""
    return np.asarray(found[..., _PLACE[name]])


def row(prices: Mapping[str, float]) -> Counts:
    """Prices in the order of `TERMS`."""
    return np.array([prices[name] for name in TERMS])


def prices_of(machine: Machine) -> Counts:
    """Nanoseconds of one of each kind."""
    return row(_WIDE if machine.vector_bits >= WIDE_BITS else _NARROW)
