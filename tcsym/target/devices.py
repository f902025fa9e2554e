# SPDX-License-Identifier: Apache-2.0
"""This machine's CUDA devices. The driver is loaded when that is first asked."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from tcsym.errors import TargetError
from tcsym.target import libcuda
from tcsym.target.cuda import KINDS, Kind
from tcsym.target.target import TWIN

_TWIN = f'"{TWIN}" runs the same kernels on the host'


@lru_cache(None)
def driver() -> Any:
    """`pycuda.driver` where pycuda can be loaded, else `libcuda` in its place; initialised.

    TargetError says what is missing.
    """
    found = _pycuda() or libcuda
    try:
        found.init()
        n_devices = found.Device.count()
    except OSError as error:
        raise TargetError(
            f"NVIDIA's driver was not found: {error}",
            hint="it comes with the device, not with CUDA's toolkit; a container has to be started "
            f"with its devices (`--gpus all`); {_TWIN}",
        ) from None
    except found.Error as error:
        raise TargetError(
            f"the CUDA driver does not start: {error}",
            hint=f"`nvidia-smi` says whether it sees a device; {_TWIN}",
        ) from None
    if not n_devices:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES is {hidden!r})"
        raise TargetError(f"the CUDA driver sees no device{why}", hint=_TWIN)
    return found


def _pycuda() -> Any:
    """The module, or None."""
    try:
        import pycuda.driver
    except ImportError:
        return None
    return pycuda.driver


def capability(number: int = 0) -> tuple[int, int]:
    """Compute capability of a device, as (8, 6). Errors: those of `driver`."""
    major, minor = driver().Device(number).compute_capability()
    return int(major), int(minor)


def names() -> list[str]:
    """Of all devices, with their compute capabilities. Errors: those of `driver`."""
    found = [driver().Device(k) for k in range(driver().Device.count())]
    return [f"{d.name()} ({'.'.join(map(str, d.compute_capability()))})" for d in found]


def kind_here() -> Kind:
    """That of the first device. Errors: those of `driver`; TargetError for an older device."""
    here = capability()
    found = nearest(here)
    if found is None:
        major, minor = here
        raise TargetError(
            f"the device here has compute capability {major}.{minor}, kernels need 8.0 or newer",
            hint=_TWIN,
        )
    return found


def nearest(here: tuple[int, int]) -> Kind | None:
    """The newest kind whose code a device of this compute capability runs; None for an old one."""
    running = [kind for kind in KINDS if runs_on(kind.name, here)]
    return max(running, key=lambda kind: _needed(kind.name), default=None)


def runs_on(name: str, here: tuple[int, int]) -> bool:
    """Code for `sm_86` runs on all newer devices, that for `sm_90a` on its own alone.

    https://docs.nvidia.com/cuda/parallel-thread-execution, `.target`: PTX is translated when it is
    loaded; what has the suffix `a` uses what no other device promises.
    """
    needed = _needed(name)
    return here == needed if name.endswith("a") else here >= needed


def _needed(name: str) -> tuple[int, int]:
    number = int(name.removeprefix("sm_").removesuffix("a"))
    return number // 10, number % 10
