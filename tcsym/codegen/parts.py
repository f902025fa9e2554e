# SPDX-License-Identifier: Apache-2.0
"""Kernel -> machine code, module by module: first what a call needs, the rest later.

A kernel has a parallel loop for each of its versions, for few rows, small sums and so on; a call
launches one or two of them. Which ones follows from its sizes (`launched`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tcsym.codegen.emit import DEVICE, begin
from tcsym.index.expr import FALSE
from tcsym.index.values import holds
from tcsym.ir.archive import pack
from tcsym.ir.compiled import SYMBOL, Fault
from tcsym.ir.loops import Kernel
from tcsym.target.target import Target


class PartialCode:
    """The code of a kernel as far as it is made. Not for two threads at once."""

    def __init__(self, kernel: Kernel, target: Target, min_work_per_thread: int) -> None:
        self._emission = begin(kernel, target, min_work_per_thread)
        self._objects: dict[str, bytes] = {}
        self.shared_bytes = self._emission.shared_bytes
        self.private_bytes = self._emission.private_bytes

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Of what is made so far; later ones come behind."""
        return self._emission.faults

    def needed(self, sizes: Mapping[str, int]) -> tuple[str, ...]:
        """The modules without which a call of these sizes might miss a task."""
        if self._emission.device is not None:
            return self._emission.names
        from tcsym.ir.launched import launched  # for large kernels only

        emission = self._emission
        host, known = emission.host, set(emission.names)
        tasks = [host.region(loop).name for loop in launched(emission.kernel, sizes)]
        return (SYMBOL, *(name for name in tasks if name in known))

    def leaves_out(self, sizes: Mapping[str, int]) -> bool:
        """True if a call of these sizes is left to another kernel."""
        kernel = self._emission.kernel
        if kernel.left_out == FALSE:
            return False
        return holds(kernel.left_out, sizes)

    def missing(self) -> tuple[str, ...]:
        """The modules that are not made yet."""
        return tuple([name for name in self._emission.names if name not in self._objects])

    def write(self, names: Iterable[str], ready: Callable[[str], None]) -> list[str]:
        """Gives the text of these modules and of what they call to `ready`; their names.

        The main module, which is written already, comes first: LLVM has work at once. Others may
        add code meanwhile, also of these: what was given is what is named.
        """
        todo = sorted(names, key=lambda name: name != SYMBOL)[::-1]
        known, written = set(self._objects), list[str]()
        while todo:
            name = todo.pop()
            if name not in known:
                known.add(name)
                written.append(name)
                ready(self._emission.text(name))
                todo += self._emission.calls(name)
        return written

    def add(self, names: Iterable[str], objects: Iterable[bytes]) -> None:
        """The code of these modules."""
        self._objects |= dict(zip(names, objects, strict=True))

    def archive(self) -> bytes:
        """What is made of the host's, in the order in which modules may be linked."""
        names = [n for n in self._emission.names if n != DEVICE]
        return pack([self._objects[n] for n in names if n in self._objects])

    @property
    def device_code(self) -> bytes:
        """What a device loads, if that is made."""
        return self._objects.get(DEVICE, b"")

    @property
    def device_functions(self) -> tuple[str, ...]:
        """Those that the host half launches by number."""
        device = self._emission.device
        return () if device is None else tuple(device.parts)
