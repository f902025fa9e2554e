# SPDX-License-Identifier: Apache-2.0
"""Sources -> how large each room of the package is, and how many numbers decide in it.

    ./dev house               the files as they are
    ./dev house main~20       how that commit's became these

A room is a folder of `tcsym`, in `tcsym/schedule` each of its folders; files beside the folders are
a room, too. Of its Python files are counted:

lines: as they are written, with blank ones and comments; files.
names: those in capitals to which a module assigns numbers at its top level: literals, arithmetic
    on literals and on such names, and tuples, lists, sets and mappings of these.
numbers: the literals in what these names are.
compared: literals above 2 in what is compared: anywhere in an operand of `<`, `<=`, `>`, `>=`, or
    in an argument of the conditions on sizes `ge`, `lt`, `eq`. (`==` and `!=` of Python compare
    kinds, bits and lengths of tuples: no decision at a size.)

The stage that maps loops, `tcsym/schedule`, has a line of its own: it is to be replaced, and what
is left of it is what this line says.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
STAGE = "tcsym/schedule"
COLUMNS = ("lines", "files", "names", "numbers", "compared")
NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")
CONDITIONS = frozenset(("ge", "lt", "eq"))
ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
Rooms = Mapping[str, Counter[str]]


# ---- one file


def counted(source: str) -> Counter[str]:
    tree = ast.parse(source)
    named = list(names_of(tree))
    return Counter(
        lines=len(source.splitlines()),
        files=1,
        names=sum(len(names) for names, _ in named),
        numbers=sum(n for _, n in named),
        compared=len({id(x) for e in _compared(tree) for x in _literals(e) if x.value > 2}),
    )


def names_of(module: ast.Module) -> Iterator[tuple[list[str], int]]:
    """Of each assignment of numbers: its names, and how many literals."""
    for x in module.body:
        match x:
            case ast.Assign(targets=[*targets], value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                continue
        names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        n_literals = sum(1 for _ in _literals(value))
        if all(map(NAME.fullmatch, names)) and n_literals and _is_of_numbers(value):
            yield names, n_literals


def _is_of_numbers(e: ast.expr) -> bool:
    match e:
        case ast.Constant(value):
            return isinstance(value, int | float | str)  # texts may be keys
        case ast.Name(name):
            return bool(NAME.fullmatch(name))
        case ast.UnaryOp(operand=inside):
            return _is_of_numbers(inside)
        case ast.BinOp(left, _, right):
            return _is_of_numbers(left) and _is_of_numbers(right)
        case ast.Tuple(items) | ast.List(items) | ast.Set(items):
            return all(map(_is_of_numbers, items))
        case ast.Dict(_, values):
            return all(map(_is_of_numbers, values))
        case _:
            return False


def _compared(tree: ast.Module) -> Iterator[ast.expr]:
    """Expressions that are compared."""
    for x in ast.walk(tree):
        match x:
            case ast.Compare(left, operations, others):
                if any(isinstance(o, ORDERINGS) for o in operations):
                    yield from (left, *others)
            case ast.Call(ast.Name(name), arguments) if name in CONDITIONS:
                yield from arguments


def _literals(e: ast.expr) -> Iterator[ast.Constant]:
    for x in ast.walk(e):
        if isinstance(x, ast.Constant) and type(x.value) in (int, float):
            yield x


# ---- all files


def rooms_of(tree: Path) -> Rooms:
    """The counts of each room below this folder, by the room's path."""
    rooms: dict[str, Counter[str]] = {}
    for path in sorted((tree / "tcsym").rglob("*.py")):
        room = _room(path.relative_to(tree).parts)
        rooms.setdefault(room, Counter()).update(counted(path.read_text(encoding="utf-8")))
    return dict(sorted(rooms.items()))


def _room(parts: tuple[str, ...]) -> str:
    depth = 3 if "/".join(parts[:2]) == STAGE else 2
    return "/".join(parts[: min(depth, len(parts) - 1)])


def table(now: Rooms, before: Rooms | None = None) -> list[str]:
    """A line for each room, then one for the stage that maps loops and one for all."""
    listed = list(dict.fromkeys(sorted([*now, *(before or {})])))
    sums = {"all of " + STAGE: STAGE, "all": "tcsym"}
    lines = [_line("", COLUMNS)]
    for room in listed:
        lines.append(_line(room, _cells(now.get(room), before and before.get(room, Counter()))))
    for title, top in sums.items():
        own, old = (None if x is None else _sum(x, top) for x in (now, before))
        lines.append(_line(title, _cells(own, old)))
    return lines


def _sum(rooms: Rooms, top: str) -> Counter[str]:
    return sum((c for room, c in rooms.items() if f"{room}/".startswith(f"{top}/")), Counter())


def _cells(now: Counter[str] | None, before: Counter[str] | None) -> Iterator[str]:
    for column in COLUMNS:
        n = (now or Counter())[column]
        if before is None or n == before[column]:
            yield f"{n:,}"
        else:
            yield f"{before[column]:,} → {n:,}"


def _line(title: str, cells: Iterable[str]) -> str:
    return f"{title:28}" + "".join(f"{cell:>18}" for cell in cells)


def rooms_of_commit(commit: str) -> Rooms:
    done = subprocess.run(["git", "archive", commit, "tcsym"], cwd=TREE, capture_output=True)
    if done.returncode:
        sys.exit(f"house: {done.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        return rooms_of(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev house", description=__doc__.partition("\n")[0])
    parser.add_argument("commit", nargs="?", help="what to compare with")
    commit = parser.parse_args().commit
    print("\n".join(table(rooms_of(TREE), rooms_of_commit(commit) if commit else None)))


if __name__ == "__main__":
    main()
