"""The library of kernels on the command line: `library:softmax` as a FILE, and the list of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tcsym.cli_output import print_table

PREFIX = "library:"


class KernelFile(click.Path):
    """A file that exists, or `library:NAME` for a kernel that comes with tcsym."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value.startswith(PREFIX):
            from tcsym import library
            from tcsym.errors import OptionError

            try:
                return library.path(value.removeprefix(PREFIX))
            except OptionError as error:
                self.fail(f"{error.message}; {error.hint}", param, ctx)
        return super().convert(value, param, ctx)


def list_library(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    """Callback of `--library`: prints names and descriptions and ends."""
    if not wanted or ctx.resilient_parsing:
        return
    from tcsym import library

    rows = [(name, library.description(name)) for name in library.names()]
    print_table(("kernel", "what it computes"), rows)
    click.echo(f"{len(rows)} kernels; FILE is library:NAME, as in `tcsym run library:softmax`")
    ctx.exit()


library_option = click.option(
    "--library",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=list_library,
    help="List the kernels that come with tcsym, and end.",
)
