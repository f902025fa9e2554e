# SPDX-License-Identifier: Apache-2.0
"""Versions of installed packages, read off the names of their directories.

`importlib.metadata` says the same, but importing that takes 20 ms.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.machinery import PathFinder


@lru_cache(None)
def installed(package: str) -> str:
    """Name and version, as `numpy-2.1.0.dist-info`; the name alone if there is none such."""
    spec = PathFinder.find_spec(package)
    if spec is None or spec.origin is None:
        return package
    beside = os.path.dirname(os.path.dirname(spec.origin))
    return ",".join(n for n in _marks(beside) if n.startswith(f"{package}-")) or package


def record(beside: str, package: str) -> bytes:
    """What RECORD says of an installed wheel: digests of its files. Empty for what is no wheel.

    beside: the directory where the package lies. package: its name and version (`installed`).
    """
    try:
        with open(os.path.join(beside, package, "RECORD"), "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""


@lru_cache(None)
def _marks(directory: str) -> tuple[str, ...]:
    return tuple(sorted(n for n in os.listdir(directory) if n.endswith(("-info", ".egg-info"))))
