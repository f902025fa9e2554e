# SPDX-License-Identifier: Apache-2.0
"""Sizes on the command line: `M=3,K=4`, and with ranges `M=1..128`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tcsym.errors import SizeError


def parse_sizes(_ctx: click.Context, _param: click.Parameter, text: str) -> dict[str, int]:
    """`N=32,M=8`"""
    sizes: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, equals, number = (s.strip() for s in part.partition("="))
        if not (equals and name.isidentifier() and number.isdecimal()):
            raise click.BadParameter(f"`{part}` is not NAME=NUMBER, as in N=32,M=8")
        if name in sizes:
            raise click.BadParameter(f"`{name}` is given twice")
        sizes[name] = int(number)
    return sizes


def parse_names(
    _ctx: click.Context, _param: click.Parameter, text: str | None
) -> tuple[str, ...] | None:
    """`X,W`"""
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def parse_all_sizes(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> list[dict[str, int]]:
    return [parse_sizes(ctx, param, text) for text in texts]


def parse_many_sizes(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> list[dict[str, Any]]:
    """`N=32,M=8`, or with ranges `N=1..128,M=8`, several times."""
    return [_parsed(text) for text in texts]


def _parsed(text: str) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = (s.strip() for s in part.partition("="))
        numbers = value.split("..")
        is_good = equals and name.isidentifier() and all(n.isdecimal() for n in numbers)
        if not is_good or len(numbers) > 2 or name in sizes:
            raise click.BadParameter(f"`{part}` is not NAME=NUMBER or NAME=LOW..HIGH")
        sizes[name] = tuple(map(int, numbers)) if len(numbers) == 2 else int(value)
    return sizes


def sizes_of(given: list[dict[str, Any]]) -> Any:
    """What `Kernel.tune` takes. UsageError: ranges and several points do not mix."""
    has_ranges = any(isinstance(v, tuple) for sizes in given for v in sizes.values())
    if not given:
        return None
    if not has_ranges:
        return given
    if len(given) > 1:
        raise click.UsageError("give one --sizes with ranges, or several without")
    return _declared(given[0])


def parse_within(_ctx: click.Context, _param: click.Parameter, text: str) -> dict[str, Any]:
    """`N=32,M=1..128` as `define(sizes=)` takes it."""
    return _declared(_parsed(text))


def _declared(sizes: dict[str, Any]) -> dict[str, Any]:
    from tcsym.sizes.dims import Dim

    try:
        return {n: Dim(*v) if isinstance(v, tuple) else v for n, v in sizes.items()}
    except SizeError as error:
        raise click.BadParameter(error.message) from error


sizes_option: Callable[[Any], Any] = click.option(
    "--sizes", callback=parse_sizes, default="", metavar="N=32,M=8", help="Values of the sizes."
)
