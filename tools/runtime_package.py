# SPDX-License-Identifier: Apache-2.0
"""The artifact's loader as a package of its own: `python -m tools.runtime_package FOLDER`.

Writes the project `tcsym-runtime` there, from `packaging/runtime` and those modules of tcsym that
`tcsym.artifact.load` comes to: as the package `tcsym_runtime`, which does without tcsym.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "tcsym.artifact.load"
NAME = "tcsym_runtime"
_IMPORT = re.compile(r"^(\s*(?:from|import) )tcsym\b", re.M)
_FACE = '''"""Artifacts of tcsym, loaded and called: `tcsym_runtime.load(folder)` gives a kernel."""

from tcsym_runtime.artifact.load import Artifact, load
from tcsym_runtime.errors import TCError
from tcsym_runtime.process.threads import get_num_threads, set_num_threads

__version__ = "{version}"
__all__ = ["Artifact", "TCError", "get_num_threads", "load", "set_num_threads"]
'''


def modules() -> dict[str, Path]:
    """What the loader imports, and what that imports, wherever the imports stand."""
    found: dict[str, Path] = {}
    left = [BEGIN]
    while left:
        name = left.pop()
        path = None if name in found else _file(name)
        if path is not None:
            found[name] = path
            left += _imports(ast.parse(path.read_text()))
    return found


def _file(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split("."))
    files = [place.with_suffix(".py"), place / "__init__.py"]
    return next((p for p in files if p.is_file() and module != "tcsym"), None)


def _imports(node: ast.AST) -> Iterator[str]:
    """Modules of ours, and names in them, which may be modules; none for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for other in child.orelse:
                yield from _imports(ast.Module([other], []))
            continue
        if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("tcsym."):
            yield str(child.module)
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from _imports(child)


def write(folder: Path) -> None:
    """The project, ready to be built."""
    shutil.copytree(ROOT / "packaging" / "runtime", folder, dirs_exist_ok=True)
    shutil.copy(ROOT / "LICENSE", folder)
    package = folder / "src" / NAME
    for path in modules().values():
        to = package / path.relative_to(ROOT / "tcsym")
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(_IMPORT.sub(rf"\g<1>{NAME}", path.read_text()))
        for parent in to.relative_to(package).parents:
            (package / parent / "__init__.py").touch()
    (package / "__init__.py").write_text(_FACE.format(version=_version()))
    (package / "py.typed").touch()
    native = folder / "native"
    native.mkdir(exist_ok=True)
    for path in (ROOT / "tcsym" / "native").glob("*.[ch]"):
        text = path.read_text().replace('"tcsym.runtime._native', f'"{NAME}.runtime._native')
        (native / path.name).write_text(text.replace("../artifact/", ""))
    shutil.copy(ROOT / "tcsym" / "artifact" / "cuda_grids.h", native)
    (folder / "MANIFEST.in").write_text("graft native\ninclude LICENSE\n")


def _version() -> str:
    text = (ROOT / "tcsym" / "__init__.py").read_text()
    return str(re.findall(r'^__version__ = "(.*)"$', text, re.M)[0])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
