"""LLVM is imported without the modules that llvmlite loads to find its library."""

from __future__ import annotations

import subprocess
import sys

LIGHT = """
import sys
from tcsym.llvm import llvm
assert llvm.llvm_version_info[0] > 10
for name in ("importlib.resources", "zipfile", "tempfile", "urllib.parse"):
    assert name not in sys.modules, name
"""

REAL_BEHIND = """
import importlib, sys
import tcsym.llvm
kept = importlib.resources
assert kept.files("tcsym").joinpath("__init__.py").is_file()
assert kept.read_text("tcsym", "py.typed") is not None
import importlib.resources
assert importlib.resources is sys.modules["importlib.resources"] is not kept
assert importlib.resources.files("tcsym").is_dir()
"""

AS_IT_WAS = """
import importlib.resources, sys
real = importlib.resources
from tcsym.llvm import llvm
assert importlib.resources is real is sys.modules["importlib.resources"]
assert llvm.get_host_cpu_name()
"""


def run(text: str) -> None:
    subprocess.run([sys.executable, "-c", text], check=True)


def test_nothing_heavy_is_loaded() -> None:
    run(LIGHT)


def test_resources_work_afterwards() -> None:
    run(REAL_BEHIND)


def test_resources_imported_before_stay() -> None:
    run(AS_IT_WAS)
