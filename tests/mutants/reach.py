# SPDX-License-Identifier: Apache-2.0
"""Programs of the fuzzer -> which of them, in which ways, run the code that a mutant changes.

Only these can find it, so a measurement tries no others: minutes in place of hours. Every place is
marked in one copy of the package, and each program runs once in each of its ways.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib
import json
import pkgutil
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tests.mutants.model import ROOT, Mutant, spot_of
from tests.mutants.table import MUTANTS

MARK = "_mutant_reached"
Ways = dict[int, list[str]]  # seed -> ways


def marked(mutants: Mapping[str, Mutant], root: Path = ROOT) -> dict[str, str]:
    """Files, each with a call of MARK before the statement that a mutant changes."""
    spots: dict[str, dict[str, int]] = {}
    for name, mutant in mutants.items():
        path, _, offset = spot_of(mutant, root)
        spots.setdefault(path, {})[name] = offset
    return {path: _marked((root / path).read_text(), at) for path, at in spots.items()}


def _marked(text: str, spots: Mapping[str, int]) -> str:
    tree = ast.parse(text)
    for name, offset in spots.items():
        body, k = _innermost(tree, text.count("\n", 0, offset) + 1)
        body.insert(k, ast.parse(f"{MARK}({name!r})").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _innermost(tree: ast.AST, line: int) -> tuple[list[ast.stmt], int]:
    """The list of statements, and the place in it, of the shortest one that covers the line."""
    found: list[tuple[int, list[ast.stmt], int]] = []
    for node in ast.walk(tree):
        for body in _bodies(node):
            for k, x in enumerate(body):
                end = getattr(x, "end_lineno", None)
                if end is not None and x.lineno <= line <= end:
                    found.append((end - x.lineno, body, k))
    _, body, k = min(found, key=lambda f: f[0])
    return body, k


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body


def main() -> int:
    """Within the marked copy: FILE gets the ways of each mutant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    now: set[str] = set()
    setattr(builtins, MARK, now.add)
    import tcsym
    from tests.fuzz.__main__ import level_of
    from tests.fuzz.compare import run_case
    from tests.fuzz.generate import random_program
    from tests.fuzz.modes import drawn_modes

    for x in pkgutil.walk_packages(tcsym.__path__, "tcsym."):
        with suppress(ImportError):
            importlib.import_module(x.name)
    constants, found = set(now), {name: Ways() for name in MUTANTS}
    for seed in range(arguments.seed, arguments.seed + arguments.programs):
        case = random_program(random.Random(seed), level_of(seed))
        for mode in drawn_modes(case):
            now.clear()
            for failure in run_case(case, (mode,)).failures:
                print(f"seed {seed}: {failure.kind} ({mode})", flush=True)
            for name in now | constants:
                found[name].setdefault(seed, []).append(mode)
    arguments.file.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
