# SPDX-License-Identifier: Apache-2.0
"""Which kernel a command is about: FILE[:NAME], a name of the library, `-`; how it is compiled."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from tcsym.cli.output import nearest
from tcsym.cli.sizes import parse_within
from tcsym.errors import OptionError
from tcsym.target.names import known_targets

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel
    from tcsym.kernel.module import Module
    from tcsym.options import Options

PREFIX = "library:"
STDIN = "-"
Decorator = Callable[[Any], Any]


class Chosen(Struct, frozen=True):
    """A file, and which of its defs; None: its only one."""

    path: Path
    name: str | None = None

    @property
    def shown(self) -> str:
        """The file's name in messages."""
        return "<stdin>" if str(self.path) == STDIN else str(self.path)

    def text(self) -> str:
        """What it holds. ClickException: it cannot be read."""
        try:
            if str(self.path) == STDIN:
                return sys.stdin.read()
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise click.ClickException(f"cannot read {self.path}: {error}") from error

    def only_of(self, module: Module) -> str:
        """The name of the def. UsageError: it has no such def, or has several."""
        names = list(module)
        if self.name is None and len(names) != 1:
            one = f"{self.path}:{'|'.join(names)}"
            raise click.UsageError(f"{self.shown} has {len(names)} defs, choose one: {one}")
        if self.name is not None and self.name not in names:
            near = nearest(self.name, names) or f"it has {', '.join(names)}"
            raise click.UsageError(f"{self.shown} has no def `{self.name}`; {near}")
        return self.name or names[0]


class KernelFile(click.Path):
    """A file that exists, `softmax` or `library:softmax` of those that come with tcsym, or `-`.

    With `:NAME` behind it, if it has several defs.
    """

    name = "file"

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, allow_dash=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text, name = str(value), None
        head, colon, last = text.rpartition(":")
        if colon and f"{head}:" != PREFIX and last.isidentifier() and not Path(text).exists():
            text, name = head, last
        is_name = text.isidentifier() and not Path(text).exists()
        if is_name or text.startswith(PREFIX):
            from tcsym import library

            try:
                return Chosen(library.path(text.removeprefix(PREFIX)), name)
            except OptionError as error:
                where = f"no file `{text}`, and " if is_name else ""
                self.fail(f"{where}{error.message}; {error.hint}", param, ctx)
        path = super().convert(text, param, ctx)
        assert isinstance(path, Path)
        return Chosen(path, name)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Kernels of the library, and what the shell knows of files."""
        from tcsym import library

        names = [CompletionItem(n) for n in library.names() if n.startswith(incomplete)]
        return [*names, *super().shell_complete(ctx, param, incomplete)]


def parse_options(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Options | None:
    return None if text is None else options_of(text)


def parse_all_options(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> list[Options]:
    return [options_of(text) for text in texts]


def options_of(text: str) -> Options:
    """`vectorize=false,chains=1`, as reports print them, or JSON, or a file of JSON."""
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
        if not equals:
            raise click.BadParameter(f"`{part}` is not NAME=VALUE, as in vectorize=false")
        if size is not None:
            fields.setdefault("bind", []).append((size[1], value))
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


def complete_stage(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    from tcsym.backend import BACKENDS
    from tcsym.compiler import STAGES

    known = [*STAGES, *(s for b in BACKENDS.values() for s in b.stages), "options", "variants"]
    return [stage for stage in dict.fromkeys(known) if stage.startswith(begun)]


def complete_target(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    from tcsym.target.names import DEVICE, DEVICES, HOST, NAMED
    from tcsym.target.target import TWIN

    return [t for t in (HOST, *NAMED, DEVICE, *DEVICES, TWIN) if t.startswith(begun)]


file_argument: Decorator = click.argument("file", type=KernelFile())
target_option: Decorator = click.option(
    "--target", shell_complete=complete_target, help=f"{known_targets()}."
)
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
    help="How to compile: vectorize=false,chains=1, bind[K]=before, JSON or a .json file.",
)
plan_option: Decorator = click.option(
    "--plan",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="How loops are tiled and ordered, as `show FILE plan` prints it.",
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
    @target_option
    @strategy_option
    @options_option
    @plan_option
    @within_option
    @wraps(command)
    def loaded(
        file: Chosen, target: str | None, within: dict[str, Any], plan: Path | None, **rest: Any
    ) -> None:
        how = {"strategy": rest.pop("strategy"), "options": rest.pop("options")}
        how["plan"] = None if plan is None else text_of(plan)
        command(kernel=load_kernel(file, target, sizes=within, **how), **rest)

    made: Callable[..., None] = loaded
    return made


def text_of(path: Path) -> str:
    from tcsym.kernel.settings import text_of_file

    return text_of_file(path)


def load_kernel(file: Chosen, target: str | None = None, **how: Any) -> Kernel:
    """The def that is chosen, or the only one."""
    from tcsym.kernel.definition import define

    module = define(file.text(), filename=file.shown, target=target, **how)
    return module[file.only_of(module)]
