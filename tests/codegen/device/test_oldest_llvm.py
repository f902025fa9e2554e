# SPDX-License-Identifier: Apache-2.0
"""PTX that the oldest llvmlite makes which pyproject.toml admits: what it does not know, it writes
as calls of nothing, or leaves out, and only NVIDIA's tools would tell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tcsym.codegen.device.ptxas import assembled
from tcsym.target.llvm import LEAST_LLVMLITE
from tests.codegen.device.test_ptx import KERNELS, PRODUCTS, SCATTERED, needs_ptxas

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ("matmul", "softmax", "elman_rnn", "viterbi", "embedding_bag")
NAMES = (*KERNELS, *LIBRARY, *PRODUCTS, *SCATTERED)
# Runs with that llvmlite: PTX by name, as JSON.
MAKE = """
import json, sys
from tcsym.codegen import emit, object_code
from tcsym.target.llvm import version
from tcsym.target.names import resolve_target
from tests.codegen.device.test_ptx import CASES, whole_kernel
target, found = resolve_target("cuda:sm_90a"), {}
for name in json.loads(sys.argv[1]):
    kernel = CASES[name].kernel if name in CASES else whole_kernel(name, "sm_90a")
    found[name] = object_code(emit(kernel, target, 1).device_text, target).decode()
print(json.dumps([version(), found]))
"""


def test_the_oldest_is_named_where_code_is_refused() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"llvmlite>={LEAST_LLVMLITE}" in project["dependencies"]


def oldest() -> Path:
    """A folder with it, kept in build/."""
    folder = ROOT / "build" / f"llvmlite-{LEAST_LLVMLITE}"
    if not folder.exists():
        wanted = ["--no-deps", "--only-binary=:all:", f"llvmlite=={LEAST_LLVMLITE}.0"]
        command = [sys.executable, "-m", "pip", "install", "--target", str(folder), *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "(from versions: none)" in done.stderr:
            pytest.skip("the oldest llvmlite cannot be had: no package index is reached")
        assert not done.returncode, done.stderr
    return folder


@pytest.fixture(scope="module")
def made() -> Mapping[str, str]:
    """PTX by the name of its kernel."""
    path = os.pathsep.join(map(str, (oldest(), ROOT)))
    command = [sys.executable, "-c", MAKE, json.dumps(NAMES)]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    version, found = json.loads(done.stdout)
    assert version[0] == 20
    return found


@needs_ptxas
@pytest.mark.slow
def test_devices_take_what_it_writes(made: Mapping[str, str]) -> None:
    """Each function says what it is launched with, and has the instructions it is made for."""
    for name, ptx in made.items():
        used = assembled(ptx, "sm_90a").used
        assert {(x.spills, x.stack) for x in used.values()} == {(0, 0)}, name
        n = len(re.findall(r"\.entry ", ptx))
        assert n == len(used) == ptx.count(".maxntid ") == ptx.count(".minnctapersm "), name
        if name in KERNELS:
            found = set(re.findall(r"^\s*(?:@!?%p\d+ )?([a-z][\w.]+)", ptx, re.MULTILINE))
            found = {re.sub(r"^((?:ld|st)\..*)\.[fsu](\d+)$", r"\1.b\2", x) for x in found}
            assert found.issuperset(KERNELS[name][1]), (name, sorted(found))
