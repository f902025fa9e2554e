"""LLVM IR text -> object code or assembly, through LLVM's passes. The only user of llvmlite here.

Code that is already vectors takes three passes: the emitter numbers values, moves invariant ones
out of loops, and tests loops at their end, so more passes find nothing to do. Scalar code takes O2,
with loop vectorisation as the target allows. Two parts of LLVM are off for the process: the machine
scheduler, which hoists broadcasts out of register tiles and spills (recipes/cpu.md), and loop
strength reduction, which takes half of the code generation time and rebuilds our addresses for the
worse.
"""

from __future__ import annotations

import threading
from ctypes import string_at
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

from tcsym.archive import pack
from tcsym.llvm import llvm
from tcsym.target import Target
from tcsym.threads import ShortTurns

_LOCK = threading.RLock()
_SHORT = ("sroa", "instruction_combine", "simplify_cfg")
_VECTORS = "; vectors: explicit\n"
_SCALAR = "; vectors: none\n"


def pipeline_line(has_vectors: bool) -> str:
    """First line of the IR text; decides the pipeline."""
    return _VECTORS if has_vectors else _SCALAR


def object_code(ir_text: str, target: Target) -> bytes:
    """Relocatable object that defines `tcsym_kernel`."""
    machine = _machine(target)
    # A context of its own, because another thread may be compiling.
    return _emitted(_optimised(ir_text, target, machine, llvm.create_context()), machine)


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

    def archive(self) -> bytes:
        """Code of all modules in the order they came; this thread takes its share of the rest."""
        self._todo.put(None)
        self._run()
        self._thread.join()
        if self._errors:
            raise self._errors[0]
        return pack([self._objects[k] for k in range(len(self._texts))])

    def _run(self) -> None:
        try:
            while (k := self._todo.get()) is not None:
                self._objects[k] = object_code(self._texts[k], self._target)
        except BaseException as error:
            self._errors.append(error)
        self._todo.put(None)  # for the other thread


def assembly(ir_text: str, target: Target) -> str:
    machine = _machine(target)
    return str(machine.emit_assembly(_optimised(ir_text, target, machine, llvm.create_context())))


def optimised_ir(ir_text: str, target: Target) -> str:
    """The IR after the passes, for reading."""
    return str(_optimised(ir_text, target, _machine(target), llvm.create_context()))


@lru_cache(None)
def _initialise() -> None:
    for option in ("-enable-misched=false", "-disable-lsr"):
        llvm.set_option("tcsym", option)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _machine(target: Target) -> Any:
    with _LOCK:
        _initialise()
    features = ",".join("+" + f for f in target.features)
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=target.cpu, features=features, opt=2, reloc="pic", codemodel="small"
    )


def _emitted(module: Any, machine: Any) -> bytes:
    """As `machine.emit_object`, without llvmlite's lock around all of LLVM.

    It need not be held: nothing that the call works on is known to another thread.
    """
    ffi = llvm.ffi
    emit = ffi.lib.LLVMPY_TargetMachineEmitToMemory
    with ffi.OutputString() as error:
        buffer = getattr(emit, "_cfn", emit)(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
    try:
        return string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _optimised(ir_text: str, target: Target, machine: Any, context: Any) -> Any:
    module = llvm.parse_assembly(ir_text, context=context)
    module.verify()  # else a mistake of ours would abort the process
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    if ir_text.startswith(_SCALAR):
        tuning = llvm.create_pipeline_tuning_options(speed_level=2)
        tuning.loop_vectorization = tuning.slp_vectorization = target.vector_bits > 0
        passes = llvm.create_pass_builder(machine, tuning)
        manager = passes.getModulePassManager()
    else:
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
        manager = llvm.create_new_module_pass_manager()
        for name in _SHORT:
            getattr(manager, f"add_{name}_pass")()
    manager.run(module, passes)
    return module
