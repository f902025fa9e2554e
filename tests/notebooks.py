# SPDX-License-Identifier: Apache-2.0
"""Notebooks of docs/notebooks as programs: their cells run in order, and show what is kept.

    python -m tests.notebooks docs/notebooks/recurrent.ipynb   # by test_notebooks.py
    python -m tests.notebooks --update ...                     # keep what this run shows instead

A notebook is the same after a run that shows the same: texts agree as those of pages do, but for
times, and pictures of pixels are taken as they are while the code of all cells is that which drew
them (`made_from` in the notebook's metadata). A cell with the tag `varies` shows other text in
each run. Warnings, and whatever else a cell writes to its standard error, are faults.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

from tests.pages import ROOT, Wrong, agrees

FOLDER = ROOT / "docs" / "notebooks"
SECONDS = 120  # for one cell
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LANGUAGE = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebooks() -> list[Path]:
    """All of them."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> Any:
    """A notebook of nbformat."""
    return nbformat.read(path, as_version=4)


def run_notebook(path: Path, update: bool = False) -> str:
    """The notebook's text, with what this run shows if asked for. Raises Wrong."""
    kept = read(path)
    return text_of(joined(kept, _executed(kept, path.name), path.name, update))


def joined(kept: Any, made: Any, name: str, update: bool = False) -> Any:
    """`made` by a run, with the outputs of `kept` where these are the same. Raises Wrong for what
    is not, but to update it."""
    is_same_code = kept.metadata.get("tcsym", {}).get("made_from") == _digest(kept)
    if not update and not is_same_code:
        raise Wrong(f"{name}: its cells were changed since they ran: ./dev notebooks")
    for number, (old, new) in enumerate(zip(_cells(kept), _cells(made)), start=1):
        told = _difference(old, new)
        if told and not update:
            raise Wrong(f"{name}: cell {number}: {told}")
        if is_same_code and not told:
            new.outputs = old.outputs
    return made


def text_of(notebook: Any) -> str:
    """As it is kept: nothing of the machine or the run in it."""
    notebook.metadata = nbformat.from_dict({**_LANGUAGE, "tcsym": {"made_from": _digest(notebook)}})
    for number, cell in enumerate(_cells(notebook), start=1):
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
            output.pop("transient", None)
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"
    return str(nbformat.writes(notebook, version=4)) + "\n"


def _cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _digest(notebook: Any) -> str:
    """Of the code of all cells."""
    code = "\n\n".join(cell.source for cell in _cells(notebook))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def _executed(notebook: Any, name: str) -> Any:
    """A copy with the outputs of a run in the working directory."""
    import matplotlib.font_manager  # finds fonts, once, which a cell would tell of

    del matplotlib
    made = nbformat.from_dict(notebook)
    client = NotebookClient(
        made,
        timeout=SECONDS,
        kernel_name="python3",
        config=Config({"KernelManager": {"transport": "ipc"}}),
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": "."}},
    )
    try:
        client.execute(env={**os.environ, "TCSYM_PROGRESS": "0"})
    except CellExecutionError as error:
        raise Wrong(f"{name}: a cell fails:\n{_COLOUR.sub('', str(error))}") from error
    for number, cell in enumerate(_cells(made), start=1):
        for output in cell.outputs:
            if output.get("name") == "stderr":
                raise Wrong(f"{name}: cell {number} warns:\n{output.text}")
    return made


def _difference(old: Any, new: Any) -> str:
    """What a cell shows now that it did not; nothing if that is the same."""
    shown, made = [[*map(_texts, cell.outputs)] for cell in (old, new)]
    kinds, kinds_now = [[sorted(texts) for texts in outputs] for outputs in (shown, made)]
    if kinds != kinds_now:
        return f"it shows {kinds_now} now, not {kinds}"
    if "varies" in old.metadata.get("tags", ()):
        return ""
    for before, now in zip(shown, made):
        for kind in before:
            if not agrees(before[kind], now[kind]):
                return f"the notebook shows\n{before[kind]}\nand this is shown now\n{now[kind]}"
    return ""


def _texts(output: Any) -> dict[str, str]:
    """By kind: what it shows. Pixels are no text."""
    if output.output_type == "stream":
        return {output.name: output.text}
    return {kind: "" if kind.endswith("png") else str(x) for kind, x in output.data.items()}


def main(arguments: Sequence[str]) -> int:
    update = arguments[0] == "--update"
    path = Path(arguments[-1]).resolve()
    try:
        text = run_notebook(path, update)
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 1
    if update:
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
