# SPDX-License-Identifier: Apache-2.0
"""Which kernel a command is about: FILE, a name of the library or `-`, and how it is compiled."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tcsym.cli.output import print_table
from tcsym.cli.sizes import parse_within
from tcsym.errors import OptionError
from tcsym.target.names import known_targets

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel
    from tcsym.options import Options

PREFIX = "library:"
STDIN = "-"
Decorator = Callable[[Any], Any]


class KernelFile(click.Path):
    """A file that exists, `softmax` or `library:softmax` of those that come with tcsym, or `-`."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, allow_dash=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name = str(value)
        is_name = name.isidentifier() and not Path(name).exists()
        if is_name or name.startswith(PREFIX):
            from tcsym import library

            try:
                return library.path(name.removeprefix(PREFIX))
            except OptionError as error:
                where = f"no file `{name}`, and " if is_name else ""
                self.fail(f"{where}{error.message}; {error.hint}", param, ctx)
        return super().convert(value, param, ctx)


def list_library(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    """Callback of `--library`: prints names and descriptions and ends."""
    if not wanted or ctx.resilient_parsing:
        return
    from tcsym import library

    rows = [(name, library.description(name)) for name in library.names()]
    print_table(("kernel", "what it computes"), rows)
    click.echo(f"{len(rows)} kernels; FILE is the name of one, as in `tcsym run softmax`")
    ctx.exit()


library_option: Decorator = click.option(
    "--library",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=list_library,
    help="List the kernels that come with tcsym, and end.",
)


def parse_options(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Options | None:
    return None if text is None else options_of(text)


def parse_all_options(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> list[Options]:
    return [options_of(text) for text in texts]


def options_of(text: str) -> Options:
    """`pack=false,register_rows=4`, as reports print them, or JSON, or a file of JSON."""
    from tcsym.options import Options

    try:
        if text.lstrip().startswith("{"):
            return Options.from_json(text)
        if text.endswith(".json"):
            return Options.from_json(Path(text).read_text(encoding="utf-8"))
        return Options(**_fields(text))
    except OptionError as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise click.BadParameter(f"{error.message}{hint}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"cannot read {text}: {error}") from error


def _fields(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for part in re.split(r"[,\s]+", text.strip()):
        if part in ("", "defaults"):
            continue
        name, equals, value = part.partition("=")
        size = re.fullmatch(r"bind\[(\w+)\]", name)
        nest = re.fullmatch(r"nests\[(\d+)\]\.(\w+)", name)
        if not equals:
            raise click.BadParameter(f"`{part}` is not NAME=VALUE, as in pack=false")
        if size is not None:
            fields.setdefault("bind", []).append((size[1], value))
        elif nest is not None:
            fields.setdefault("nests", []).append((int(nest[1]), nest[2], _value(value)))
        elif name in fields:
            raise click.BadParameter(f"`{name}` is given twice")
        else:
            fields[name] = _value(value)
    return fields


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    try:
        return json.loads(text)
    except ValueError:
        return text


file_argument: Decorator = click.argument("file", type=KernelFile())
def_option: Decorator = click.option("--def", "name", help="Which def, if the file has several.")
target_option: Decorator = click.option("--target", help=f"{known_targets()}.")
strategy_option: Decorator = click.option(
    "--strategy",
    type=click.Choice(["auto", "symbolic", "specialize", "bucket", "pad"]),
    default="auto",
    help="Which versions of the code there are.",
)
options_option: Decorator = click.option(
    "--options",
    callback=parse_options,
    metavar="NAME=VALUE,...",
    help="How to compile: pack=false,register_rows=4, bind[K]=before, JSON or a .json file.",
)
start_option: Decorator = click.option(
    "--start",
    multiple=True,
    callback=parse_all_options,
    metavar="NAME=VALUE,...",
    help="Options to try first, as for `run --options`; several times.",
)


within_option: Decorator = click.option(
    "--within",
    callback=parse_within,
    default="",
    metavar="N=32,M=1..128",
    help="Declared sizes: fixed, or in ranges.",
)


def with_kernel(command: Callable[..., None]) -> Callable[..., None]:
    """Adds FILE and the options that say how it is compiled; `command` gets its `kernel`."""

    @file_argument
    @def_option
    @target_option
    @strategy_option
    @options_option
    @within_option
    @wraps(command)
    def loaded(
        file: Path, name: str | None, target: str | None, within: dict[str, Any], **rest: Any
    ) -> None:
        how = {"strategy": rest.pop("strategy"), "options": rest.pop("options")}
        command(kernel=load_kernel(file, name, target, sizes=within, **how), **rest)

    made: Callable[..., None] = loaded
    return made


def load_kernel(file: Path, name: str | None, target: str | None, **how: Any) -> Kernel:
    """The def `name` of the file, or its only one."""
    from tcsym.kernel.definition import define

    shown = "<stdin>" if str(file) == STDIN else str(file)
    module = define(_text(file), filename=shown, target=target, **how)
    names = list(module)
    if name is None and len(names) != 1:
        raise click.UsageError(
            f"{shown} has {len(names)} defs, choose one: --def {'|'.join(names)}"
        )
    if name is not None and name not in module:
        raise click.UsageError(f"{shown} has no def `{name}`, it has {', '.join(names)}")
    return module[name or names[0]]


def _text(file: Path) -> str:
    try:
        if str(file) == STDIN:
            return sys.stdin.read()
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"cannot read {file}: {error}") from error
