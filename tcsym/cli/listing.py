# SPDX-License-Identifier: Apache-2.0
"""`tcsym list`: the kernels that come with tcsym, or the defs of files, with their signatures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from tcsym.cli.kernel import Chosen, KernelFile
from tcsym.cli.output import json_option, print_json

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel


class Listed(Struct, frozen=True):
    """A kernel, how it is called on the command line, and what its file says of it."""

    file: str
    kernel: Kernel
    description: str

    def as_json(self) -> dict[str, Any]:
        signature = self.kernel.signature
        return {
            "file": self.file,
            "def": self.kernel.name,
            "signature": repr(signature),
            "sizes": list(self.kernel.sizes),
            "inputs": list(signature.inputs),
            "outputs": list(signature.outputs),
            "description": self.description,
        }


@click.command("list")
@click.argument("files", nargs=-1, metavar="[FILES...]", type=KernelFile())
@json_option
def list_kernels(files: tuple[Chosen, ...], as_json: bool) -> None:
    """List the defs of FILES with their signatures, and the comments in front of them.

    Without FILES: the kernels that come with tcsym.

    \b
    Example: tcsym list mm.tc
    """
    found = [x for file in files for x in of_file(file)] if files else list(of_library())
    if as_json:
        print_json([x.as_json() for x in found])
        return
    for x in found:
        click.echo(f"{x.kernel.signature!r}")
        if x.description:
            click.echo(f"    {x.description}")
    if not files:
        click.echo(f"{len(found)} kernels; FILE is the name of one, as in `tcsym run softmax`")


def of_library() -> Iterator[Listed]:
    from tcsym import library

    for name in library.names():
        yield Listed(name, library.load(name), library.description(name))


def of_file(file: Chosen) -> Iterator[Listed]:
    from tcsym.kernel.definition import define

    text = file.text()
    module = define(text, filename=file.shown)
    for name in [file.only_of(module)] if file.name else module:
        yield Listed(file.shown, module[name], comment_before(text, name))


def comment_before(text: str, name: str) -> str:
    """The comment that ends in front of the def, on one line; as in the library, without sizes."""
    from tcsym import library

    found = re.search(rf"((?:^[ \t]*#[^\n]*\n)+)[ \t]*def[ \t]+{name}\b", text, re.M)
    lines = [x.strip().lstrip("#").strip() for x in (found[1] if found else "").splitlines()]
    return " ".join(line for line in lines if not line.startswith(library.SIZES))
