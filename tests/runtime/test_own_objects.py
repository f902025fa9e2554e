"""Shipped object code of the run time's own modules: of the texts that lie beside it, and used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tcsym import llvm
from tcsym.runtime import assemble as assemble_module
from tcsym.runtime import own_objects
from tcsym.runtime.assemble import assemble
from tcsym.runtime.own_objects import NAMES, own_object, shipped

MADE_BY = (22, 1, 0)  # the LLVM that made them

ASSEMBLED = """
import sys
from tcsym.runtime.assemble import assemble
from tcsym.runtime.own_objects import NAMES, _read
for name in NAMES:
    sys.stdout.buffer.write(assemble(_read(f"{name}.ll").decode()))
"""


def test_all_texts_have_shipped_code() -> None:
    """If not: `python -m tcsym.runtime.own_objects`."""
    folder = Path(own_objects.__file__).parent
    assert {path.stem for path in folder.glob("*.ll")} == set(NAMES)
    assert all(shipped(name) for name in NAMES)


@pytest.mark.skipif(llvm.version() != MADE_BY, reason="another LLVM, other code")
def test_shipped_code_is_that_of_the_texts() -> None:
    """In a fresh process: compiling a kernel sets options of LLVM for all that follows."""
    done = subprocess.run([sys.executable, "-c", ASSEMBLED], capture_output=True, check=True)
    assert done.stdout == b"".join(shipped(name) or b"" for name in NAMES)


def test_nothing_is_assembled_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble_module, "assemble", None)
    assert all(own_object(name) for name in NAMES)


def test_code_of_another_text_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a cache of its own: what LLVM makes depends on options that kernels set."""
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path / "cache"))
    folder = Path(own_objects.__file__).parent
    for name in ("direct.ll", "direct.o"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    monkeypatch.setattr(own_objects, "_path", lambda name: str(tmp_path / name))
    assert shipped("direct")
    changed = (tmp_path / "direct.ll").read_text() + "\ndefine i32 @added() {\n  ret i32 1\n}\n"
    (tmp_path / "direct.ll").write_text(changed)
    assert shipped("direct") is None
    assert own_object("direct") == assemble(changed)
    (tmp_path / "direct.o").unlink()
    assert own_object("direct") == assemble(changed)
