# SPDX-License-Identifier: Apache-2.0
"""LLVM IR text -> object code or assembly, through LLVM's passes. A device's object is PTX.

Code that is already vectors takes three passes: the emitter numbers values, moves invariant ones
out of loops, and tests loops at their end, so more passes find nothing to do. Scalar code takes O2,
with loop vectorisation as the target allows. Code for devices takes the three, too: what assembles
it optimises again, and needs more registers after O2. Two parts of LLVM are off for the process:
the machine scheduler, which hoists broadcasts out of register tiles and spills (recipes/cpu.md),
and loop strength reduction, which takes half of the code generation time and rebuilds our addresses
for the worse.
"""

from __future__ import annotations

import re
import threading
from contextlib import AbstractContextManager
from functools import lru_cache
from queue import SimpleQueue

from tcsym.errors import TargetError
from tcsym.process.threads import ShortTurns
from tcsym.target.cuda import host_half
from tcsym.target.llvm import (
    LEAST_LLVMLITE,
    Module,
    TargetMachine,
    set_option,
    target_machine,
    version,
)
from tcsym.target.target import Target

_LOCK = threading.RLock()
_SHORT = ("sroa", "instruction_combine", "simplify_cfg")
_DEVICE = ("inline", *_SHORT)
_VECTORS = "; vectors: explicit\n"
_SCALAR = "; vectors: none\n"


def pipeline_line(has_vectors: bool) -> str:
    """First line of the IR text; decides the pipeline."""
    return _VECTORS if has_vectors else _SCALAR


def device_line(triple: str) -> str:
    """First lines of the text of what a device runs, by the triple of its kind."""
    return f'{_SCALAR}target triple = "{triple}"\n'


def _is_device(ir_text: str) -> bool:
    return ir_text.startswith(f"{_SCALAR}target triple")


def object_code(ir_text: str, target: Target) -> bytes:
    """Relocatable object, or text that a device's driver loads."""
    if _is_device(ir_text):
        return _loadable(_assembly(ir_text, target))
    with _machine(ir_text, target) as machine, _optimised(ir_text, target, machine) as module:
        return module.emitted(machine)


class Assembler:
    """Object code of modules, made in a thread beside the emission of the next ones.

    LLVM leaves Python's lock alone, so that with a second core it costs no time. Use `with`.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._texts: list[str] = []
        self._objects: dict[int, bytes] = {}
        self._todo: SimpleQueue[int | None] = SimpleQueue()
        self._errors: list[BaseException] = []
        self._turns = ShortTurns()  # else each of some 20 calls of LLVM waits for Python's lock
        self._thread = threading.Thread(target=self._run, name="tcsym assembler", daemon=True)

    def __enter__(self) -> Assembler:
        self._turns.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._todo.put(None)
        self._thread.join()
        self._turns.__exit__()

    def add(self, ir_text: str) -> None:
        self._texts.append(ir_text)
        self._todo.put(len(self._texts) - 1)

    def objects(self) -> list[bytes]:
        """Code of all modules in the order they came; this thread takes its share of the rest."""
        self._todo.put(None)
        self._run()
        self._thread.join()
        if self._errors:
            raise self._errors[0]
        return [self._objects[k] for k in range(len(self._texts))]

    def _run(self) -> None:
        try:
            while (k := self._todo.get()) is not None:
                self._objects[k] = object_code(self._texts[k], self._target)
        except BaseException as error:
            self._errors.append(error)
        self._todo.put(None)  # for the other thread


def assembly(ir_text: str, target: Target) -> str:
    """What `object_code` makes, as text."""
    made = _assembly(ir_text, target)
    return (_loadable(made) if _is_device(ir_text) else made).decode()


def _assembly(ir_text: str, target: Target) -> bytes:
    with _machine(ir_text, target) as machine, _optimised(ir_text, target, machine) as module:
        return module.emitted(machine, as_object=False)


def _loadable(ptx: bytes) -> bytes:
    """LLVM writes an instruction that it does not know as a call of a function: one of nowhere."""
    unknown = re.search(rb"^\s*\.extern \.func [^;]*?([\w.$]+)\s*\(", ptx, re.MULTILINE)
    if unknown is None:
        return ptx
    known = ".".join(map(str, version()))
    raise TargetError(
        f"LLVM {known} does not know `{unknown[1].decode()}`, which this device's code needs",
        hint=f"code for devices needs llvmlite >= {LEAST_LLVMLITE}",
    )


def optimised_ir(ir_text: str, target: Target) -> str:
    """The IR after the passes, for reading."""
    with _machine(ir_text, target) as machine, _optimised(ir_text, target, machine) as module:
        return str(module)


@lru_cache(None)
def _set_options() -> None:
    for option in ("-enable-misched=false", "-disable-lsr"):
        set_option(option)


def _machine(ir_text: str, target: Target) -> AbstractContextManager[TargetMachine]:
    with _LOCK:
        _set_options()
    if target.kind == "cuda" and not _is_device(ir_text):
        target = host_half(target)
    return target_machine(target.triple, target.cpu, ",".join("+" + f for f in target.features))


def _optimised(ir_text: str, target: Target, machine: TargetMachine) -> Module:
    module = Module(ir_text)
    module.target(machine)
    if _is_device(ir_text):
        module.run(_DEVICE, machine)
    elif ir_text.startswith(_SCALAR):
        module.optimise(machine, vectorise=target.machine.vector_bits > 0)
    else:
        module.run(_SHORT, machine)
    return module
