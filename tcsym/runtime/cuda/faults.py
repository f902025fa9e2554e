# SPDX-License-Identifier: Apache-2.0
"""Words in which kernels on a device note the checks that failed -> errors, raised by later calls.

A kernel has returned to its caller when it runs. What it finds (a position outside of a gather's
array) it notes in a word of pinned memory of the host, and the next call of any kernel on that
device raises it; so do `tcsym.synchronize`, and with TCSYM_SYNC=1 the call itself. What nobody
asked for before the process ends is logged then.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable

import numpy as np

from tcsym.errors import TCError
from tcsym.target.devices import driver

MOST_KERNELS = 1 << 16  # on one device, in one process
ErrorOf = Callable[[int], TCError]  # of 1 + the index of a fault
LATER = "an earlier call met this on the device; with TCSYM_SYNC=1 that call raises it"


class FaultWords:
    """Of the device whose context is current. They are given to no second kernel."""

    def __init__(self) -> None:
        drv = driver()
        flags = drv.host_alloc_flags.DEVICEMAP | drv.host_alloc_flags.PORTABLE
        self._words = drv.pagelocked_zeros(MOST_KERNELS, np.uint32, mem_flags=flags)
        self._errors: list[ErrorOf] = []
        self._count = np.zeros(1, np.int64)  # of words in use
        self._lock = threading.Lock()
        atexit.register(self._log_rest)

    def take(self, error_of: ErrorOf) -> int:
        """The place of a word for a kernel."""
        with self._lock:
            place = len(self._errors)
            if place == MOST_KERNELS:
                raise MemoryError(f"more than {MOST_KERNELS} kernels on one device")
            self._errors.append(error_of)
            self._count[0] = place + 1
            return place

    def addresses(self, place: int) -> tuple[int, int, int]:
        """Of a word, of all words, of how many are in use. Devices have the host's addresses."""
        first = int(self._words.ctypes.data)
        return first + place * self._words.itemsize, first, int(self._count.ctypes.data)

    def found(self, place: int) -> int:
        """What a kernel noted, which is forgotten: 0, or 1 + the index of a fault."""
        with self._lock:
            fault = int(self._words[place])
            self._words[place] = 0
        return fault

    def raise_found(self) -> None:
        """The first error that is noted, of any kernel; the others stay noted."""
        n = len(self._errors)
        if not self._words[:n].any():
            return
        for place in np.flatnonzero(self._words[:n]).tolist():
            fault = self.found(place)
            if fault:  # no other thread was quicker
                error = self._errors[place](fault)
                error.hint = f"{error.hint}; {LATER}" if error.hint else LATER
                raise error

    def _log_rest(self) -> None:
        """What no later call was there to raise."""
        try:
            self.raise_found()
        except TCError as error:
            logging.getLogger("tcsym.cuda").error(str(error))
