# SPDX-License-Identifier: Apache-2.0
"""`tcsym cache`: the options store beside the code: list, show, export, import, prune."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import click

from tcsym.cli.output import json_option, print_json, print_table
from tcsym.errors import OptionError
from tcsym.tuning import shipped
from tcsym.tuning.database import SIZES_FILE, Database
from tcsym.tuning.rows import Fastest, Trial, Tuned
from tcsym.tuning.stores import sizes_database, user_database
from tcsym.tuning.tree import tree_from_json, tree_text

_SHOWN_HASH = 12
_PATH = click.Path(path_type=str)


def tuned_programs() -> list[tuple[str, Tuned]]:
    """All that is tuned, with where it is kept: the user's first."""
    database = user_database()
    rows = [("user", row) for row in database.select(Tuned)] if database else []
    for path in shipped.paths():
        rows += [("shipped", row) for row in readable(path)]
    return rows


def readable(path: str) -> list[Tuned]:
    try:
        return shipped.read(path)
    except (OSError, ValueError, KeyError, TypeError):
        return []


def tuned_json(origin: str, row: Tuned) -> dict[str, Any]:
    return {
        "program": row.program,
        "name": row.name,
        "machine": row.machine,
        "origin": origin,
        "gain": row.gain,
        "created": row.created,
        "measured": json.loads(row.measured),
        "tree": json.loads(row.tree),
    }


def print_tuned(rows: Iterable[tuple[str, Tuned]]) -> None:
    print_table(
        ("program", "name", "machine", "gain", "sizes", "kept by", "when"),
        [
            (
                row.program[:_SHOWN_HASH],
                row.name,
                row.machine,
                f"{row.gain:.2f}x",
                str(len(json.loads(row.measured))),
                origin,
                row.created[:10],
            )
            for origin, row in rows
        ],
    )


def show_tuned(rows: list[tuple[str, Tuned]]) -> None:
    """A program's trees as text."""
    for origin, row in rows:
        measured = json.loads(row.measured)
        n_sizes = len(measured[0]) if measured else 0
        names = [f"n{k}" for k in range(n_sizes)]
        click.echo(f"{row.name} {row.program}\n{origin}, {row.machine}, {row.created}")
        click.echo(row.text.strip())
        try:
            click.echo(tree_text(tree_from_json(json.loads(row.tree), n_sizes), names))
        except OptionError as error:
            click.echo(f"not usable here: {error}")


@click.command("export")
@click.argument("directory", type=_PATH)
@click.option("--def", "name", help="Only programs of this name.")
@json_option
def export_options(directory: str, name: str | None, as_json: bool) -> None:
    """Write tuned options to DIRECTORY as text, one file a program: the form that is shipped.

    \b
    Example: tcsym cache export tuned
    """
    database = user_database()
    rows = [r for r in (database.select(Tuned) if database else []) if name in (None, r.name)]
    by_program: dict[str, list[Tuned]] = {}
    for row in rows:
        by_program.setdefault(row.program, []).append(row)
    try:
        os.makedirs(directory, exist_ok=True)
        for program, found in by_program.items():
            path = os.path.join(directory, shipped.file_name(found[0].name, program))
            machines = {row.machine for row in found}
            others = [r for r in readable(path) if r.machine not in machines]
            with open(path, "w", encoding="utf-8") as file:
                file.write(shipped.tuned_text([*others, *found]))
    except OSError as error:
        raise click.ClickException(f"cannot write {directory}: {error}") from error
    _report("exported", len(by_program), as_json)


@click.command("import")
@click.argument("paths", type=_PATH, nargs=-1, required=True)
@json_option
def import_options(paths: tuple[str, ...], as_json: bool) -> None:
    """Take over options from exported files, or directories of them, replacing what is there.

    \b
    Example: tcsym cache import tuned
    """
    files = [f for path in paths for f in (shipped.paths(path) if os.path.isdir(path) else [path])]
    rows: list[Tuned] = []
    for path in files:
        try:
            rows += shipped.read(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise click.ClickException(f"cannot read {path}: {error!r}") from error
    _keep(rows)
    _report("imported", len(rows), as_json)


@click.command("merge")
@click.argument("directory", type=_PATH)
@json_option
def merge_options(directory: str, as_json: bool) -> None:
    """Add the options and trials of another store, a cache DIRECTORY; the newer of two wins.

    And what was measured at single sizes.

    \b
    Example: tcsym cache merge other/.cache/tcsym
    """
    below = os.path.join(directory, "options")
    place = below if os.path.isdir(below) else directory
    other = Database(place)
    if not other.exists():
        raise click.ClickException(f"{directory} has no options store")
    database = user_database()
    have = {(r.program, r.machine): r.created for r in (database.select(Tuned) if database else [])}
    tuned = [r for r in other.select(Tuned) if have.get((r.program, r.machine), "") < r.created]
    known = set(database.select(Trial) if database else ())
    trials = [r for r in other.select(Trial) if r not in known]
    _keep([*tuned, *trials])
    _merge_sizes(Database(place, SIZES_FILE))
    _report("merged", len(tuned), as_json)


def _merge_sizes(other: Database) -> None:
    """The newer of two choices for the same sizes wins."""
    database = sizes_database()
    if database is None or not other.exists():
        return
    have = {_question(row): row.created for row in database.select(Fastest)}
    newer = [r for r in other.select(Fastest) if have.get(_question(r), "") < r.created]
    if not database.put(newer):
        raise click.ClickException("the options store cannot be written")


def _question(row: Fastest) -> tuple[str, ...]:
    return row.program, row.machine, row.question, row.sizes


def _keep(rows: list[Any]) -> None:
    database = user_database()
    if database is None or not database.put(rows):
        raise click.ClickException("the options store cannot be written")


def prune_options(keep_trials: int) -> int:
    """Forget all but the last trials; tuned options are small and stay."""
    database = user_database()
    if database is None or not database.exists():
        return 0
    where = f"id <= (SELECT MAX(id) FROM trials) - {int(keep_trials)}"
    return database.delete(Trial, where)


def clear_options() -> int:
    database, sizes = user_database(), sizes_database()
    if sizes is not None and sizes.exists():
        sizes.delete(Fastest, "1")
    if database is None or not database.exists():
        return 0
    return database.delete(Tuned, "1") + database.delete(Trial, "1")


def _report(done: str, n: int, as_json: bool) -> None:
    if as_json:
        print_json({done: n})
    else:
        click.echo(f"options of {n} program{'s' * (n != 1)} {done}")
