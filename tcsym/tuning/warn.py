"""One warning in a process about the options stores: trouble with them costs speed, no result."""

from __future__ import annotations

_warned: list[str] = []


def warn_once(text: str) -> None:
    """Logs the first trouble only, to `tcsym.options`."""
    if not _warned:
        import logging

        _warned.append(text)
        logging.getLogger("tcsym.options").warning(text)
