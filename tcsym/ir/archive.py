# SPDX-License-Identifier: Apache-2.0
"""Several object files <-> one `ar` archive, the form in which the code cache holds them.

Reference: ar(5), the common format; members are named 0, 1, ... and there is no symbol table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

SYMBOL = "tcsym_kernel"  # what a call enters; `compiled` says how
TASK = "tcsym_task"  # begins the names of functions that may be missing (`runtime.growing`)
MAGIC = b"!<arch>\n"
_HEADER = 60


def pack(objects: Sequence[bytes]) -> bytes:
    """The archive; a single object stays as it is."""
    if len(objects) == 1:
        return objects[0]
    parts = [MAGIC]
    for k, content in enumerate(objects):
        parts += [f"{k:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode(), content]
        parts.append(b"\n" * (len(content) % 2))
    return b"".join(parts)


def members(code: bytes) -> Iterator[bytes]:
    """The objects of an archive, or the one object itself. ValueError if the archive is damaged."""
    if not code.startswith(MAGIC):
        yield code
        return
    at = len(MAGIC)
    while at < len(code):
        header = code[at : at + _HEADER]
        if len(header) < _HEADER or header[-2:] != b"`\n":
            raise ValueError("damaged archive")
        size = int(header[48:58])
        at += _HEADER
        if at + size > len(code):
            raise ValueError("damaged archive: a member ends behind the file")
        yield code[at : at + size]
        at += size + size % 2
