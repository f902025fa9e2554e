# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutants.proofs`: a fixed list of programs through all proofs and verifiers.

Compiled for all sizes, for several targets and by both schedulers, the loop IR verified after each
pass.
Nothing runs: what is found here is found by the compiler itself.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator

from tcsym.compiler import Lowering, analyse
from tcsym.frontend.program import Program
from tcsym.ir.compiled import Layout
from tcsym.library import names, source
from tcsym.options import Options
from tcsym.target.names import resolve_target

WAYS: tuple[tuple[str, Options], ...] = (
    ("cpu:avx512", Options()),
    ("cpu:avx2", Options(scheduler="isl")),
    ("cpu:novector", Options(fusion="min")),
    ("cpu:avx2", Options()),
)


def main() -> int:
    os.environ["TCSYM_VERIFY"] = "1"
    for k, program in enumerate(_programs()):
        for target, options in (WAYS[0], WAYS[1 + k % (len(WAYS) - 1)]):
            try:
                _compile(program, target, options)
            except Exception:
                print(f"==== {program.name} for {target}, {options}")
                print(traceback.format_exc(limit=-3), flush=True)
                return 1
    return 0


def _compile(program: Program, target: str, options: Options) -> None:
    """As far as the text of LLVM, all arrays dense. No schedule is given up that is proved."""
    n_arguments = len(program.inputs) + len(program.outputs)
    dense: tuple[Layout, ...] = tuple("dense" for _ in range(n_arguments))
    stages = Lowering(program, resolve_target(target), options, {}, dense, (), {})
    scheduled = stages.scheduled()
    given_up = [x for x in scheduled.notes if "not proved" in x]
    assert not given_up, given_up[0]
    kernel = stages.mapped(scheduled, whole=True).kernel
    stages.backend.explain("llvm", kernel, stages.target, options.min_work_per_thread)


def _programs() -> Iterator[Program]:
    for name in names():
        yield from analyse(source(name)).values()


if __name__ == "__main__":
    sys.exit(main())
