# SPDX-License-Identifier: Apache-2.0
"""`lookup`: what a program without tuned options gets, and what asking costs in imports."""

from __future__ import annotations

import subprocess
import sys

from tcsym.compiler import analyse
from tcsym.options import Options
from tcsym.sizes.region import Region
from tcsym.target.names import resolve_target
from tcsym.tuning import lookup

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
RENAMED = "def f(float(X,Y) P, float(Y,Z) Q) -> (R) { R(x,z) +=! P(x,y) * Q(y,z) }"


def test_a_program_never_tuned_gets_one_analytic_region() -> None:
    (program,) = analyse(MM).values()
    found = lookup(program.canonical, resolve_target("cpu:novector"), program.sizes)
    assert found == (Region(Options()),)


def test_programs_equal_up_to_names_share_a_hash() -> None:
    a, b = (next(iter(analyse(text).values())).canonical for text in (MM, RENAMED))
    assert a == b
    assert len(a) == 64


def test_asking_imports_neither_isl_nor_llvm_nor_a_search() -> None:
    code = (
        "import sys; from tcsym.tuning import lookup; from tests.targets import target_of\n"
        "lookup('0' * 64, target_of('novector'), ('N',))\n"
        "heavy = {'islpy', 'tcsym.target.llvm', 'optuna', 'numpy', 'rich'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
