# SPDX-License-Identifier: Apache-2.0
"""LLVM, as llvmlite offers it: what makes code from a text, with types.

llvmlite has no annotations, so that whatever is untyped stays in this file. A module has a context
of its own: it shares nothing with what another thread works on. What llvmlite would keep for good
is freed, or used again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Self

from llvmlite import binding

from tcsym.process.system import is_macos, macos_fact, processors

PASSES = {
    "inline": "add_always_inliner_pass",
    "sroa": "add_sroa_pass",
    "instruction_combine": "add_instruction_combine_pass",
    "simplify_cfg": "add_simplify_cfg_pass",
}
LEAST_LLVMLITE = "0.45"  # that pyproject.toml admits: of LLVM 20
_MACOS_FEATURES = {"FEAT_DotProd": "dotprod", "FEAT_I8MM": "i8mm", "FEAT_BF16": "bf16"}
_LEVEL = 2
_MOST_RUNS = 32  # of a builder


def version() -> tuple[int, ...]:
    """LLVM's."""
    return tuple(binding.llvm_version_info)


def host() -> tuple[str, frozenset[str]]:
    """LLVM's name of this processor, and of the features it has."""
    features = {name for name, has in binding.get_host_cpu_features().items() if has}
    if is_macos():  # macOS: never run. LLVM does not ask there
        facts = {n: macos_fact(f"hw.optional.arm.{x}") for x, n in _MACOS_FEATURES.items()}
        features |= {name for name, fact in facts.items() if any(fact)}
    return binding.get_host_cpu_name(), frozenset(features)


def set_option(option: str) -> None:
    """Of LLVM's command line, for all of the process."""
    binding.set_option("tcsym", option)


@lru_cache(None)
def _initialise(is_native: bool) -> None:
    """Targets of other machines are loaded when they are asked for."""
    if is_native:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
    else:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()


class TargetMachine:
    """What code is made for: position-independent, of the small code model. For one thread.

    RuntimeError for a triple that LLVM does not know.
    """

    def __init__(self, triple: str, cpu: str, features: str = "") -> None:
        _initialise(triple.startswith(processors()))
        target = binding.Target.from_triple(triple)
        how = {"opt": _LEVEL, "reloc": "pic", "codemodel": "small"}
        self.machine: Any = target.create_target_machine(cpu, features, **how)
        self._builders: dict[bool, tuple[Any, int]] = {}  # and how many runs each had

    @property
    def triple(self) -> str:
        return str(self.machine.triple)

    @property
    def data_layout(self) -> str:
        return str(self.machine.target_data)

    def builder(self, vectorise: bool) -> Any:
        """Makes passes, and runs them: for one run more.

        With each one llvmlite keeps 1.5 kB for good, a list of what passes ask before they run. A
        run adds to that list, so none is used for ever.
        """
        builder, runs = self._builders.get(vectorise, (None, _MOST_RUNS))
        if runs == _MOST_RUNS:
            tuning = binding.create_pipeline_tuning_options(speed_level=_LEVEL)
            tuning.loop_vectorization = tuning.slp_vectorization = vectorise
            builder, runs = binding.create_pass_builder(self.machine, tuning), 0
        self._builders[vectorise] = builder, runs + 1
        return builder


_idle: defaultdict[tuple[str, str, str, int], list[TargetMachine]] = defaultdict(list)


@contextmanager
def target_machine(triple: str, cpu: str, features: str = "") -> Iterator[TargetMachine]:
    """One that no other thread has meanwhile."""
    idle = _idle[triple, cpu, features, _LEVEL]
    try:
        machine = idle.pop()
    except IndexError:
        machine = TargetMachine(triple, cpu, features)
    yield machine
    idle.append(machine)  # after an error it is not used again


class Module:
    """The verified module of a text. For one thread; use `with`, which ends it before its context:
    the garbage collector may not. RuntimeError for a mistake in the text.
    """

    def __init__(self, text: str) -> None:
        self._context: Any = binding.create_context()
        self.module: Any = binding.parse_assembly(text, self._context)
        try:
            self.module.verify()  # else a mistake of ours would abort the process
        except RuntimeError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees it."""
        self.module.close()
        self._context.close()

    def __str__(self) -> str:
        return str(self.module)

    def target(self, machine: TargetMachine) -> None:
        """From now on the module is one for `machine`."""
        self.module.triple = machine.triple
        self.module.data_layout = machine.data_layout

    def run(self, passes: Sequence[str], machine: TargetMachine) -> None:
        """These of `PASSES`, in order."""
        manager = binding.create_new_module_pass_manager()
        for name in passes:
            getattr(manager, PASSES[name])()
        self._run(manager, machine.builder(vectorise=False))

    def optimise(self, machine: TargetMachine, vectorise: bool) -> None:
        """LLVM's default passes of level 2."""
        builder = machine.builder(vectorise)
        self._run(builder.getModulePassManager(), builder)

    def _run(self, manager: Any, builder: Any) -> None:
        try:
            manager.run(self.module, builder)
        finally:
            _close(manager)

    def emitted(self, machine: TargetMachine, as_object: bool = True) -> bytes:
        """Object code, or assembly."""
        if as_object:
            return bytes(machine.machine.emit_object(self.module))
        return str(machine.machine.emit_assembly(self.module)).encode()


def _close(manager: Any) -> None:
    """Frees it. In classes of llvmlite up to 0.50 the base's `_dispose`, which is empty, comes
    first, so that closing frees nothing; the function that would is then called here."""
    dispose = getattr(binding.ffi.lib, "LLVMPY_DisposeNewModulePassManger", None)
    if dispose is None:  # of another version: what it frees is its own matter
        manager.close()
    else:
        dispose(manager)
        manager.detach()
