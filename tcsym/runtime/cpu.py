"""The processor and its memory as a `Device`: code in pages, arenas, worker pool, result blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tcsym.errors import TargetError
from tcsym.process.config import CHECK_TWIN, VERIFY
from tcsym.process.system import require_runs_code
from tcsym.runtime.arrays import CPU_READS, empty, numpy_array, private_copy
from tcsym.runtime.native import HAS_ENTRIES, native
from tcsym.runtime.processor import known_processor
from tcsym.runtime.view import Library, View
from tcsym.target.host import runs_here
from tcsym.target.target import TWIN

if TYPE_CHECKING:
    from tcsym.ir.compiled import Compiled
    from tcsym.runtime.jit import LoadedKernel
    from tcsym.target.target import Target
    from tcsym.types import DType


class Cpu:
    """x86-64."""

    name = "CPU"
    reads = CPU_READS

    def require(self, target: Target) -> None:
        require_runs_code()
        if not runs_here(target, known_processor()):
            raise TargetError(
                f"target `{target.name}` needs processor features this machine lacks",
                hint='use "cpu", or "cpu:novector"',
            )

    def load(self, compiled: Compiled) -> LoadedKernel:
        from tcsym.runtime.jit import load

        return load(compiled)

    def result(self, library: Library, shape: tuple[int, ...], dtype: DType) -> View:
        return empty(library, shape, dtype)

    def temporary(self, shape: tuple[int, ...], dtype: DType) -> View:
        return empty("numpy", shape, dtype)

    def private_copy(self, view: View) -> View:
        return private_copy(view)

    def copy(self, to: View, source: View) -> None:
        np.copyto(numpy_array(to), numpy_array(source))


class Twin(Cpu):
    """The processor in place of a device."""

    name = "CPU, as the twin of a CUDA device"

    def require(self, target: Target) -> None:
        require_runs_code()
        if not HAS_ENTRIES:
            raise TargetError(
                f"target `{target.name}` needs the native part of the run time",
                hint="install tcsym where there is a C compiler; `tcsym doctor` says more",
            )

    def load(self, compiled: Compiled) -> LoadedKernel:
        native.simt_check(CHECK_TWIN.read() or VERIFY.read())
        return super().load(compiled)


class Nowhere(Cpu):
    """No device: its code can be made and told, but does not run."""

    name = "CUDA"

    def require(self, target: Target) -> None:
        raise TargetError(
            f"code for target `{target.name}` does not run here",
            hint=f'"{TWIN}" runs the kernels of a device on the host',
        )
