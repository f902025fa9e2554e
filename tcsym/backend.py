# SPDX-License-Identifier: Apache-2.0
"""Kind of target -> `Backend`: how naive loops become code for it. `BACKENDS` has a line for each.

Everything before naive loops, and everything after loaded code, is the same for all kinds. What
loads and runs the code is a `Device` (`runtime.device`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, Self

from tcsym.target.target import Target

if TYPE_CHECKING:
    from tcsym.index.expr import Index
    from tcsym.ir.compiled import Fault
    from tcsym.ir.loops import Kernel
    from tcsym.options import Options
    from tcsym.schedule.map_cpu import Mapped

COSTS = "costs"  # of each plan at given sizes, told by `plan_costs`


class Modules(Protocol):
    """Code of one kernel, made module by module as calls need it. Not for two threads at once.

    faults: of the modules that are written; later ones come behind.
    """

    shared_bytes: Index
    private_bytes: Index

    @property
    def faults(self) -> tuple[Fault, ...]: ...

    def needed(self, sizes: Mapping[str, int]) -> tuple[str, ...]:
        """The modules without which a call of these sizes might miss a task."""

    def leaves_out(self, sizes: Mapping[str, int]) -> bool:
        """True if a call of these sizes is left to another kernel."""

    def missing(self) -> tuple[str, ...]:
        """The modules that are not made yet."""

    def write(self, names: Iterable[str], ready: Callable[[str], None]) -> list[str]:
        """Gives the texts of these modules and of what they call to `ready`; their names."""

    def add(self, names: Iterable[str], objects: Iterable[bytes]) -> None:
        """The code of these modules."""

    def archive(self) -> bytes:
        """What is made of the host's, in the order in which modules may be linked."""

    @property
    def device_code(self) -> bytes:
        """What a device loads, if that is made."""

    @property
    def device_functions(self) -> tuple[str, ...]:
        """Those that the host half launches by number."""


class Assembler(Protocol):
    """Makes code of texts beside whoever writes them. Use `with`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def add(self, ir_text: str) -> None: ...

    def objects(self) -> list[bytes]:
        """Code of all texts in the order they came."""


class Backend(Protocol):
    """What a kind of target needs. Each method loads what it needs when it is called.

    stages: those behind `mapped` that `explain` tells.
    """

    stages: tuple[str, ...]

    def map(self, kernel: Kernel, target: Target, options: Options, whole: bool) -> Mapped:
        """A naive kernel -> one that is fast there. whole: with what few sizes need."""

    def plain(self, kernel: Kernel, target: Target) -> Mapped:
        """As nearly as there can be a naive kernel as it is, with memory for its temporaries: no
        numbers that the program does not compute, and no copies."""

    def begin(self, kernel: Kernel, target: Target, min_work_per_thread: int) -> Modules:
        """The code of a mapped kernel, of which nothing but the main module is written."""

    def assembler(self, target: Target) -> Assembler: ...

    def assemble(self, text: str, target: Target) -> bytes:
        """The code of one text, made in this thread."""

    def explain(self, stage: str, kernel: Kernel, target: Target, min_work_per_thread: int) -> str:
        """The text of one of `stages`, of a mapped kernel."""


class Cpu:
    """Processors, by way of LLVM."""

    stages: tuple[str, ...] = (COSTS, "llvm", "asm")

    def map(self, kernel: Kernel, target: Target, options: Options, whole: bool) -> Mapped:
        from tcsym.schedule.map_cpu import map_cpu

        return map_cpu(kernel, target.machine, options, whole)

    def plain(self, kernel: Kernel, target: Target) -> Mapped:
        from tcsym.schedule.map_cpu import Mapped
        from tcsym.schedule.storage.place_allocations import place_allocations

        return Mapped(place_allocations(kernel), ())

    def begin(self, kernel: Kernel, target: Target, min_work_per_thread: int) -> Modules:
        from tcsym.codegen.parts import PartialCode

        return PartialCode(kernel, target, min_work_per_thread)

    def assembler(self, target: Target) -> Assembler:
        from tcsym.codegen.object_code import Assembler

        return Assembler(target)

    def assemble(self, text: str, target: Target) -> bytes:
        from tcsym.codegen.object_code import object_code

        return object_code(text, target)

    def explain(self, stage: str, kernel: Kernel, target: Target, min_work_per_thread: int) -> str:
        from tcsym.codegen.emit import emit

        text = emit(kernel, target, min_work_per_thread).ir_text
        if stage == "llvm":
            return text
        from tcsym.codegen.object_code import assembly

        return assembly(text, target)


class Device(Cpu):
    """The kernels of a device, launched by a half on the host."""

    def plain(self, kernel: Kernel, target: Target) -> Mapped:
        from tcsym.schedule.map_gpu import map_gpu

        return map_gpu(kernel, target.machine)

    def map(self, kernel: Kernel, target: Target, options: Options, whole: bool) -> Mapped:
        from msgspec.structs import replace

        from tcsym.schedule.device.narrow import narrowed
        from tcsym.schedule.map_gpu import map_gpu
        from tcsym.types import DType

        machine = target.machine
        if options.tf32:
            machine = replace(machine, factors=(*machine.factors, DType.FLOAT32))
        mapped = map_gpu(kernel, machine, options)
        return mapped if whole else replace(mapped, kernel=narrowed(mapped.kernel))


class Twin(Device):
    """All of them on the host (tcsym/native/simt.c)."""

    def begin(self, kernel: Kernel, target: Target, min_work_per_thread: int) -> Modules:
        from tcsym.codegen.device.roll import roll

        return super().begin(roll(kernel), target, min_work_per_thread)

    def explain(self, stage: str, kernel: Kernel, target: Target, min_work_per_thread: int) -> str:
        from tcsym.codegen.device.roll import roll

        return super().explain(stage, roll(kernel), target, min_work_per_thread)


DEVICE_STAGES = ("cuda", "ptx", "sass")


class Cuda(Device):
    """NVIDIA's devices, by way of LLVM: the device's half is PTX."""

    stages: tuple[str, ...] = ("llvm", "asm", *DEVICE_STAGES)

    def explain(self, stage: str, kernel: Kernel, target: Target, min_work_per_thread: int) -> str:
        from tcsym.codegen.device.explain import explain_device

        return explain_device(stage, kernel, target, min_work_per_thread)


BACKENDS: dict[str, Backend] = {
    "cpu": Cpu(),
    "twin": Twin(),
    "cuda": Cuda(),
}
