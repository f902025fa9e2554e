# SPDX-License-Identifier: Apache-2.0
"""Environment variables: one typed table, read when asked, never at import.

`tcsym doctor` prints the table. A value that does not parse is an OptionError naming the variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Variable(Generic[T]):
    """One environment variable: `parse` turns its text into a value or raises ValueError."""

    def __init__(
        self, name: str, parse: Callable[[str], T], default: T, expected: str, description: str
    ) -> None:
        self.name = name
        self.parse = parse
        self.default = default
        self.expected = expected
        self.description = description

    def read(self) -> T:
        """Its value now; the default if it is unset or empty."""
        text = os.environ.get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError:
            from tcsym.errors import OptionError  # no process should have to load it

            raise OptionError(
                f"environment variable {self.name} is {text!r}, expected {self.expected}"
            ) from None


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _bytes(text: str) -> int:
    """A number of bytes, or of K, M or G of them (powers of 1024)."""
    factor = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:].upper(), 1)
    value = int(text if factor == 1 else text[:-1]) * factor
    if value < 0:
        raise ValueError(text)
    return value


def _switch(text: str) -> bool:
    answers = {"1": True, "true": True, "yes": True, "on": True}
    answers |= {"0": False, "false": False, "no": False, "off": False}
    try:
        return answers[text.lower()]
    except KeyError:
        raise ValueError(text) from None


NUM_THREADS: Variable[int | None] = Variable(
    "TCSYM_NUM_THREADS",
    _positive,
    None,
    "an integer >= 1",
    "most threads a kernel may use; default: the cores this process may run on",
)
CACHE_DIR: Variable[str | None] = Variable(
    "TCSYM_CACHE_DIR",
    os.path.expanduser,
    None,
    "a directory",
    "where compiled code and tuned options are kept; default: the platform's cache directory",
)
CACHE: Variable[bool] = Variable(
    "TCSYM_CACHE", _switch, True, "0 or 1", "0: neither read nor write cached machine code"
)
OPTIONS: Variable[bool] = Variable(
    "TCSYM_OPTIONS", _switch, True, "0 or 1", "0: neither read nor write tuned options"
)
VERIFY: Variable[bool] = Variable(
    "TCSYM_VERIFY", _switch, False, "0 or 1", "1: verify loops after every pass, as the tests do"
)
CHECK_TWIN: Variable[bool] = Variable(
    "TCSYM_CHECK_TWIN",
    _switch,
    False,
    "0 or 1",
    "1: with cuda:twin, find races and what depends on the order of threads; TCSYM_VERIFY does too",
)
RESULT_MEMORY: Variable[int] = Variable(
    "TCSYM_RESULT_MEMORY",
    _bytes,
    256 * 2**20,
    "a number of bytes, such as 64M",
    "most idle memory kept for later large results; default: 256M, 0: none",
)
RECORD: Variable[str | None] = Variable(
    "TCSYM_RECORD",
    os.path.expanduser,
    None,
    "a file",
    "append a trace of all kernel calls to this file, for `tcsym tune`; default: no trace",
)

SYNC: Variable[bool] = Variable(
    "TCSYM_SYNC",
    _switch,
    False,
    "0 or 1",
    "1: calls wait for their kernel on a device, and raise what it finds",
)

PROGRESS: Variable[bool | None] = Variable(
    "TCSYM_PROGRESS",
    _switch,
    None,
    "0 or 1",
    "0: no lines about work that takes longer than a second, 1: also where there is no terminal; "
    "default: on terminals and in notebooks",
)

VARIABLES = (
    NUM_THREADS,
    CACHE_DIR,
    CACHE,
    OPTIONS,
    VERIFY,
    CHECK_TWIN,
    RESULT_MEMORY,
    RECORD,
    SYNC,
    PROGRESS,
)
