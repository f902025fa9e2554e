# SPDX-License-Identifier: Apache-2.0
"""What type checkers tell a user: kernels and arrays have types, what is misspelt is an error."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Behind `#` is what must be said of the line, by both: a type, or that it is an error.
PROGRAM = '''\
import numpy as np

import tcsym

TEXT = """def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"""
module = tcsym.define(TEXT, sizes={"K": tcsym.Dim(1, 64)})
A, B = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
reveal_type(module)  # Module
reveal_type(module.mm)  # Kernel
reveal_type(module["mm"])  # Kernel
reveal_type(module(A, B))  # ndarray
reveal_type(module.mm(A, B, threads=1))  # ndarray
reveal_type(module.mm.reference(A=A, B=B))  # Any
reveal_type(module.tune([{"M": 3, "K": 4, "N": 5}], candidates=3))  # TuningReport
reveal_type(module.mm.grad(wrt="A"))  # Kernel
reveal_type(module.explain("ptx"))  # Explanation
reveal_type(tcsym.library.softmax)  # Kernel
reveal_type(tcsym.library.load("softmax", strategy="symbolic"))  # Kernel
reveal_type(tcsym.einsum("mk,kn->mn", A, B))  # ndarray
tcsym.nosuch  # error
tcsym.define(TEXT, strategi="auto")  # error
tcsym.library.load("softmax", sises={})  # error
module.tune(budgt="3s")  # error
module.mm.tune(search="fast")  # error
module.mm.grad(with_respect_to="A")  # error
tcsym.Options(unrol=4)  # error
tcsym.Dim(multiple=4)  # error
'''
EXPECTED = {
    line: said
    for line, text in enumerate(PROGRAM.splitlines(), 1)
    for said in re.findall(r"  # (\w+)$", text)
}


def mypy(program: Path) -> dict[int, str]:
    """What is said of lines, of a type its name."""
    command = [sys.executable, "-m", "mypy", "--hide-error-context", "--no-pretty", str(program)]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True)
    found = re.findall(r":(\d+): (note|error): (.*)", done.stdout)
    types = {int(n): text for n, kind, text in found if "Revealed type is" in text}
    said = {n: re.findall(r'"(?:[\w.]+\.)?(\w+)', text)[0] for n, text in types.items()}
    return said | {int(n): kind for n, kind, _ in found if kind == "error"}


def pyright(program: Path) -> dict[int, str]:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run([*command, str(program)], capture_output=True, text=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    said = {}
    for told in found:
        line = told["range"]["start"]["line"] + 1
        revealed = re.search(r'Type of ".*" is "(?:type\[)?(?:def )?(\w+)', told["message"], re.S)
        said[line] = revealed[1] if revealed else told["severity"]
    return said


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_what_a_type_checker_tells_a_user(checker: object, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert callable(checker)
    assert checker(program) == EXPECTED
