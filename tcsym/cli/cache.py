# SPDX-License-Identifier: Apache-2.0
"""`tcsym cache`: compiled code and tuned options that are kept, and making them less."""

from __future__ import annotations

import re
import time

import click

from tcsym.cli.options import (
    clear_options,
    export_options,
    import_options,
    merge_options,
    print_tuned,
    prune_options,
    show_tuned,
    tuned_json,
    tuned_programs,
)
from tcsym.cli.output import Commands, byte_text, json_option, print_json, print_table
from tcsym.runtime.cache import CacheEntry, CodeCache

_SHOWN_KEY = 12
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def parse_bytes(_ctx: click.Context, _param: click.Parameter, text: str) -> int:
    """`100M`: a number of bytes, in units of 1024."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", text.lower())
    if match is None:
        raise click.BadParameter(f"`{text}` is not a number of bytes, as in 100M")
    return int(match[1]) * _UNITS[match[2]]


@click.group(cls=Commands)
def cache() -> None:
    """Compiled code and tuned options kept on disk."""


cache.add_command(export_options)
cache.add_command(import_options)
cache.add_command(merge_options)

_options_flag = click.option("--options", "of_options", is_flag=True, help="Of tuned options.")


@cache.command("list")
@_options_flag
@json_option
def list_entries(of_options: bool, as_json: bool) -> None:
    """All compiled code, the last used first; with --options, all tuned programs.

    \b
    Example: tcsym cache list --options
    """
    if of_options:
        rows = tuned_programs()
        if as_json:
            print_json([tuned_json(*row) for row in rows])
        else:
            print_tuned(rows)
        return
    code_cache = CodeCache.default()
    entries = code_cache.entries()
    if as_json:
        print_json([_entry_json(e) for e in entries])
        return
    if code_cache.directory is None:
        click.echo(f"no code cache: {code_cache.trouble}")
        return
    now = time.time()
    print_table(
        ("key", "what", "target", "size", "used"),
        [
            (
                e.key[:_SHOWN_KEY],
                _what(e),
                str(e.manifest.get("target", "")),
                byte_text(e.bytes),
                _age_text(now - e.last_used),
            )
            for e in entries
        ],
    )
    total = byte_text(sum(e.bytes for e in entries))
    click.echo(f"{len(entries)} entries, {total}, in {code_cache.directory}")


@cache.command()
@click.argument("key")
@json_option
def show(key: str, as_json: bool) -> None:
    """One entry, by its KEY or the first figures of it; or a tuned program, by hash or name.

    \b
    Example: tcsym cache show lstm
    """
    tuned = [(o, r) for o, r in tuned_programs() if r.name == key or r.program.startswith(key)]
    if tuned:
        if as_json:
            print_json([tuned_json(*row) for row in tuned])
        else:
            show_tuned(tuned)
        return
    found = [e for e in CodeCache.default().entries() if e.key.startswith(key)]
    if len(found) != 1:
        raise click.ClickException(f"{len(found)} entries have a key that begins with `{key}`")
    entry = found[0]
    if as_json:
        print_json({**_entry_json(entry), "manifest": entry.manifest})
        return
    compiled = entry.manifest.get("compiled", {})
    facts = {
        "key": entry.key,
        "what": _what(entry),
        "target": str(entry.manifest.get("target", "")),
        "size": byte_text(entry.bytes),
        "arguments": ", ".join(compiled.get("arguments", ())),
        "sizes": ", ".join(compiled.get("sizes", ())),
        "notes": "; ".join(compiled.get("notes", ())),
    }
    for name, value in facts.items():
        if value:
            click.echo(f"{name:<10}{value}")


@cache.command()
@click.option(
    "--max-bytes", callback=parse_bytes, default="256M", show_default=True, help="To keep."
)
@click.option(
    "--max-trials", type=click.IntRange(0), default=100_000, show_default=True, help="To keep."
)
@json_option
def prune(max_bytes: int, max_trials: int, as_json: bool) -> None:
    """Remove code that was not used for longest, and the oldest trials of the tuner.

    \b
    Example: tcsym cache prune --max-bytes 100M
    """
    _report_removed(CodeCache.default().prune(max_bytes) + prune_options(max_trials), as_json)


@cache.command()
@_options_flag
@json_option
def clear(of_options: bool, as_json: bool) -> None:
    """Remove all compiled code; with --options, all of the user's tuned options and trials.

    \b
    Example: tcsym cache clear
    """
    removed = clear_options() if of_options else CodeCache.default().clear()
    _report_removed(removed, as_json)


def _report_removed(n: int, as_json: bool) -> None:
    if as_json:
        print_json({"removed": n})
    else:
        click.echo(f"{n} {'entry' if n == 1 else 'entries'} removed")


def _entry_json(entry: CacheEntry) -> dict[str, object]:
    return {
        "key": entry.key,
        "what": _what(entry),
        "target": entry.manifest.get("target"),
        "bytes": entry.bytes,
        "last_used": entry.last_used,
    }


def _what(entry: CacheEntry) -> str:
    if not entry.manifest:
        return "damaged"
    return str(entry.manifest.get("name") or entry.manifest.get("what") or "kernel")


def _age_text(seconds: float) -> str:
    """`5 minutes ago`"""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        n = int(seconds // length)
        if n:
            return f"{n} {unit}{'s' * (n > 1)} ago"
    return "now"
