# SPDX-License-Identifier: Apache-2.0
"""The kinds of instructions that are counted, and what one of each takes.

A kind is counted in what the processor does at a time: plain instructions in parts of 256 bits, so
that one of 512 is two; what goes lane by lane in lanes. Prices are nanoseconds: of a Sapphire
Rapids, such that choosing by them loses least on 413 programs (`./dev choices --prices`), and of a
Zen 4 at 3.7 GHz, fitted to times of 150. They rank codes of one program; of memory only what is
waited for is in them, at prices that both processors share.
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

WIDE_BITS = 512
_COLUMNS = (("core", True), ("core", False), ("zen", True), ("zen", False))  # whether so wide
_PRICES = {
    "fma": (0.0557, 0.181, 0.0868, 0.0611),
    "other": (0.121, 0.109, 0.04, 0.04),
    "func": (0.159, 0.194, 0.117, 0.207),
    "load": (0.192, 0.148, 0.0856, 0.111),
    "store": (0.399, 0.326, 0.32, 0.2),
    "splat": (0.0269, 0.0327, 0.04, 0.0927),
    "near": (0.419, 0.214, 0.12, 0.12),
    "gather": (0.166, 0.337, 0.341, 0.35),
    "scatter": (0.545, 0.228, 0.35, 0.35),
    "across": (1.9, 1.3, 0.65, 0.5),
    "stall": (1.34, 1.79, 1.6, 2.0),
    "trans": (0.0664, 0.089, 0.05, 0.12),
    "masked": (0.3, 0.992, 0.3, 0.6),
    "spilled": (0.0999, 0.333, 0.1, 0.2),
    "core": (0.0633, 0.017, 0.05, 0.05),
    "wait": (0.024, 0.00996, 0.02, 0.02),
    "entry": (0.296, 0.29, 0.3, 0.439),
    "step": (0.411, 0.587, 0.1, 0.199),
    "awaited": (0.5, 0.5, 0.5, 0.5),
    "again": (0.8, 0.8, 0.8, 0.8),
    "branch": (0.203, 0.69, 0.15, 0.597),
    "launch": (32.1, 52.8, 89.1, 40.2),
    "call": (396.0, 354.0, 322.0, 392.0),
}


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
    column = _COLUMNS.index((machine.family, machine.vector_bits >= WIDE_BITS))
    return row({name: of_machines[column] for name, of_machines in _PRICES.items()})
