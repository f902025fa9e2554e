# SPDX-License-Identifier: Apache-2.0
"""`tcsym check`: all errors of many files, for editors and for checks of a repository."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from tcsym.cli.kernel import STDIN
from tcsym.cli.output import json_option, print_json
from tcsym.errors import Span

if TYPE_CHECKING:
    from tcsym.cli.findings import Finding

_TEXTS, _PYTHON = ".tc", ".py"
_START = Span(1, 1)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILES...", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="How to print: for people and editors, for programs, as annotations of GitHub's reviews.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@click.option(
    "--stdin-filename",
    metavar="NAME",
    default="<stdin>",
    help="What `-` is called; `.py` says that it is Python.",
)
@json_option
def check(
    files: tuple[str, ...], form: str, strict: bool, stdin_filename: str, as_json: bool
) -> None:
    """Print all errors and warnings of FILES: `file:line:column: kind: message`.

    FILES are texts of defs, Python files, folders with such (`*.tc`, `*.py`), or `-`. Python files
    are read, not run: what is checked are string literals that they give to `tcsym.define`. Exits
    with 1 if there is an error, 2 if a file does not exist.

    \b
    Example: tcsym check kernels/ model.py
    """
    checked = n_errors = n_warnings = 0
    as_objects: list[dict[str, str | int]] = []
    for path in _all(files):
        source, found = checked_file(path, stdin_filename)
        checked += 1
        n_errors += sum(f.is_error for f in found)
        n_warnings += sum(not f.is_error for f in found)
        as_objects += [f.as_json() for f in found]
        if not (as_json or form == "json"):
            for f in found:
                click.echo(f.as_github() if form == "github" else f.as_text(source))
    if as_json or form == "json":
        print_json(as_objects)
    else:
        told = f"{_n(n_errors, 'error')}, {_n(n_warnings, 'warning')}"
        click.echo(f"{_n(checked, 'file')} checked: {told}", err=True)
    if n_errors or (strict and n_warnings):
        raise click.exceptions.Exit(1)


def _n(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def _all(files: tuple[str, ...]) -> Iterator[str]:
    """The files, and those of folders. UsageError: one does not exist."""
    for name in files:
        if name != STDIN and not os.path.exists(name):
            raise click.UsageError(f"no file `{name}`")
    for name in files:
        if name != STDIN and os.path.isdir(name):
            found = (p for p in Path(name).rglob("*") if p.suffix in (_TEXTS, _PYTHON))
            yield from sorted(map(str, filter(Path.is_file, found)))
        else:
            yield name


def checked_file(path: str, stdin_filename: str = "<stdin>") -> tuple[str, list[Finding]]:
    """What the file holds, and what is to say of it."""
    from tcsym.cli.findings import Finding, findings_of_text
    from tcsym.cli.python_texts import texts_of

    name = stdin_filename if path == STDIN else path
    try:
        source = sys.stdin.read() if path == STDIN else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return "", [Finding(name, _START, True, "file", f"cannot be read: {error}")]
    if not name.endswith(_PYTHON):
        return source, findings_of_text(source, name)
    try:
        texts = texts_of(source)
    except SyntaxError as error:
        at = Span(error.lineno or 1, error.offset or 1)
        return source, [Finding(name, at, True, "python", f"not Python: {error.msg}")]
    found = [
        replace(f, span=text.span_in_file(f.span))
        for text in texts
        for f in findings_of_text(text.text, name)
    ]
    return source, found
