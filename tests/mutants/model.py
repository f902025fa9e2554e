# SPDX-License-Identifier: Apache-2.0
"""A planted bug as a patch against a mechanism: a small text replaced in one named function.

Functions are found by name in the whole package, so that a mutant survives moved lines and files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]


class Mutant(Struct, frozen=True):
    """`old` is found once in `function`, and in no other function of that name.

    `mechanism`: what no longer holds, as one would report the bug. `function`: its name, with that
    of its class if it has one (`Variants.wanted`), or the name of a module's constant.
    """

    name: str
    mechanism: str
    function: str
    old: str
    new: str


class Place(Struct, frozen=True):
    """Where a mutant changes the package: a file below the root, and its text afterwards."""

    path: str
    text: str


class DoesNotApply(Exception):
    """The function or the text of a mutant is not there, or there more than once."""


def place_of(mutant: Mutant, root: Path = ROOT) -> Place:
    """The file that the mutant changes, changed. Raises DoesNotApply."""
    path, text, at = spot_of(mutant, root)
    return Place(path, text[:at] + mutant.new + text[at + len(mutant.old) :])


def spot_of(mutant: Mutant, root: Path = ROOT) -> tuple[str, str, int]:
    """The file below the root, its text, and where in it the mutant's is. Raises DoesNotApply."""
    found = []
    for path in _sources(root):
        text = _text(path)
        if mutant.old in text:
            for start, end in _spans(text, mutant.function):
                at = text.find(mutant.old, start, end)
                while at >= 0:
                    found.append((str(path.relative_to(root)), text, at))
                    at = text.find(mutant.old, at + 1, end)
    if len(found) != 1:
        what = f"`{mutant.old}` in `{mutant.function}`"
        raise DoesNotApply(f"{mutant.name}: {what} was found {len(found)} times, expected once")
    return found[0]


@lru_cache(None)
def _sources(root: Path) -> tuple[Path, ...]:
    return tuple(sorted((root / "tcsym").rglob("*.py")))


@lru_cache(None)
def _text(path: Path) -> str:
    return path.read_text()


@lru_cache(None)
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _spans(text: str, name: str) -> Iterator[tuple[int, int]]:
    """Start and end of each definition of that name."""
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    for found, node in _definitions(_tree(text).body, ""):
        if found == name and node.end_lineno is not None:
            yield lines[node.lineno - 1], lines[node.end_lineno]


def _definitions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        match node:
            case ast.ClassDef(name=name):
                yield from _definitions(node.body, f"{name}.")
            case ast.FunctionDef(name=name):
                yield prefix + name, node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name, node
            case _:
                pass
