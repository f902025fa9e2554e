# SPDX-License-Identifier: Apache-2.0
"""Name of a target -> `Target`: a table for each kind, a line for each name."""

from __future__ import annotations

from tcsym.errors import OptionError
from tcsym.target.caches import cache_bytes
from tcsym.target.cpu import KINDS, cpu_target, host_target
from tcsym.target.cuda import KINDS as CUDA_KINDS
from tcsym.target.cuda import cuda_target, twin_target
from tcsym.target.host import Processor, processor
from tcsym.target.target import TWIN, Target

HOST = "cpu"  # what the machine at hand is made of
DEVICE = "cuda"  # its first CUDA device
NAMED = {f"cpu:{kind.name}": kind for kind in KINDS}
DEVICES = {f"cuda:{kind.name}": kind for kind in CUDA_KINDS}


def resolve_target(name: str | None, here: Processor | None = None) -> Target:
    """The target a name means on this machine, or on `here`. OptionError for an unknown name."""
    if name in (None, "", HOST):
        return host_target(here or processor(), cache_bytes())
    if name in NAMED:
        return cpu_target(NAMED[name], cache_bytes())
    if name in DEVICES:
        return cuda_target(DEVICES[name])
    if name == TWIN:
        return twin_target()
    if name == DEVICE:
        from tcsym.target.devices import kind_here

        return cuda_target(kind_here())
    raise OptionError(f"unknown target `{name}`", hint=f"use {known_targets()}")


def known_targets() -> str:
    """For messages."""
    return f"{', '.join((HOST, *NAMED, DEVICE, *DEVICES))} or {TWIN}"
