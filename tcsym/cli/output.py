# SPDX-License-Identifier: Apache-2.0
"""What the commands print: tables for people, JSON for programs, errors as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from tcsym.errors import TCError

json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, for programs."
)


def nearest(name: str, known: Iterable[str]) -> str:
    """``did you mean `mm`?``, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), 1)
    return f"did you mean `{close[0]}`?" if close else ""


class Commands(click.Group):
    """Commands, of which the nearest is told where a name is none of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        is_known = self.get_command(ctx, name) is not None
        if not (is_known or name.startswith("-") or ctx.resilient_parsing):
            known = self.list_commands(ctx)
            near = nearest(name, known) or f"commands are {', '.join(known)}"
            ctx.fail(f"no command `{name}`; {near}")
        return super().resolve_command(ctx, args)


class ErrorsAsText(Commands):
    """Shows a tcsym error as its text and ends with exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TCError as error:
            raise click.ClickException(str(error)) from error
        except MemoryError as error:
            raise click.ClickException(f"out of memory: {error}") from error


class KernelCommand(click.Command):
    """Says how sizes and a def are given, where they stand alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            first = ctx.args[0]
            how = "sizes are one word: M=3,K=4" if "=" in first else "a def is chosen by FILE:NAME"
            raise click.UsageError(f"unexpected `{' '.join(ctx.args)}` ({how})", ctx)
        return rest


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under headings: with rich on a terminal (NO_COLOR respected), plain elsewhere."""
    if not sys.stdout.isatty():
        _print_plain([columns, *rows])
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def _print_plain(rows: Sequence[Sequence[str]]) -> None:
    """Columns of equal width, however long the lines become."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        click.echo("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip())


def byte_text(n: int) -> str:
    """`4.2 KiB`"""
    size, unit = float(n), "bytes"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{n} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """`12.3 us`, with three figures."""
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
