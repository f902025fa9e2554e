"""The run time's own modules (*.ll beside this file) -> their object code, which is shipped.

They are the same for every kernel and every x86-64 processor, and assembling them takes a first
process a tenth of a second, some of it in calls that wait. So each `.o` beside its text was made at
development time, with a digest of the text behind it. If that is of another text, the code is
assembled, once for each code cache. After a change of a text: `python -m tcsym.runtime.own_objects`
"""

from __future__ import annotations

import os

from tcsym.digest import digest

NAMES = ("arguments", "blocks", "direct", "native")
PASSES = ("sroa", "instruction_combine", "simplify_cfg")
RECIPE = f"x86-64 pic {PASSES}"  # what `assemble` does: part of keys and digests
_DIGEST_BYTES = 32


def own_object(name: str) -> bytes:
    """Object code of one of `NAMES`."""
    return shipped(name) or _assembled(name)


def shipped(name: str) -> bytes | None:
    """The code that lies beside the text; None if it is of another text, or none is there."""
    try:
        content = _read(f"{name}.o")
    except OSError:
        return None
    code, stamp = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return code if stamp == _stamp(name) else None


def _assembled(name: str) -> bytes:
    from tcsym.runtime.assemble import cached_object

    return cached_object(_read(f"{name}.ll").decode(), f"run time: {name}")


def _stamp(name: str) -> bytes:
    return digest(RECIPE.encode() + _read(f"{name}.ll"))


def _path(name: str) -> str:
    return os.path.join(os.path.dirname(__file__), name)


def _read(name: str) -> bytes:
    with open(_path(name), "rb", buffering=0) as file:
        return file.readall()


def make() -> None:
    """Writes the shipped code of all texts."""
    from tcsym.runtime.assemble import assemble

    for name in NAMES:
        with open(_path(f"{name}.o"), "wb") as file:
            file.write(assemble(_read(f"{name}.ll").decode()) + _stamp(name))


if __name__ == "__main__":
    make()
