# SPDX-License-Identifier: Apache-2.0
"""Warnings about the options stores, logged to `tcsym.options`: they cost speed, no result."""

from __future__ import annotations

_warned: list[str] = []
untuned: set[str] = set()  # programs that were told of


def warn_once(text: str) -> None:
    """Trouble with a store: the first in a process only."""
    if not _warned:
        _warned.append(text)
        _log(text)


def warn_untuned(program: str, text: str) -> None:
    """A tuned program runs with default options: once in a process for each.

    program: its canonical hash.
    """
    if program not in untuned:
        untuned.add(program)
        _log(text)


def _log(text: str) -> None:
    import logging  # not needed by most processes

    logging.getLogger("tcsym.options").warning(text)
